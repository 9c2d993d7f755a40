"""Messages of which either might stand in a conversation's place, without a difference to any other message.

Rule: plans are reused. A clock in a system text changes one message in each turn, and nothing about the others.
"""

from __future__ import annotations

from typing import Final

from proxy.core.conversation.message import SYSTEM_ROLES, Message
from proxy.core.conversation.text_protocol import opening, opens_as_output
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.text.identifiers import names_in

_KNOWN: Final = frozenset({"user", *SYSTEM_ROLES})
_MAX_CHARS: Final = 16_000
"""Of a user message, or of a later system message: a step may have tried to shorten a longer one, where its words
decide."""


def are_interchangeable(one: TrackedMessage, other: TrackedMessage, task_tokens: int) -> bool:
    """Whether nothing that happens to other messages depends on which of two messages stands in a place: while no step
    touches them, only their size, their names and their first words decide. `task_tokens`: what the first user message
    keeps when it has to be cut."""
    if one.edits or other.edits or one.following or one.size != other.size:
        return False
    if not one.is_system_text and (
        one.message.role not in _KNOWN or one.size.chars > _MAX_CHARS or one.size.tokens > task_tokens
    ):
        return False
    return _bearing(one.message) == _bearing(other.message)


def _bearing(message: Message) -> tuple[object, ...]:
    """What of a message, besides its size, decides about others."""
    text = next((text for _, text in message.texts()), "")
    joins = message.is_companion, message.must_stay, message.is_marked, message.answers, message.images
    told = opening(text), opens_as_output(text), frozenset(names_in(message.text()))
    return message.role, *joins, bool(message.calls), *told
