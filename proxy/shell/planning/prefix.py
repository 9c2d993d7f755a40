"""How much of the previous send of a conversation is the prefix of the present one: what a prompt cache can use.

Rule: only a measure; no plan depends on it. It costs one comparison of two tuples while nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.conversation.message import Message


@dataclass(slots=True)
class LastSent:
    """The messages that were last sent upstream in one conversation. Its turns share this object; each records its own
    sends."""

    messages: tuple[Message, ...] | None = field(default=None, repr=False)
    """None before the first send."""


def share_kept(before: tuple[Message, ...], now: tuple[Message, ...]) -> float:
    """The share of the bytes of `before` that is in messages with which `now` also begins; a changed message counts as
    lost."""
    if now[: len(before)] == before:  # immediate for messages that are the same objects, like those of a known turn
        return 1.0
    kept = 0
    for earlier, later in zip(before, now, strict=False):
        if earlier != later:
            break
        kept += len(earlier.raw)
    return kept / sum([len(message.raw) for message in before])
