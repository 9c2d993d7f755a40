"""Sealed reasoning that an upstream has refused: it is left out of later turns at once, because a client sends it in
every one, and every one would be refused first. Newer reasoning stays.

Rule: kept in memory only, and bounded; what was forgotten costs one refusal. What one model refuses another may read.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

from proxy.core.conversation.message import Message
from proxy.shell.resources.bounded import BoundedMap
from proxy.wire.request import Request

MAX_KNOWN: Final = 10_000
_HASH_BYTES: Final = 16
"""128 bits, because only its tenant can write another message with the same hash."""

_Key: TypeAlias = tuple[str, str, bytes]
"""Tenant, model, and a message of that model."""


class RefusedSeals:
    """The newest message with refused seals of each conversation; what comes before it was refused with it. Messages
    are looked up from any thread."""

    def __init__(self) -> None:
        self._newest: BoundedMap[_Key, None] = BoundedMap(MAX_KNOWN)

    def note(self, tenant: str, refused: Request, repaired: Request) -> None:
        """Remember the seals of a refused request that its repair has left out."""
        kept = set(map(id, repaired.conversation))
        for message in reversed(refused.conversation.messages):
            if id(message) not in kept and message.unsealed() is not message:
                self._newest.put(_key(tenant, refused.model, message), None)
                return

    def left_out(self, tenant: str, request: Request, known: int = 0) -> Request:
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
