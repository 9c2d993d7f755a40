"""The latest decisions of all workers, for `/decisions` and the dashboard: kept in a file that outlives the process.

Rule: no request waits for it, and none fails because of it. A request pays for one entry in a queue; a thread writes
them, once a second. If the file is locked, broken or cannot be written, the log says so, what this process remembers
stands in for it, and the file is tried again later; one that was removed is made again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from proxy.core.text import jsontext
from proxy.shell.resources.logs import logger
from proxy.shell.resources.threads import DaemonThreads
from proxy.shell.telemetry.ledger import Entry, Ledger, Wanted
from proxy.shell.telemetry.parcels import Outbox, packed, unpacked
from proxy.shell.telemetry.recent import RecentDecisions, Recorded

FILE_NAME: Final = "decisions-2.db"
"""In the data folder; the number is that of the tables' shape."""
WRITE_SECONDS: Final = 1.0
"""Between two writes."""
MAX_WAITING: Final = 2_000
"""Requests that wait to be written; a file that was locked for long misses the oldest."""
RETRY_SECONDS: Final = 30.0
"""From a failure of the file to the next try."""
MAX_BLOCKS: Final = 2_000
"""Messages of one request that are kept: the last ones."""
MAX_RUNNING: Final = 50
"""Requests under way that one worker shows to the others."""

_Result = TypeVar("_Result")


class History:
    """Remembers finished requests; one for each process."""

    def __init__(
        self,
        recent: RecentDecisions,
        path: Path,
        max_rows: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_rows` 0: no file, only what `recent` remembers."""
        self._recent = recent
        self._path = path
        self._clock = clock
        """Unix time."""
        self.max_rows = max_rows
        self.outbox: Outbox | None = None
        """For what other replicas are to be told; None: nothing."""
        self._waiting: deque[Recorded] = deque(maxlen=MAX_WAITING)
        self._threads = DaemonThreads(1, "history")
        self._file: Ledger | None = None
        self._memory: Ledger | None = None
        self._in_memory = 0
        """How many of those that `recent` was ever given are in memory's ledger."""
        self._retry_at = float("-inf")
        self._had_running = False
        self.problem: str | None = None
        """Why the file is not used; None if it is, or is not wanted."""
        self.worker = f"{os.uname().nodename if hasattr(os, 'uname') else ''}:{os.getpid()}"

    @property
    def is_kept(self) -> bool:
        """Whether decisions are written to a file."""
        return self.max_rows > 0

    def add(self, recorded: Recorded) -> None:
        """A request is finished."""
        if self.max_rows:
            self._waiting.append(recorded)

    async def write_for_ever(self) -> None:
        """Write what is waiting, every second."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write what is waiting, and what is under way."""
        running = self._recent.running(MAX_RUNNING) if self.max_rows else []
        if self._waiting or running or self._had_running:
            self._had_running = bool(running)
            await self._run(self._write, running)

    async def close(self) -> None:
        """Write what is waiting and close the file; it is opened again when there is more."""
        with contextlib.suppress(RuntimeError):  # the threads are gone: the process ends
            await self.write()
            await self._run(self._close)

    async def heard(self) -> tuple[str, str] | None:
        """The name of the file among those of other replicas, and up to where it has what they have told; None: there
        is no file at the moment."""
        return await self._run(self._on_file, lambda ledger: (ledger.origin(), ledger.position()))

    async def take(self, parcels: Sequence[bytes], since: str, until: str) -> str | None:
        """Add what other replicas have told between two positions. Returns up to where the file has it now, which
        another worker may have done, or None."""

        def work(ledger: Ledger) -> str:
            entries = [entry for entry in map(unpacked, parcels) if entry is not None]
            return ledger.take(entries, since, until, self._clock())

        return await self._run(self._on_file, work)

    async def page(self, wanted: Wanted) -> list[dict[str, Any]]:
        """Summaries, each with its `id`, the newest first."""
        return await self._asked(lambda ledger: ledger.page(wanted))

    async def count(self, wanted: Wanted) -> int:
        """How many there are of a kind."""
        return await self._asked(lambda ledger: ledger.count(wanted))

    async def newest(self) -> int:
        """The place of the request that came last."""
        return await self._asked(lambda ledger: ledger.newest())

    async def news(self, after: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """Requests that have come since a place, the newest first; and the place of the last."""
        return await self._asked(lambda ledger: ledger.news(after, limit))

    async def find(self, request_id: str) -> dict[str, Any] | None:
        """The newest request of this id, message by message: from memory, where all messages are, else from the file,
        which has those of requests that were changed."""
        here = self._recent.find_running(request_id)
        if here is not None:
            return here
        recorded = self._recent.find(request_id)
        if recorded is not None:
            return recorded.detail()
        return await self._asked(lambda ledger: ledger.find(request_id))

    async def conversations(self, limit: int) -> list[dict[str, Any]]:
        """The latest conversations with their turns."""
        return await self._asked(lambda ledger: ledger.conversations(limit))

    async def slots(self, since: float, *by: str) -> list[dict[str, Any]]:
        """The sums since a time, by some of `slot`, `model` and `upstream`."""
        return await self._asked(lambda ledger: ledger.slots(since, by))

    async def first_bytes(self, upstream: str, limit: int) -> list[float]:
        """The latest waits for an upstream's first byte, in milliseconds, ascending."""
        return await self._asked(lambda ledger: ledger.first_bytes(upstream, limit))

    async def running(self) -> list[dict[str, Any]]:
        """Requests under way, of this worker and of the others."""
        here, now = self._recent.running(MAX_RUNNING), self._clock()
        if not self.max_rows:
            return here
        return here + await self._asked(lambda ledger: ledger.running(self.worker, now))

    async def _asked(self, ask: Callable[[Ledger], _Result]) -> _Result:
        added = self._recent.added
        new = list(self._recent.newest(added - self._in_memory))  # here, as the loop changes what it is taken from
        return await self._run(self._answer, ask, new, added)

    async def _run(self, work: Callable[..., _Result], *given: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    # In the thread -----------------------------------------------------------------------------------------------

    def _write(self, running: Iterable[Mapping[str, Any]]) -> None:
        ledger = self._opened()
        if ledger is None:
            return
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            entries = [entry_of(one) for one in taken]
            numbers = ledger.add(entries, self.worker, jsontext.dump(list(running)), self._clock())
        except (sqlite3.Error, OSError) as error:
            self._waiting.extendleft(reversed(taken[-(MAX_WAITING - len(self._waiting)) :]))
            self._fail(error)
            return
        if self.outbox is not None:
            parcels = map(packed, entries, numbers)
            self.outbox.put(parcel for parcel in parcels if parcel is not None)

    def _on_file(self, work: Callable[[Ledger], _Result]) -> _Result | None:
        ledger = self._opened()
        try:
            return None if ledger is None else work(ledger)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            return None

    def _answer(self, ask: Callable[[Ledger], _Result], new: list[Recorded], added: int) -> _Result:
        if self.max_rows:
            self._write_waiting()
        if self._file is not None and self.max_rows:
            try:
                return ask(self._file)
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        if self._memory is None:
            self._memory = Ledger(None, self._recent.max_decisions)
        if added > self._in_memory:
            new = new[: added - self._in_memory]  # others may have asked meanwhile
            self._memory.add([entry_of(one) for one in reversed(new)], now=self._clock())
            self._in_memory = added
        return ask(self._memory)

    def _write_waiting(self) -> None:
        """What was finished before somebody looks is there when they do."""
        ledger = self._opened()
        if ledger is not None and self._waiting:
            self._write(self._recent.running(MAX_RUNNING))

    def _opened(self) -> Ledger | None:
        if self._file is not None and not self._file.is_in_place():
            self._fail(FileNotFoundError(errno.ENOENT, "it was removed while it was in use"))
            self._retry_at = float("-inf")
        if self._file is None and self.max_rows and self._clock() >= self._retry_at:
            try:
                self._file = Ledger(self._path, self.max_rows)
                self.problem = None
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        if self._file is not None:
            self._file.max_rows = self.max_rows
        return self._file

    def _fail(self, error: Exception) -> None:
        self._close()
        self._retry_at = self._clock() + RETRY_SECONDS
        said = error.strerror if isinstance(error, OSError) else str(error)
        self.problem = said or type(error).__name__
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with contextlib.suppress(OSError):  # it is no database any more: the next try makes another
                self._path.replace(self._path.with_suffix(".broken"))
            self._retry_at = float("-inf")
        logger().warning("decisions_not_kept", file=str(self._path), reason=self.problem)

    def _close(self) -> None:
        for ledger in (self._file, self._memory):
            if ledger is not None:
                with contextlib.suppress(sqlite3.Error):
                    ledger.close()
        self._file = self._memory = None
        self._in_memory = 0


def entry_of(recorded: Recorded) -> Entry:
    """What is kept of a finished request: of one that nothing was done to, the line but not its messages."""
    line, blocks = recorded.line, None
    if line.get("edits"):
        blocks = recorded.described_blocks()[-MAX_BLOCKS:]
    before = line["tokens_before"] if recorded.sent_tokens is not None else 0
    is_timed = "first_byte_ms" in line
    sums = {
        "requests": 1,
        "failed": has_failed(line),
        "edited": bool(line.get("edits")),
        "overflows": recorded.survived is not None,
        "survived": recorded.survived is True,
        "tokens_before": before,
        "tokens_sent": recorded.sent_tokens or 0,
        "prompt_tokens": line.get("prompt_tokens", 0),
        "cached_tokens": min(line.get("cached_tokens", 0), line.get("prompt_tokens", 0)),
        "reply_tokens": line.get("reply_tokens", 0),
        "waited": is_timed,
        "first_byte_ms": line.get("first_byte_ms", 0.0),
        "followed": "prefix_kept" in line,
        "prefix_kept": line.get("prefix_kept", 0.0),
    }
    return Entry(recorded.ended, recorded.summary(), blocks, sums, recorded.trouble)


def has_failed(line: Mapping[str, Any]) -> bool:
    """Whether the upstream or the proxy failed: a client that left has not, nor has one that asked for something
    wrong."""
    outcome, status = line["outcome"], line.get("status", 0)
    return (outcome not in ("answered", "client_left") and status not in range(400, 500)) or status >= 500
