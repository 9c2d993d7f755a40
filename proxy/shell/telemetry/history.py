"""The latest decisions of all workers, for `/decisions` and the dashboard: kept in a file that outlives the process, or
in memory where no file is wanted.

Rule: no request waits for it, and none fails because of it. A request pays for one entry in a queue; a thread writes
them, once a second. If the file is locked, broken or cannot be written, the log says so, what waits to be written is
shown, and the file is tried again later; one that was removed is made again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from proxy.core.text import jsontext
from proxy.shell.resources import DaemonThreads, logger
from proxy.shell.telemetry.entries import (
    Detail,
    Finished,
    Running,
    described_running,
    running_detail,
)
from proxy.shell.telemetry.ledger import MAX_DECISIONS, Ledger, Wanted
from proxy.shell.telemetry.record import RequestRecord

FILE_NAME: Final = "decisions-3.db"
"""In the data folder; the number is that of the tables' shape."""
WRITE_SECONDS: Final = 1.0
"""Between two writes."""
MAX_WAITING: Final = 2_000
"""Requests that wait to be written; while a file is locked for long, the oldest are dropped."""
RETRY_SECONDS: Final = 30.0
"""Delay from a failure of the file to the next try."""
MAX_RUNNING: Final = 50
"""Requests under way that one worker shows to the others."""
_OWN_SUMS: Final = ("requests", "fitted", "survived", "tokens_saved")

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class History:
    """Remembers finished requests; one for each process."""

    def __init__(self, path: Path, max_rows: int, clock: Callable[[], float] = time.time) -> None:
        """`max_rows` 0: in memory, the latest `MAX_DECISIONS`."""
        self._path = path
        self._clock = clock
        """Unix time."""
        self.max_rows = max_rows
        self.started = clock()
        self.under_way: dict[int, RequestRecord] = {}
        """Running requests, by identity; a client may use an id twice."""
        self._waiting: deque[Finished] = deque()
        self._dropped = 0
        """Requests that were dropped since the file was last written."""
        self._threads = DaemonThreads(1, "history")
        self._ledger: Ledger | None = None
        self._retry_at = float("-inf")
        self._had_running = False
        self.problem: str | None = None
        """Why the file is not used; None if it is, or is not wanted."""
        self._own_sums: Counter[str] = Counter()
        self.worker = f"{os.uname().nodename if hasattr(os, 'uname') else ''}:{os.getpid()}"

    @property
    def is_kept(self) -> bool:
        """Whether decisions are written to a file."""
        return self.max_rows > 0

    def add(self, finished: Finished) -> None:
        """A request is finished."""
        self._waiting.append(finished)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    async def write_for_ever(self) -> None:
        """Write what is waiting, every second."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write what is waiting, and what is under way."""
        running = self._running_here()
        if self._waiting or running or self._had_running:
            self._had_running = bool(running)
            await self._run(self._write, running)

    async def close(self) -> None:
        """Write what is waiting and close the file; it is opened again when there is more."""
        with contextlib.suppress(RuntimeError):  # the threads are gone: the process ends
            await self.write()
            await self._run(self._close)

    async def ask(
        self, question: Callable[Concatenate[Ledger, _Given], _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Call a query of the ledger in the thread: `ask(Ledger.count, wanted)`."""
        return await self._run(self._answer, lambda ledger: question(ledger, *given, **named))

    async def find(self, request_id: str) -> Detail | None:
        """The newest request of this id, message by message."""
        here = next((one for one in self.under_way.values() if one.request_id == request_id), None)
        if here is not None:
            return running_detail(here)
        return await self.ask(Ledger.find, request_id)

    async def sums(self) -> Mapping[str, int]:
        """Sums over the requests that this process has finished, by name; no other process's, as the file has them."""
        await self.ask(Ledger.count, Wanted(limit=1))  # which writes what is waiting
        return {name: int(self._own_sums[name]) for name in _OWN_SUMS}

    async def running(self) -> list[Running]:
        """Requests under way, of this worker and of the others."""
        now = self._clock()
        return self._running_here() + await self.ask(Ledger.running, self.worker, now)

    def _running_here(self) -> list[Running]:
        return [described_running(one) for one in islice(reversed(list(self.under_way.values())), MAX_RUNNING)]

    async def _run(self, work: Callable[..., _Result], *given: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    # In the thread -----------------------------------------------------------------------------------------------

    def _write(self, running: Iterable[Running]) -> None:
        ledger = self._opened()
        if ledger is None:
            return
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            entries = [one.entry() for one in taken]
            ledger.add(entries, self.worker, jsontext.dump(list(running)), self._clock())
        except (sqlite3.Error, OSError) as error:
            self._waiting.extendleft(reversed(taken))
            self._drop_oldest()
            self._fail(error)
            return
        for entry in entries:
            self._own_sums.update({name: int(entry.sums[name]) for name in _OWN_SUMS})
        if self._dropped:
            logger().warning("decisions_dropped", file=str(self._path), requests=self._dropped)
            self._dropped = 0

    def _answer(self, ask: Callable[[Ledger], _Result]) -> _Result:
        self._opened()  # puts a broken file aside
        if self._waiting:  # a query sees what was finished before it
            self._write(self._running_here())
        ledger = self._opened()
        if ledger is not None:
            try:
                return ask(ledger)
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        with contextlib.closing(Ledger(None, MAX_DECISIONS, self._clock)) as stand_in:
            waiting = list(self._waiting.copy())[-MAX_DECISIONS:]
            stand_in.add([one.entry() for one in waiting], now=self._clock())
            return ask(stand_in)

    def _opened(self) -> Ledger | None:
        """The file, or memory if none is wanted; None while the file cannot be used."""
        if self._ledger is not None and self._ledger.is_file is not self.is_kept:
            self._close()
        if self._ledger is not None and not self._ledger.is_in_place():
            self._fail(FileNotFoundError(errno.ENOENT, "it was removed while it was in use"))
            self._retry_at = float("-inf")
        if self._ledger is None and self._clock() >= self._retry_at:
            try:
                self._ledger = Ledger(self._path if self.is_kept else None, self.max_rows or MAX_DECISIONS, self._clock)
                self.problem = None
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        if self._ledger is not None and self.is_kept:
            self._ledger.max_rows = self.max_rows
        return self._ledger

    def _fail(self, error: Exception) -> None:
        self._close()
        self._retry_at = self._clock() + RETRY_SECONDS
        problem = error.strerror if isinstance(error, OSError) else str(error)
        self.problem = problem or type(error).__name__
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with contextlib.suppress(OSError):  # it is no database any more: the next try makes another
                self._path.replace(self._path.with_suffix(".broken"))
            self._retry_at = float("-inf")
        logger().warning("decisions_not_kept", file=str(self._path), reason=self.problem, dropped=self._dropped)

    def _close(self) -> None:
        if self._ledger is not None:
            with contextlib.suppress(sqlite3.Error):
                self._ledger.close()
        self._ledger = None
