"""Results of tools, and what becomes of one of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from proxy.core.conversation import Edit
from proxy.core.text import Direction, ExcerptLimits
from proxy.core.truncation import TruncateToolOutput
from proxy.wire.chat_completions import ChatMessage
from support.strategies import notices, spelled

LIMITS = st.builds(
    ExcerptLimits,
    st.one_of(st.integers(1, 50), st.integers(50, 3_000)),
    st.integers(256, 60_000),
    st.none() | st.integers(1_000, 9_000),
    st.sampled_from(Direction),
)
LONG = "".join(f"{number:05} an ordinary line of a log\n" for number in range(6_000))


def cut(
    content: Any,
    limits: ExcerptLimits | None = None,
    *,
    tool: str = "ls",
    role: str = "tool",
    kept: bool = True,
    **settings_of_step: Any,
) -> list[Edit]:
    """The edits of one message."""
    step = TruncateToolOutput(limits or ExcerptLimits(), **settings_of_step)
    message = ChatMessage.read(spelled({"role": role, "tool_call_id": "c", "content": content}))
    return list(step(3, message, tool, notices(kept=kept)))


def cut_text(text: str, limits: ExcerptLimits | None = None, **settings_of_step: Any) -> Any:
    """Replacement of a text that is cut."""
    (edit,) = cut(text, limits, **settings_of_step)
    return edit.becomes


def response(**members: Any) -> dict[str, Any]:
    """A result in the common shape of tool responses."""
    return {"status": "success", "data": LONG, "text": "done", "stats": {"ms": 1.50}, **members}
