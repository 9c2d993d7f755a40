"""Waiting for what happens in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 120.0
"""It only ends what hangs: no wait of a working test comes near it, also on a busy machine."""


class Clock:
    """Time that tests advance."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


def let_pass(seconds: float) -> None:
    """It is so much later for the running loop and its timers."""
    loop = asyncio.get_running_loop()
    ahead = loop.time() - type(loop).time(loop) + seconds
    loop.time = lambda: type(loop).time(loop) + ahead  # type: ignore[method-assign]


def wait_until(happened: Callable[[], bool]) -> None:
    """The same without a loop."""
    last_try = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < last_try, "it did not happen"
        time.sleep(0.01)
