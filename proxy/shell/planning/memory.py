"""What is known of running conversations, so that each turn needs work only on its new messages.

Rule: memory changes only how long the work takes. The earlier request of a conversation is found by comparing bytes,
among those of the same tenant and wire (`whose`); what was forgotten is computed again with the same result.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from proxy.shell.resources.bounded import BoundedMap
from proxy.wire.request import Request

HEAD_BYTES: Final = 256
"""Requests that start with the same bytes are kept together; agents of one kind share more than that."""
MAX_TOGETHER: Final = 64
"""Conversations with the same head that are remembered; a look-up may compare with all of them."""
NEARLY_ALL: Final = 0.9
"""Share of a body. A conversation that makes up so much of the body is taken as the right one: comparing the others as
well takes 0.1 ms if their bodies are not in the CPU caches."""
MAX_TAKEN_BACK: Final = 4
"""Messages at the end that a client may change or take back while it continues the same conversation."""

Knowledge = TypeVar("Knowledge")
_Head: TypeAlias = tuple[Hashable, bytes]
"""Whose request it is, and how its body begins."""


@dataclass(frozen=True, slots=True, eq=False)
class Remembered(Generic[Knowledge]):
    """A request, and what was computed for it."""

    request: Request
    knowledge: Knowledge


@dataclass(frozen=True, slots=True)
class Match(Generic[Knowledge]):
    """A remembered request whose first messages are also the first of a new body."""

    remembered: Remembered[Knowledge]
    shared_messages: int

    @property
    def is_continued(self) -> bool:
        """Whether the new body continues that conversation, and is not another one with the same beginning."""
        ends = self.remembered.request.ends
        # Counted in items of the list: if one item makes several messages, all of them are known or none.
        shared, taken_back = len(set(ends[: self.shared_messages])), len(set(ends[self.shared_messages :]))
        return taken_back <= MAX_TAKEN_BACK and shared > (shared + taken_back) // 2

    @property
    def shared_bytes(self) -> int:
        """How many bytes of the new body are known."""
        return self.remembered.request.ends[self.shared_messages - 1]


class ConversationMemory(Generic[Knowledge]):
    """The last request of each conversation; the least recently used are dropped when all together hold more than
    `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._kept: BoundedMap[Remembered[Knowledge], _Head] = BoundedMap(max_bytes=max_bytes)
        self._heads: dict[_Head, list[Remembered[Knowledge]]] = {}
        """The kept requests, the newest of each head last."""

    def find(self, whose: Hashable, body: bytes) -> Match[Knowledge] | None:
        """The remembered request that shares the most messages with this body, or the newest one that the body
        continues and that makes up nearly all of it; None if none shares any."""
        best: Match[Knowledge] | None = None
        for remembered in reversed(self._heads.get((whose, body[:HEAD_BYTES]), ())):
            # Agents of one kind begin alike: most conversations are rejected at their first message that differs.
            shared = remembered.request.shared_messages(body, best.shared_messages if best else 0)
            if shared:
                best = Match(remembered, shared)
                if best.is_continued and best.shared_bytes >= NEARLY_ALL * len(body):
                    return best
        return best

    def remember(
        self,
        whose: Hashable,
        request: Request,
        knowledge: Knowledge,
        instead_of: Match[Knowledge] | None,
        held_bytes: int,
    ) -> None:
        """Keep a request in place of the one that it continues; request and knowledge together take `held_bytes`."""
        key = (whose, request.body[:HEAD_BYTES])
        if instead_of is not None and instead_of.is_continued:
            self._forget(instead_of.remembered)
        newest = Remembered(request, knowledge)
        together = self._heads.setdefault(key, [])
        together.append(newest)
        gone = self._kept.put(newest, key, held_bytes)
        if len(together) > MAX_TOGETHER:
            self._forget(together[0])
        for forgotten, head in gone:
            self._strike(forgotten, head)

    def _forget(self, remembered: Remembered[Knowledge]) -> None:
        head = self._kept.pop(remembered)
        if head is not None:
            self._strike(remembered, head)

    def _strike(self, remembered: Remembered[Knowledge], head: _Head) -> None:
        together = self._heads[head]
        together.remove(remembered)
        if not together:
            del self._heads[head]
