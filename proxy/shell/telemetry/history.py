"""The latest requests of all workers, in a file that outlives the process. They are for `/decisions` and the dashboard;
where no file is wanted, they are in memory.

Rule: no request waits for it, and none fails because of it. A request pays for one entry in a queue; a thread writes
them, once a second, and has the file open only while it uses it: one that was removed is made again by the next use. If
the file is locked, broken or cannot be written, the log says so, what waits to be written is shown, and the file is
tried again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import socket
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from proxy.shell.resources import Threads, logger
from proxy.shell.telemetry.record import Block, RequestRecord
from proxy.shell.telemetry.table import MAX_DECISIONS, Table

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
        self._waiting: deque[RequestRecord] = deque(maxlen=MAX_WAITING)
        self._threads = Threads(1, "history")
        self._memory = Table(None, MAX_DECISIONS)
        """Used where no file is wanted."""
        weakref.finalize(self, self._memory.close)
        self._retry_at = float("-inf")
        self._had_running = self._was_there = False
        self.problem: str | None = None
        """Why the file is not used; None if it is, or is not wanted."""
        self.worker = f"{socket.gethostname()}:{os.getpid()}"

    @property
    def is_kept(self) -> bool:
        """Whether decisions are written to a file."""
        return self.max_rows > 0

    def finished(self, record: RequestRecord) -> None:
        """A request is finished."""
        record.finished_at = self._clock()
        self._waiting.append(record)

    async def write_for_ever(self) -> None:
        """Write what is waiting, every second."""
        if self.is_kept:
            await asyncio.to_thread(_drop_former, self._path)
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write what is waiting, and what is under way."""
        running = self._running_here()
        if (self._waiting or running or self._had_running) and self._clock() >= self._retry_at:
            self._had_running = bool(running)
            await self.ask(Table.note_running, self.worker, running, self._clock())

    async def close(self) -> None:
        """Write what is waiting."""
        with contextlib.suppress(RuntimeError):  # the threads are gone: the process ends
            await self.write()

    async def ask(
        self, question: Callable[Concatenate[Table, _Given], _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """Call a query of the table in the thread: `ask(Table.count, filters)`; it sees what was finished before."""
        answer = functools.partial(self._answer, lambda table: question(table, *given, **named))
        return await self._threads.run(math.inf, answer)

    async def find(self, request_id: str) -> tuple[RequestRecord, list[Block]] | None:
        """The newest request of this id, message by message."""
        here = next((one for one in self.under_way.values() if one.request_id == request_id), None)
        if here is None:
            return await self.ask(Table.find, request_id)
        record = here.running(time.perf_counter())
        record.finished_at = self._clock()
        return record.described()

    async def running(self) -> list[RequestRecord]:
        """Requests under way, of this worker and of the others."""
        return self._running_here() + await self.ask(Table.running, self.worker, self._clock())

    def _running_here(self) -> list[RequestRecord]:
        now = time.perf_counter()
        return [one.running(now) for one in islice(reversed(list(self.under_way.values())), MAX_RUNNING)]

    def _answer(self, question: Callable[[Table], _Result]) -> _Result:
        """In the thread."""
        if self._clock() >= self._retry_at:
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                with self._table() as table:
                    if taken:
                        table.add(taken)
                    self.problem, taken = None, []
                    return question(table)
            except (sqlite3.Error, OSError) as error:
                self._waiting = deque([*taken, *self._waiting], MAX_WAITING)
                self._fail(error)
        with contextlib.closing(Table(None, MAX_DECISIONS)) as stand_in:
            stand_in.add(list(self._waiting.copy())[-MAX_DECISIONS:])
            return question(stand_in)

    @contextlib.contextmanager
    def _table(self) -> Iterator[Table]:
        """The file, or memory if none is wanted."""
        if not self.is_kept:
            yield self._memory
            return
        if self._was_there and not self._path.exists():
            self._report("it was removed while it was in use")
        with contextlib.closing(Table(self._path, self.max_rows)) as table:
            self._was_there = True
            yield table

    def _fail(self, error: Exception) -> None:
        self._retry_at = self._clock() + RETRY_SECONDS
        self.problem = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with contextlib.suppress(OSError):  # it is no database any more: the next use makes another
                self._path.replace(self._path.with_suffix(".broken"))
            self._retry_at = float("-inf")
        self._report(self.problem)

    def _report(self, reason: str) -> None:
        logger().warning("decisions_not_kept", file=str(self._path), reason=reason)


def _drop_former(path: Path) -> None:
    """Delete the files of earlier releases, whose tables had another shape."""
    former = [*path.parent.glob("decisions-[1-3].*")]
    for one in former:
        one.unlink(missing_ok=True)
    if former:
        logger().warning("decisions_upgraded", deleted=sorted(one.name for one in former), file=str(path))
