"""The latest requests of all workers, for `/decisions` and the dashboard: kept in a file that outlives the process, or
in memory where no file is wanted.

Rule: no request waits for it, and none fails because of it. A request pays for one entry in a queue; a thread writes
them, once a second. If the file is locked, broken or cannot be written, the log says so, what waits to be written is
shown, and the file is tried again later; one that was removed is made again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import os
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from proxy.shell.resources import DaemonThreads, logger
from proxy.shell.telemetry.record import Block, Messages, RequestOutcome, RequestRecord
from proxy.shell.telemetry.table import MAX_DECISIONS, Finished, Table

FILE_NAME: Final = "decisions-4.db"
"""In the data folder; the number is that of the table's shape."""
WRITE_SECONDS: Final = 1.0
"""Between two writes."""
MAX_WAITING: Final = 2_000
"""Requests that wait to be written; while a file is locked for long, the oldest are dropped."""
RETRY_SECONDS: Final = 30.0
"""Delay from a failure of the file to the next try."""
MAX_RUNNING: Final = 50
"""Requests under way that one worker shows to the others."""
MAX_BLOCKS: Final = 2_000
"""Messages of one request that are kept: the last ones."""
MAX_UNCHANGED_BLOCKS: Final = 50
"""Messages of a request that nothing was done to: more would cost more CPU than the rest of its row."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class Ended(NamedTuple):
    """A request that is finished and not yet written: nothing that holds its body."""

    at: float
    """Unix time."""
    record: Mapping[str, Any]
    """The fields of its record."""
    messages: Messages

    def row(self) -> Finished:
        """What is written of it."""
        ended = datetime.datetime.fromtimestamp(self.at, datetime.UTC).isoformat(timespec="milliseconds")
        is_worth_it = bool(self.record.get("edits")) or len(self.messages.reports) <= MAX_UNCHANGED_BLOCKS
        blocks = self.messages.blocks[-MAX_BLOCKS:] if is_worth_it else None
        record = RequestRecord.of({**self.record, "ended": ended, **self.messages.figures()})
        return Finished(self.at, record, blocks)


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
        self._waiting: deque[Ended] = deque()
        self._dropped = 0
        """Requests that were dropped since the file was last written."""
        self._threads = DaemonThreads(1, "history")
        self._table: Table | None = None
        self._retry_at = float("-inf")
        self._had_running = False
        self.problem: str | None = None
        """Why the file is not used; None if it is, or is not wanted."""
        self._served: Counter[str] = Counter(requests=0, fitted=0, cured=0, tokens_saved=0)
        self.worker = f"{os.uname().nodename if hasattr(os, 'uname') else ''}:{os.getpid()}"

    @property
    def is_kept(self) -> bool:
        """Whether decisions are written to a file."""
        return self.max_rows > 0

    def add(self, record: RequestRecord) -> None:
        """A request is finished."""
        self._waiting.append(Ended(self._clock(), vars(record), Messages.of(record)))
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
        self, question: Callable[Concatenate[Table, _Given], _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Call a query of the table in the thread: `ask(Table.count, wanted)`."""
        return await self._run(self._answer, lambda table: question(table, *given, **named))

    async def find(self, request_id: str) -> tuple[RequestRecord, list[Block]] | None:
        """The newest request of this id, message by message."""
        here = next((one for one in self.under_way.values() if one.request_id == request_id), None)
        if here is None:
            return await self.ask(Table.find, request_id)
        found = Ended(self._clock(), vars(here.running(time.perf_counter())), Messages.of(here)).row()
        return found.record, [*(found.blocks or ())]

    async def served(self) -> Mapping[str, int]:
        """Of the requests that this process has finished: `requests`, `fitted`, `cured` and `tokens_saved`."""
        await self.ask(Table.newest)  # which writes what is waiting
        return self._served

    async def running(self) -> list[RequestRecord]:
        """Requests under way, of this worker and of the others."""
        return self._running_here() + await self.ask(Table.running, self.worker, self._clock())

    def _running_here(self) -> list[RequestRecord]:
        now = time.perf_counter()
        return [one.running(now) for one in islice(reversed(list(self.under_way.values())), MAX_RUNNING)]

    async def _run(self, work: Callable[..., _Result], *given: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    # In the thread -----------------------------------------------------------------------------------------------

    def _write(self, running: list[RequestRecord]) -> None:
        table = self._opened()
        if table is None:
            return
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            table.add([one.row() for one in taken], self.worker, running, self._clock())
        except (sqlite3.Error, OSError) as error:
            self._waiting.extendleft(reversed(taken))
            self._drop_oldest()
            self._fail(error)
            return
        if self._dropped:
            logger().warning("decisions_dropped", file=str(self._path), requests=self._dropped)
            self._dropped = 0
        self._count([one.record for one in taken])

    def _count(self, records: Iterable[Mapping[str, Any]]) -> None:
        for one in records:
            fitted, saved = one.get("fitted", False), one.get("tokens_saved", 0)
            is_cured = one.get("too_long", False) and one["outcome"] == RequestOutcome.ANSWERED
            self._served.update(requests=1, fitted=fitted, cured=is_cured, tokens_saved=saved)

    def _answer(self, ask: Callable[[Table], _Result]) -> _Result:
        self._opened()  # puts a broken file aside
        if self._waiting:  # a query sees what was finished before it
            self._write(self._running_here())
        table = self._opened()
        if table is not None:
            try:
                return ask(table)
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        with contextlib.closing(Table(None, MAX_DECISIONS)) as stand_in:
            stand_in.add([one.row() for one in list(self._waiting.copy())[-MAX_DECISIONS:]])
            return ask(stand_in)

    def _opened(self) -> Table | None:
        """The file, or memory if none is wanted; None while the file cannot be used."""
        if self._table is not None and self._table.is_file is not self.is_kept:
            self._close()
        if self._table is not None and not self._table.is_in_place():
            self._fail(FileNotFoundError(errno.ENOENT, "it was removed while it was in use"))
            self._retry_at = float("-inf")
        if self._table is None and self._clock() >= self._retry_at:
            try:
                self._table = Table(self._path if self.is_kept else None, self.max_rows or MAX_DECISIONS)
                self._drop_former()
                self.problem = None
            except (sqlite3.Error, OSError) as error:
                self._fail(error)
        if self._table is not None and self.is_kept:
            self._table.max_rows = self.max_rows
        return self._table

    def _drop_former(self) -> None:
        """Delete the files of earlier releases, whose tables had another shape."""
        former = [*self._path.parent.glob("decisions-[1-3].*")] if self.is_kept else []
        for path in former:
            path.unlink(missing_ok=True)
        if former:
            logger().warning("decisions_upgraded", deleted=sorted(path.name for path in former), file=str(self._path))

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
        if self._table is not None:
            with contextlib.suppress(sqlite3.Error):
                self._table.close()
        self._table = None
