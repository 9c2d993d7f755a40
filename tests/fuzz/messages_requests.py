"""Requests of the Messages API, with whatever clients put into them."""

from __future__ import annotations

from typing import Any, Final

from fuzz.mutations import damaged, mutated, spelled
from fuzz.requests import RequestRules, without
from hypothesis import strategies as st
from support.messages_conversations import histories
from support.valid_messages import complaints

from proxy.wire.messages import MESSAGES

_TOOL: Final = {"name": "Read", "input_schema": {"type": "object"}}
_MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "max_tokens": st.sampled_from([1, 500, 6_000]),
        "system": st.sampled_from(["Be careful.", [{"type": "text", "text": "Be careful. " * 200}]]),
        "thinking": st.sampled_from([{"type": "enabled", "budget_tokens": 1_024}, {"type": "adaptive"}]),
        "tools": st.just([_TOOL, {"type": "bash_20250124", "name": "bash"}]),
        "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "Read"}]),
        "context_management": st.just({"edits": [{"type": "clear_tool_uses_20250919"}]}),
        "thread": st.just({"type": "continue", "id": "thread_1"}),
        "metadata": st.just({"messages": [{"role": "user", "content": "not this one"}]}),
    },
)


@st.composite
def _requests(draw: Any) -> dict[str, Any]:
    members = {"model": draw(st.sampled_from(["m", "claude-opus-4-6", ""])), "max_tokens": 500, **draw(_MEMBERS)}
    messages = {"messages": draw(histories())}
    return members | messages if draw(st.booleans()) else messages | members


CASES: Final = damaged(spelled(mutated(_requests())))
RULES: Final = RequestRules(MESSAGES, "messages", without(complaints))
