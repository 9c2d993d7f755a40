"""How much of the previous send of a conversation is the prefix of the present one: what a prompt cache can use; and a
name by which people find its turns.

Rule: only for the record; no plan depends on it. It costs one comparison of two tuples while nothing is cut, and one
hash for each conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.core.conversation.message import Message

NAMED_BY_BYTES: Final = 4096
"""Of the first user message, with its length: no two tasks begin alike for so long and have the same length."""


@dataclass(slots=True, weakref_slot=True)
class LastSent:
    """The messages that were last sent upstream in one conversation. Its turns share this object; each records its own
    sends."""

    messages: tuple[Message, ...] | None = field(default=None, repr=False)
    """None before the first send."""
    conversation: str = ""
    """Its name; empty until it is needed."""


def name_of_conversation(tenant: str, messages: Sequence[Message]) -> str:
    """The same for all turns of a conversation, whichever worker gets them: a hash of its first user message. It is
    keyed by the tenant, which is itself a keyed hash, so nobody can find the message by trying."""
    first = next((message.raw for message in messages if message.role == "user"), None)
    if first is None:
        return ""
    said = b"%d " % len(first) + bytes(first[:NAMED_BY_BYTES])
    return hashlib.blake2b(said, key=tenant.encode()[:64], digest_size=6).hexdigest()


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
