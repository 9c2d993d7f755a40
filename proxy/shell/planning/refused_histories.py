"""Histories that an upstream has refused, for sealed reasoning or calls without results, and conversations that it
holds and that no longer fit its window: later turns are healed at once, or the upstream is asked at once to leave out
the oldest items, because every one would be refused first. Newer reasoning stays.

Rule: kept in memory only, and bounded; what was forgotten costs one refusal. What one model refuses another may read.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

from proxy.core.conversation.exchange import unpaired
from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.overflow import VerdictKind
from proxy.core.overflow.retry import Outcome
from proxy.shell.planning.planned import Planned
from proxy.shell.resources.bounded import BoundedMap
from proxy.wire.request import Request

MAX_KNOWN: Final = 10_000
MAX_NAME_CHARACTERS: Final = 500
"""A longer name is not kept."""
_HASH_BYTES: Final = 16
"""128 bits, because only its tenant can write another message with the same hash."""

_Key: TypeAlias = tuple[str, str, bytes]
"""Tenant, model, and a message of that model."""


class RefusedHistories:
    """The newest message with refused seals of each conversation, as what comes before it was refused with it, and the
    messages that did not pair up. They are looked up from any thread."""

    def __init__(self) -> None:
        self._newest: BoundedMap[_Key, None] = BoundedMap(MAX_KNOWN)
        self._unpaired: BoundedMap[tuple[str, str, int], None] = BoundedMap(MAX_KNOWN)

    def note_seals(self, tenant: str, refused: Request, repaired: Request) -> None:
        """Remember the seals of a refused request that its repair has left out."""
        kept = set(map(id, repaired.conversation))
        for message in reversed(refused.conversation.messages):
            if id(message) not in kept and message.unsealed() is not message:
                self._newest.put(_key(tenant, refused.model, message), None)
                return

    def note_unpaired(self, tenant: str, refused: Request, *, may_repeat: bool) -> None:
        """Remember a request whose calls and results do not pair up."""
        messages = refused.conversation.messages
        found = unpaired(messages, may_repeat=may_repeat)
        for index in (*found.orphans, *(one.message for one in found.unanswered)):
            self._unpaired.put((tenant, refused.model, hash(messages[index].unmarked())), None)

    def has_unpaired(self, tenant: str, request: Request) -> bool:
        """Whether a message that did not pair up is in the request."""
        if not self._unpaired:
            return False
        found = (one for one in request.conversation.messages if one.calls or one.role in TOOL_ROLES)
        return any((tenant, request.model, hash(one.unmarked())) in self._unpaired for one in found)

    def without_seals(self, tenant: str, request: Request, known: int = 0) -> Request:
        """The request without the seals that were refused; nothing is looked up for its first `known` messages."""
        if not self._newest:
            return request
        messages = request.conversation.messages
        for index in range(len(messages) - 1, known - 1, -1):
            message = messages[index]
            if message.role == "assistant" and _key(tenant, request.model, message) in self._newest:
                return request.unsealed(index + 1)
        return request


def _key(tenant: str, model: str, message: Message) -> _Key:
    return tenant, model, hashlib.blake2b(message.unmarked(), digest_size=_HASH_BYTES).digest()


class HeldConversations:
    """Conversations held by an upstream that have overflowed, per tenant."""

    def __init__(self) -> None:
        self._overflowed: BoundedMap[tuple[str, str], None] = BoundedMap(MAX_KNOWN)

    def planned(self, planned: Planned, tenant: str) -> Planned:
        """The plan, which asks the upstream if this conversation is known to have overflowed."""
        if not self._overflowed or (tenant, planned.wire.continues(planned.request)) not in self._overflowed:
            return planned
        return planned.left_to_the_upstream() or planned

    def note(self, sent: Planned, outcome: Outcome, evidence: bytes, tenant: str) -> None:
        """Remember a conversation whose upstream was asked and answered. `evidence`: the beginning of its response, by
        whose name the next turn may continue."""
        if not sent.members or outcome.status >= 400 or outcome.verdict.kind is not VerdictKind.ACCEPTED:
            return
        for name in (sent.wire.continues(sent.request), sent.wire.named_in(sent.request, evidence)):
            if 0 < len(name) <= MAX_NAME_CHARACTERS:
                self._overflowed.put((tenant, name), None)
