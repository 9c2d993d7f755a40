"""How much of all requests together is worked on at a time, and memory given back afterwards.

Rule: whoever comes when it is too much waits, in order, and nobody waits for ever: one request always goes on, however
large it is.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.types import Message, Receive

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of bodies that are read, planned and sent at a time. What is made of one takes up to four times as much."""
LOOK_SECONDS: Final = 2.0
"""Between two looks at whether there is memory to give back."""
WORTH_BYTES: Final = 4 * 1024 * 1024
"""Of bodies that were worked on: under this, what the C library keeps for later is not worth a look."""


class Workload:
    """The requests that are worked on."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._waiting: OrderedDict[Share, asyncio.Future[None]] = OrderedDict()
        self._favoured: Share | None = None
        """The one that goes on though it is too much: else many halves of bodies would wait for each other."""
        self.done_bytes = 0
        """Of all requests that were worked on."""

    def share(self) -> Share:
        """That of one request, which is to be released at its end."""
        return Share(self)

    async def take(self, share: Share, more_bytes: int) -> None:
        """Go on once there is room for what has come."""
        share.held_bytes += more_bytes
        self._held_bytes += more_bytes
        if self._favoured is share or (self._held_bytes <= self._max_bytes and not self._waiting):
            return
        turn = self._waiting[share] = asyncio.get_running_loop().create_future()
        self._call_up()
        try:
            await turn
        finally:
            self._waiting.pop(share, None)

    def release(self, share: Share) -> None:
        """This one is done."""
        self._held_bytes -= share.held_bytes
        self.done_bytes += share.held_bytes
        share.held_bytes = 0
        if self._favoured is share:
            self._favoured = None
        self._call_up()

    def _call_up(self) -> None:
        for share, turn in self._waiting.items():
            if turn.done():
                continue
            if self._held_bytes > self._max_bytes:
                if self._favoured is not None:
                    return
                self._favoured = share
            turn.set_result(None)


class Share:
    """What one request takes of the workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.held_bytes = 0

    def taking(self, receive: Receive) -> Receive:
        """The same, but each piece of the body waits until there is room for it: its sender is held up meanwhile."""

        async def received() -> Message:
            message = await receive()
            if piece := message.get("body"):
                await self._workload.take(self, len(piece))
            return message

        return received

    def release(self) -> None:
        """The request is on its way, or over; more than once does no harm."""
        if self.held_bytes:
            self._workload.release(self)


async def give_memory_back(workload: Workload) -> None:
    """Have the C library return to the system what large requests have left free in its heap: it keeps that for ever
    where anything small lies above it. https://man7.org/linux/man-pages/man3/malloc_trim.3.html"""
    trim = _malloc_trim()
    done_bytes = workload.done_bytes
    while trim is not None:
        await asyncio.sleep(LOOK_SECONDS)
        if workload.done_bytes - done_bytes >= WORTH_BYTES:
            done_bytes = workload.done_bytes
            await asyncio.to_thread(trim, 0)


def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's; None elsewhere (macOS, Windows, musl)."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
