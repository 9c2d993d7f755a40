"""How much of what was sent last in a conversation stands at the head of what is sent now: what a prompt cache can use.

Rule: a measure and nothing else; no plan depends on it. It costs one comparison of two tuples while nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.conversation.message import Message


@dataclass(slots=True)
class LastSent:
    """The messages that went upstream last in one conversation. Its turns share it, each notes its own sends."""

    messages: tuple[Message, ...] | None = field(default=None, repr=False)
    """None before the first send."""


def share_kept(before: tuple[Message, ...], now: tuple[Message, ...]) -> float:
    """The share of the bytes of `before` in messages with which `now` begins, too; a changed message counts as lost."""
    if now[: len(before)] == before:  # at once for messages that are the same objects, as those of a known turn are
        return 1.0
    kept = 0
    for earlier, later in zip(before, now, strict=False):
        if earlier != later:
            break
        kept += len(earlier.raw)
    return kept / sum([len(message.raw) for message in before])
