"""Bodies kept for another send while requests wait for their responses: in memory up to a limit, then in files.

Rule: waiting costs the one who waits. Beyond the limit, the largest body of the tenant that keeps most goes to a file
without a name: no other process can open it, and it disappears with the request or the process. Only if there is
no such file can the request not be sent again.
"""

from __future__ import annotations

import asyncio
import math
import operator
import pickle
import tempfile
import time
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from proxy.shell.resources.logs import logger
from proxy.shell.resources.threads import DaemonThreads, TooSlow
from proxy.shell.resources.workload import Share

SMALL_BYTES: Final = 16 * 1024
"""Smaller bodies are not accounted: the buffers of the request's two connections hold as much."""
FILE_SECONDS: Final = 5.0
"""Timeout of writing or reading a file; megabytes take milliseconds, and a disk that takes longer counts as dead."""
DEAD_SECONDS: Final = 30.0
"""How long a dead disk is left alone: those who make room would wait for it one after another."""
_THREADS: Final = 2
_HELD_BYTES: Final = operator.attrgetter("held_bytes")

_Contents: TypeAlias = list[object]


class Part(Protocol):
    """A part of what a request keeps."""

    @property
    def held_bytes(self) -> int:
        """Its memory."""

    def set_aside(self) -> object:
        """Take out its content, which can be pickled."""

    def put_back(self, content: object) -> None:
        """Put a copy of the content back."""


class Waiting(NamedTuple):
    """How much waits."""

    requests: int
    in_files: int
    memory_bytes: int
    file_bytes: int


class WaitingRoom:
    """Everything that the requests of a process keep."""

    def __init__(
        self,
        max_bytes: float = math.inf,
        folder: Path | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`folder`: for the files; the system's own for such files if there is none. `on_lost` is called for each
        request that cannot be sent again."""
        self._max_bytes = max_bytes
        self._folder = folder
        self._on_lost = on_lost
        self._kept: dict[Hashable, dict[Kept, int]] = {}
        """The memory of those that wait, by whose they are, those that have waited longest first."""
        self._totals: dict[Hashable, int] = {}
        self._memory_bytes = 0
        self._files: dict[Kept, int] = {}
        self._spilling: asyncio.Task[None] | None = None
        """Writes a body to a file; the room's own, because whoever makes room may leave at any time."""
        self._dead_until = 0.0
        """Time of `time.monotonic`."""
        self._threads = DaemonThreads(_THREADS, "waiting")

    @property
    def waiting(self) -> Waiting:
        """How much waits now."""
        count = len(self._files) + sum(map(len, self._kept.values()))
        return Waiting(count, len(self._files), self._memory_bytes, sum(self._files.values()))

    def keep(self, kept: Kept, held_bytes: int) -> None:
        """Count it as waiting from now on."""
        self._kept.setdefault(kept.whose, {})[kept] = held_bytes
        self._totals[kept.whose] = self._totals.get(kept.whose, 0) + held_bytes
        self._memory_bytes += held_bytes

    def let_go(self, kept: Kept) -> None:
        """Stop counting it as waiting; repeated calls do no harm."""
        together = self._kept.get(kept.whose, {})
        held_bytes = together.pop(kept, None)
        if held_bytes is None:
            return
        self._memory_bytes -= held_bytes
        self._totals[kept.whose] -= held_bytes
        if not together:
            del self._kept[kept.whose], self._totals[kept.whose]

    async def make_room(self) -> None:
        """Write to files what is too much, one body at a time."""
        while self._memory_bytes > self._max_bytes:  # all hold their share of the workload until there is room
            if self._spilling is None or self._spilling.done():
                together = self._kept[max(self._totals, key=self._totals.__getitem__)]
                kept = max(together, key=together.__getitem__)
                self._spilling = kept.put_into_file(self._write)
            await asyncio.shield(self._spilling)

    async def _write(self, kept: Kept, contents: _Contents) -> IO[bytes] | None:
        """A file with this; None if there can be none."""
        try:
            if time.monotonic() < self._dead_until:
                raise TooSlow
            file = await self._threads.run(FILE_SECONDS, _written, self._folder, contents)
        except Exception as error:
            self._note_lost(kept, error)
            return None
        finally:
            self.let_go(kept)
        self._files[kept] = file.tell()
        return file

    async def read(self, kept: Kept, file: IO[bytes]) -> _Contents | None:
        """A file's content; None if it cannot be read."""
        try:
            return await self._threads.run(FILE_SECONDS, _read, file)
        except Exception as error:
            self._note_lost(kept, error)
            return None

    def forget_file(self, kept: Kept) -> None:
        """Its file is closed."""
        self._files.pop(kept, None)

    def _note_lost(self, kept: Kept, error: Exception) -> None:
        self._on_lost()
        if isinstance(error, TooSlow) and str(error):
            self._dead_until = time.monotonic() + DEAD_SECONDS
        # A system's error names what is wrong with the disk; another one may quote content.
        problem = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        logger().error("waiting_request_lost", request_id=kept.request_id, problem=problem)

    def close(self) -> None:
        """End the threads; requests that wait can no longer be put into files."""
        self._threads.shutdown(wait=False)


class Kept(Struct, eq=False):
    """Everything that one request keeps while it waits for its response. It waits between `rest` and `wake`; between
    `wake` and `rest`, its parts stay as they are."""

    _room: WaitingRoom
    _share: Share
    request_id: str = ""
    whose: Hashable = None
    """Whose memory it is: for which upstream, of which tenant."""
    _parts: dict[int, Part] = {}
    """Keyed by identity."""
    _putting: asyncio.Task[None] | None = None
    """Puts it into a file."""
    _file: IO[bytes] | None = None
    is_away: bool = False
    """Whether the parts are without their contents."""
    _worked_bytes: int = 0
    _is_over: bool = False
    _is_large: bool = False
    """Whether it has ever been accounted."""

    def hold(self, *parts: Part) -> None:
        """These belong to it, too; those that it has are not taken twice."""
        self._parts.update(zip(map(id, parts), parts, strict=True))

    async def rest(self) -> None:
        """The request is on its way: it takes no more of the workload, and may be put into a file."""
        held_bytes = sum(map(_HELD_BYTES, self._parts.values()))
        if held_bytes > SMALL_BYTES and not self.is_away and not self._is_over:
            self._is_large = True
            self._room.keep(self, held_bytes)
            await self._room.make_room()
        self._worked_bytes = self._share.held_bytes or self._worked_bytes
        self._share.release()

    def wake(self) -> None:
        """Stop moving it to a file."""
        if self._is_large:
            self._room.let_go(self)

    async def back(self) -> bool:
        """Have the contents again, once there is room in the workload; False if they are lost."""
        self.wake()
        if not self._share.held_bytes:
            await self._share.take_again(self._worked_bytes)
        if self._putting is not None:
            await asyncio.shield(self._putting)
        if not self.is_away:
            return True
        file, self._file = self._file, None  # its reader closes it: on a dead disk, that would block the event loop
        try:
            contents = None if file is None else await self._room.read(self, file)
        finally:
            self._room.forget_file(self)
        if contents is None:
            return False
        self.is_away = False
        for part, content in zip(self._parts.values(), contents, strict=True):
            part.put_back(content)
        return True

    def drop(self) -> None:
        """Release what was kept: it will not be sent again."""
        self.close()
        self._share.release()
        if self._is_large and not self.is_away:
            self._take_out()

    def close(self) -> None:
        """The request is over."""
        self._is_over = True
        self.wake()
        if self._file is not None:
            self._file.close()
            self._room.forget_file(self)

    def put_into_file(self, write: Callable[[Kept, _Contents], Awaitable[IO[bytes] | None]]) -> asyncio.Task[None]:
        """Put the contents into a file."""
        self._putting = asyncio.create_task(self._put(write, self._take_out()))
        return self._putting

    async def _put(self, write: Callable[[Kept, _Contents], Awaitable[IO[bytes] | None]], contents: _Contents) -> None:
        self._file = await write(self, contents)
        if self._is_over:
            self.close()

    def _take_out(self) -> _Contents:
        self.is_away = True
        return [part.set_aside() for part in self._parts.values()]


def _written(folder: Path | None, contents: _Contents) -> IO[bytes]:
    """An open file without a name. Raises OSError, and whatever pickling does."""
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when its request is over
    try:
        pickle.dump(contents, file, pickle.HIGHEST_PROTOCOL)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _read(file: IO[bytes]) -> _Contents:
    """Read and close a file of `_written`. Raises OSError."""
    with file:
        file.seek(0)
        found: _Contents = pickle.load(file)  # noqa: S301 - this process wrote it, and no other can open it
        return found
