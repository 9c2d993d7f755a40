"""Requests of the Responses API, with whatever clients put into them."""

from __future__ import annotations

from typing import Any, Final

from fuzz.mutations import damaged, mutated, spelled
from fuzz.requests import RequestRules, without
from hypothesis import strategies as st
from support.responses_items import inputs
from support.valid_responses import complaints

from proxy.wire.responses import RESPONSES

_MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "gpt-5.1-codex", ""]),
        "stream": st.booleans(),
        "store": st.booleans(),
        "background": st.booleans(),
        "max_output_tokens": st.sampled_from([1, 500, 6_000]),
        "instructions": st.sampled_from(["Be careful.", "Be careful. " * 200]),
        "tools": st.just([{"type": "function", "name": "read_file", "parameters": {}}, {"type": "web_search"}]),
        "tool_choice": st.sampled_from(["auto", "required", {"type": "function", "name": "read_file"}]),
        "previous_response_id": st.just("resp_1"),
        "conversation": st.sampled_from(["conv_1", {"id": "conv_1"}]),
        "truncation": st.sampled_from(["auto", "disabled"]),
        "metadata": st.just({"input": [{"role": "user", "content": "not this one"}]}),
    },
)
_TRIGGER: Final = {"type": "compaction_trigger"}


@st.composite
def _requests(draw: Any) -> dict[str, Any]:
    items = draw(inputs()) + [_TRIGGER] * (draw(st.integers(0, 9)) == 0)
    given = {"input": "go on" if draw(st.integers(0, 9)) == 0 else items}
    members = {"model": "m", **draw(_MEMBERS)}
    return members | given if draw(st.booleans()) else given | members


CASES: Final = damaged(spelled(mutated(_requests())))
RULES: Final = RequestRules(RESPONSES, "input", without(complaints))
