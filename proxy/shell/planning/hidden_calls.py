"""Hidden calls on their way into the store and back: what a mixed response hid is kept before the client has received
its end, and is put back when the client returns, with its calls or with the name of a response that its upstream
keeps.

Rule: the store decides what was hidden, so a restart or another replica changes nothing; the memory of this process
saves look-ups. It also remembers that nothing was hidden, which is the case for almost every call, but not that the
store gave no answer: the next turn asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from proxy.core.conversation import Message
from proxy.core.retrieval_tool import (
    HISTORY_BYTES,
    Continuation,
    HiddenToolCalls,
    beginning,
    extended,
    mark_in,
    mark_of_name,
)
from proxy.errors import ArtifactNotFound, ProxyError
from proxy.shell.artifacts import ArtifactReader, ArtifactStore
from proxy.shell.resources import BoundedMap
from proxy.wire import Request, Wire

Hidden: TypeAlias = HiddenToolCalls | Continuation
"""Calls hidden in one response, or the response to continue from."""

MAX_KNOWN: Final = 10_000
"""Messages and names of responses for which it is remembered what they hide."""
MAX_KNOWN_BYTES: Final = 16 * 1024 * 1024
"""Limit for the remembered calls and results."""
MAX_ASKED: Final = 200
"""Store look-ups for one request, newest messages first: after a restart in the middle of a long run, one request must
not wait for thousands of them. Calls and results hidden in older messages are left out."""


class HiddenCallMemory:
    """Remembers what is hidden in the messages of each tenant."""

    def __init__(self, store: ArtifactStore, reader: ArtifactReader) -> None:
        self._store = store
        self._reader = reader
        self._known: BoundedMap[tuple[str, str], Hidden | None] = BoundedMap(MAX_KNOWN, MAX_KNOWN_BYTES)
        """Keyed by tenant and mark."""

    async def keep(self, tenant: str, hidden: Hidden) -> bool:
        """Keep what a response hid; returns whether that was possible.

        What is then in the store is put back later: if the same conversation ran twice, the record of the first
        response counts, because its next turn has been sent with it.
        """
        if await self._store.keep([hidden.artifact()], tenant):
            return False
        await self._ask(tenant, hidden.mark)
        return True

    def completed(self, tenant: str, wire: Wire, request: Request) -> tuple[Request, tuple[str, ...]]:
        """A request with the known hidden calls put back into its new messages, those that its history does not cover
        yet, and with the results that the response waits for from which it continues; and the marks of new messages,
        and of that response, about which nothing is known."""
        places: dict[int, Sequence[Message]] = {}
        unknown: list[str] = []
        held = wire.continues(request)
        waiting = mark_of_name(tenant, held) if held else ""
        if waiting and isinstance(found := self._known.get((tenant, waiting)), Continuation):
            # The history does not cover these results: clients do not know them, and a store may have lost them.
            request = wire.continued_from(request, found.name, found.results)
            request = replace(request, history=beginning(tenant, held) * len(found.results))
        histories = [request.history]
        history = request.history[-HISTORY_BYTES:] or beginning(tenant, held)
        read = request.read_messages
        for index, message in enumerate(request.conversation.messages[read:], start=read):
            mark = mark_in(history, message)
            if mark is not None and (tenant, mark) not in self._known:
                unknown.append(mark)
            elif mark is not None and isinstance(hidden := self._known.get((tenant, mark)), HiddenToolCalls):
                places[index] = hidden.put_back(message)
            history = extended(history, message)
            histories.append(history)
        if waiting and (tenant, waiting) not in self._known:
            unknown.append(waiting)
        return request.completed(places, b"".join(histories)), tuple(unknown)

    async def look_up(self, tenant: str, marks: Sequence[str]) -> bool:
        """Ask the store what is hidden under these marks; returns whether anything is. Those for which it gives no
        answer stay unknown."""
        for mark in marks[:-MAX_ASKED]:
            self._note(tenant, mark, None)
        return any(await asyncio.gather(*(self._ask(tenant, mark) for mark in marks[-MAX_ASKED:])))

    def unknown(self, tenant: str, marks: Sequence[str]) -> tuple[str, ...]:
        """The marks about which nothing is known."""
        return tuple([mark for mark in marks if (tenant, mark) not in self._known])

    async def _ask(self, tenant: str, mark: str) -> bool:
        """Whether anything is hidden under this mark; False if the store gives no answer, too."""
        try:
            stored = await self._reader.find(HiddenToolCalls.name_of(mark), tenant)
            content = await self._reader.piece(stored, 0, stored.size)
        except ArtifactNotFound:
            hidden: Hidden | None = None
        except ProxyError:
            return False
        else:
            hidden = HiddenToolCalls.read(content, mark) or Continuation.read(content, mark)
        self._note(tenant, mark, hidden)
        return hidden is not None

    def _note(self, tenant: str, mark: str, hidden: Hidden | None) -> None:
        self._known.put((tenant, mark), hidden, hidden.held_bytes if hidden is not None else 0)
