"""Bodies kept for another send while requests wait for their responses: as they are up to a limit, then compressed.

Rule: waiting costs the one who waits. Over the limit, those that have waited longest are compressed first; if all are
and it is still too much, the longest waiting is let go: it can no longer be sent again. Refusals come within seconds.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import math
import operator
import pickle
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from proxy.shell.resources.logs import logger
from proxy.shell.resources.workload import Share

SMALL_BYTES: Final = 16 * 1024
"""Smaller bodies are not accounted: the buffers of the request's two connections hold as much."""
_LEVEL: Final = 1
"""Agents' JSON shrinks to a fifth in 10 ms a megabyte; level 6 takes four times as long for a tenth more."""
_HELD_BYTES: Final = operator.attrgetter("held_bytes")

_SHORT_BYTES: Final = 64
"""Shorter ones are written as they are."""
_BETWEEN_BYTES: Final = 1024
"""Between two messages of a body stand a comma and blanks."""

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
    compressed: int
    memory_bytes: int


class WaitingRoom:
    """Everything that the requests of a process keep."""

    def __init__(self, max_bytes: float = math.inf, on_lost: Callable[[], None] = lambda: None) -> None:
        """`on_lost` is called for each request that cannot be sent again."""
        self._max_bytes = max_bytes
        self._on_lost = on_lost
        self.held: dict[Kept, int] = {}
        """The memory of those that wait, the longest waiting first."""
        self._packing: asyncio.Task[None] | None = None
        """Compresses one; the room's own, because whoever makes room may leave at any time."""

    @property
    def waiting(self) -> Waiting:
        """How much waits now."""
        return Waiting(len(self.held), sum(one.is_away for one in self.held), sum(self.held.values()))

    async def make_room(self) -> None:
        """Compress what is too much, one request at a time; let go of what is still too much."""
        while sum(self.held.values()) > self._max_bytes:  # all hold their share of the workload until there is room
            if self._packing is None or self._packing.done():
                plain = next((one for one in self.held if not one.is_away), None)
                if plain is None:
                    self.lose(next(iter(self.held)), "too much is waiting")
                    continue
                self._packing = plain.pack()
            await asyncio.shield(self._packing)

    def lose(self, kept: Kept, problem: str) -> None:
        """Let go of a request whose contents are compressed; count and log that it cannot be sent again."""
        self.held.pop(kept, None)
        kept.packed = None
        self._on_lost()
        logger().warning("waiting_request_lost", request_id=kept.request_id, problem=problem)


class Kept(Struct, eq=False):
    """Everything that one request keeps while it waits for its response. It waits between `rest` and `wake`; between
    `wake` and `rest`, its parts stay as they are."""

    _room: WaitingRoom
    _share: Share
    request_id: str = ""
    _parts: dict[int, Part] = {}
    """Keyed by identity."""
    _packing: asyncio.Task[None] | None = None
    """Compresses it."""
    packed: bytes | None = None
    is_away: bool = False
    """Whether the parts are without their contents."""
    _worked_bytes: int = 0
    _is_large: bool = False
    """Whether it has ever been accounted."""
    _is_over: bool = False

    def hold(self, *parts: Part) -> None:
        """These belong to it, too; those that it has are not taken twice."""
        self._parts.update(zip(map(id, parts), parts, strict=True))

    async def rest(self) -> None:
        """The request is on its way: it takes no more of the workload, and may be compressed."""
        held_bytes = sum(map(_HELD_BYTES, self._parts.values()))
        if held_bytes > SMALL_BYTES and not self.is_away and not self._is_over:
            self._is_large = True
            self._room.held[self] = held_bytes
            await self._room.make_room()
        self._worked_bytes = self._share.held_bytes or self._worked_bytes
        self._share.release()

    def wake(self) -> None:
        """Stop compressing it."""
        self._room.held.pop(self, None)

    async def back(self) -> bool:
        """Have the contents again, once there is room in the workload; False if they are lost."""
        self.wake()
        if not self._share.held_bytes:
            await self._share.take(self._worked_bytes)
        if self._packing is not None:
            await asyncio.shield(self._packing)
        if not self.is_away:
            return True
        packed, self.packed = self.packed, None
        if packed is None:
            return False
        contents = await asyncio.to_thread(_unpacked, packed)
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
        self.packed = None
        self.wake()

    def pack(self) -> asyncio.Task[None]:
        """Compress the contents."""
        self._packing = asyncio.create_task(self._pack(self._take_out()))
        return self._packing

    async def _pack(self, contents: _Contents) -> None:
        try:
            packed = await asyncio.to_thread(_packed, contents)
        except Exception as error:
            self._room.lose(self, type(error).__name__)  # whose text may quote content
            return
        if not self._is_over:
            self.packed = packed
        if self in self._room.held:
            self._room.held[self] = len(packed)

    def _take_out(self) -> _Contents:
        self.is_away = True
        return [part.set_aside() for part in self._parts.values()]


class _Pickler(pickle.Pickler):
    """Writes the body once: the bytes of its messages are written as their place there."""

    def __init__(self, file: gzip.GzipFile, body: bytes) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._body = body
        self._end = 0

    def persistent_id(self, found: object) -> tuple[int, int] | None:
        """The place of the body, or of a message, which is just behind the one before it."""
        if found is self._body:
            return 0, len(self._body)
        if not isinstance(found, bytes) or len(found) < _SHORT_BYTES:
            return None
        start = self._body.find(found, self._end, self._end + len(found) + _BETWEEN_BYTES)
        if start < 0:
            return None
        self._end = start + len(found)
        return start, self._end


class _Unpickler(pickle.Unpickler):
    """Reads what `_Pickler` has written."""

    def __init__(self, file: gzip.GzipFile, body: bytes) -> None:
        super().__init__(file)
        self._body = body

    def persistent_load(self, place: tuple[int, int]) -> bytes:
        """The body, or a part of it."""
        start, end = place
        return self._body[start:end]


def _packed(contents: _Contents) -> bytes:
    body = max((one for one in contents if isinstance(one, bytes)), key=len, default=b"")
    packed = io.BytesIO()
    with gzip.open(packed, "wb", _LEVEL) as file:  # written piece by piece: the whole is never in memory beside it
        pickle.dump(body, file, pickle.HIGHEST_PROTOCOL)
        _Pickler(file, body).dump(contents)
    return packed.getvalue()


def _unpacked(packed: bytes) -> _Contents:
    with gzip.open(io.BytesIO(packed)) as file:
        contents: _Contents = _Unpickler(file, pickle.load(file)).load()  # noqa: S301 - our own
    return contents
