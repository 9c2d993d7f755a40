"""The latest decisions of all replicas, through a server of Redis or Valkey, in the file of each.

Rule: no request ever waits for it, and `/decisions` and the dashboard read only the file: they show less without the
server, and nothing else changes. Each process adds what it has served to one stream and takes from it what others have;
its file holds the last id it has read, so a process that comes back continues there, and one with a new file reads all.

The stream is bounded in entries, in bytes and in age: https://redis.io/docs/latest/develop/data-types/streams/.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from proxy.shell.resources import Recurring
from proxy.shell.resources.state_contact import StateContact, key_of
from proxy.shell.telemetry.history import History, Unsent
from proxy.shell.telemetry.ledger import BEGINNING

EXCHANGE_SECONDS: Final = 2.0
"""Between two exchanges; one without news is one request."""
MAX_ENTRIES: Final = 2_000
"""Approximate length of the stream; at most 16 KB each, so 32 MB."""
KEPT_SECONDS: Final = 7 * 24 * 3600
"""Age of the oldest entry, about."""
BATCH: Final = 200
"""Entries written or read at once."""
ROUNDS: Final = 20
"""Batches of one exchange, each way; the next one is soon."""
USER: Final = "decisions"
"""Who speaks with the server here."""


class SharedDecisions:
    """Tells other replicas what this process has served, and takes what they tell."""

    def __init__(
        self, contact: StateContact, history: History, unsent: Unsent, clock: Callable[[], float] = time.time
    ) -> None:
        """`unsent`: where the history puts new entries. `clock`: Unix time."""
        self._contact = contact
        self._server = contact.server
        self._history = history
        self._unsent = unsent
        self._clock = clock
        self._is_same_server = False
        """Whether the stream is known to be the one that was read before."""
        self._exchanges = Recurring(self._exchange_soon, "shared-decisions")

    @property
    def _key(self) -> str:
        return key_of(self._contact.fleet, "decisions")

    @property
    def problem(self) -> str | None:
        """Why the last exchange failed; None if it did not."""
        return self._contact.problem_of(USER)

    async def start(self) -> None:
        """Exchange from now on."""
        self._exchanges.start()

    async def close(self) -> None:
        """Stop; publish the last entries if the server responds."""
        await self._exchanges.stop()
        if self.problem is None:
            await self._history.write()
            await self.exchange()

    async def exchange(self) -> None:
        """Tell and hear what is new; never raises."""
        await self._contact.speak(USER, self._exchange)
        self._is_same_server = self.problem is None

    async def _exchange_soon(self) -> None:
        await asyncio.sleep(EXCHANGE_SECONDS)
        await self.exchange()

    async def _exchange(self) -> None:
        heard = await self._history.heard()
        if heard is None:
            return  # no file: entries wait to be published
        origin, position = heard
        await self._tell(origin)
        await self._hear(origin, position)

    async def _tell(self, origin: str) -> None:
        for _ in range(ROUNDS):
            entries = self._unsent.take(BATCH)
            if not entries:
                return
            try:
                async with self._server.pipeline(transaction=False) as pipe:
                    for entry in entries:
                        pipe.xadd(self._key, {"by": origin, "what": entry}, maxlen=MAX_ENTRIES)
                    pipe.xtrim(self._key, minid=f"{int((self._clock() - KEPT_SECONDS) * 1000)}-0")
                    pipe.expire(self._key, KEPT_SECONDS)
                    await pipe.execute()
            except BaseException:
                self._unsent.give_back(entries)  # replicas that have some of them recognise their ids
                raise

    async def _hear(self, origin: str, position: str) -> None:
        if not self._is_same_server:
            position = await self._back_to(await self._last(), position)
        for _ in range(ROUNDS):
            found = _entries_in(await self._server.xrange(self._key, f"({position}", "+", BATCH))
            if not found:
                return
            entries = [one.entry for one in found if one.origin != origin.encode()]
            reached = await self._history.take(entries, position, found[-1].place)
            if reached is None:
                return
            position = reached

    async def _last(self) -> str:
        found = _entries_in(await self._server.xrevrange(self._key, count=1))
        return found[0].place if found else BEGINNING

    async def _back_to(self, last: str, position: str) -> str:
        """A server that has lost its memory numbers by its clock again, which may be slow."""
        if _order(last) >= _order(position):
            return position
        return await self._history.take([], position, last) or position


class _StreamEntry(NamedTuple):
    """An entry of the stream."""

    place: str
    origin: bytes
    """The name of the file that it comes from."""
    entry: bytes


def _entries_in(found: Sequence[Any] | None) -> list[_StreamEntry]:
    """Raw stream entries: an id, and untrusted fields."""
    return [
        _StreamEntry(number.decode(), fields.get(b"by", b""), fields.get(b"what", b""))
        for number, fields in found or ()
    ]


def _order(place: str) -> tuple[int, int]:
    """Entries are numbered by the millisecond and within it.

    >>> _order("1700000000000-10") > _order("1700000000000-9")
    True
    """
    milliseconds, _, number = place.partition("-")
    return int(milliseconds), int(number)
