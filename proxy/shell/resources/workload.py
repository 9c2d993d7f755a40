"""Bounds the work on all requests together. It gives memory back afterwards, and tunes the interpreter for a server.

Rule: over the limit, requests wait for room; one may always run, however large, so that nothing stalls. A client that
sends its body slowly loses its place while others wait. Small requests never wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from starlette.types import Message, Receive

MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes of bodies being read, planned and sent at a time. What is made from one takes up to four times as much."""
SMALL_BYTES: Final = 64 * 1024
"""Size of a body that never waits: the server's own buffers hold as much for each connection anyway."""
PACE_SECONDS: Final = 5.0
"""Time in which more of a body has to arrive while others wait: `LEAST_BYTES`, or a part of what has arrived already.
So a body of 64 MB, the default maximum, is done within minutes, and 30 kbit/s are enough for small ones."""
PACE_PART: Final = 32
LEAST_BYTES: Final = 16 * 1024
APART_BYTES: Final = 4 * 1024 * 1024
"""Size of a memory block that gets its own mapping from the system. Each page then costs a fault: at 256 KB, the
bodies of 100 turns up to 2 MB took 0.18 s more of CPU."""
KEPT_FREE_BYTES: Final = 16 * 1024 * 1024
"""Free memory at the end of the heap before it is given back at once; the rest is given back every second."""
ARENAS: Final = 1
"""Heaps for all threads together. The C library would make one for each, and give back little of what is free in any
but the first: 3.6 MB more after a start, 20 MB after 2 MB conversations. Threads that count at once are as fast."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""https://man7.org/linux/man-pages/man3/mallopt.3.html"""
STARTED_SECONDS: Final = (0.5, 4.5)
"""After the start, and again on a busy machine, what it has left free is given back: 3.5 MB, from modules and the
catalogue being read."""
LOOK_SECONDS: Final = 1.0
"""Between two checks for memory to give back."""
WORTH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of bodies worked on: below this, what the C library keeps for later is not worth a check."""


class Workload:
    """A semaphore of bytes: the bodies that are being read, planned and sent."""

    def __init__(self, max_bytes: int = MAX_BYTES, small_bytes: int = SMALL_BYTES) -> None:
        self.max_bytes = max_bytes
        self.small_bytes = small_bytes
        self.held_bytes = 0
        self.favoured: Share | None = None
        """The one that proceeds although it is too much: otherwise many half-read bodies would wait for each other."""
        self.released = asyncio.Event()
        self.queued = 0
        """Requests that wait for room."""
        self.done_bytes = 0
        """Total of all requests so far."""

    @property
    def problem(self) -> str | None:
        """A line about the queue for the operator; None if it is empty."""
        if not self.queued:
            return None
        return f"{self.queued} requests wait for room: {self.held_bytes:,} bytes are being read and planned"


class Share(Struct, eq=False):
    """One request's share of the workload, to be released at its end."""

    _workload: Workload
    held_bytes: int = 0
    _new_bytes: int = 0
    _slow_seconds: float = 0.0
    """What has arrived since enough had arrived last, and how long that has taken."""

    async def take(self, more_bytes: int) -> None:
        """Wait until there is room for so many bytes more."""
        workload = self._workload
        if not self._has_room(more_bytes):
            workload.queued += 1
            try:
                while not self._has_room(more_bytes):
                    workload.released.clear()
                    await workload.released.wait()
            finally:
                workload.queued -= 1
        self.held_bytes += more_bytes
        workload.held_bytes += more_bytes

    def _has_room(self, more_bytes: int) -> bool:
        workload, own_bytes = self._workload, self.held_bytes + more_bytes
        if own_bytes <= workload.small_bytes or workload.held_bytes + more_bytes <= workload.max_bytes:
            return True
        workload.favoured = workload.favoured or self
        return workload.favoured is self

    async def next_message(self, receive: Receive, pause_seconds: float) -> Message:
        """The next piece of the body, once there is room for it: its sender is held up meanwhile. Raises TimeoutError
        if nothing arrives for this long, or too little while others wait."""
        others_wait = self._workload.queued > 0
        if others_wait:
            pause_seconds = min(pause_seconds, PACE_SECONDS - self._slow_seconds)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(pause_seconds):
            message = await receive()
        piece = message.get("body", b"")
        self._slow_seconds += asyncio.get_running_loop().time() - began
        self._new_bytes += len(piece)
        if not others_wait or self._new_bytes >= max(LEAST_BYTES, self.held_bytes // PACE_PART):
            self._slow_seconds, self._new_bytes = 0.0, 0
        await self.take(len(piece))
        return message

    def release(self) -> None:
        """The request waits for its response, or is over; calling this again does no harm."""
        workload = self._workload
        if self.held_bytes:
            workload.held_bytes -= self.held_bytes
            workload.done_bytes += self.held_bytes
            self.held_bytes = 0
            if workload.favoured is self:
                workload.favoured = None
            workload.released.set()


async def give_memory_back(workload: Workload) -> None:
    """Make the C library return to the system the memory that the start and large requests have left free in its heap:
    it keeps that for ever if anything small lies above it. https://man7.org/linux/man-pages/man3/malloc_trim.3.html"""
    trim = _malloc_trim()
    if trim is None:
        return
    done_bytes = workload.done_bytes
    for seconds in STARTED_SECONDS:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(trim, 0)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if workload.done_bytes - done_bytes >= WORTH_BYTES:
            done_bytes = workload.done_bytes
            await asyncio.to_thread(trim, 0)


def tune_allocator() -> None:
    """Make the C library map each large block separately and return it at once: it starts like that, but the first
    block that is freed raises the threshold to as much as 32 MB, and bodies then leave holes in its heap. To be called
    before there are threads: those that have a heap keep it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # as below
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, ARENAS)
        library.mallopt(_M_MMAP_THRESHOLD, APART_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's; None elsewhere (macOS, Windows, musl)."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


SWITCH_SECONDS: Final = 0.0005
"""How long a planning thread may keep the interpreter while the event loop waits for it. Python's default of 5 ms adds
up, because that happens after each read and write of a socket."""


def tune_interpreter() -> None:
    """Call this once everything is loaded."""
    # What is loaded by now stays; every request would pay for scanning it again. It is not scanned once before, which
    # would take a tenth of the start: of 117 000 objects, 1 900 were garbage.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # a request makes hundreds of objects and hardly any cycles
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)
    tune_allocator()


def forget_what_is_gone() -> None:
    """After many of the objects that seemed to live forever are gone."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
