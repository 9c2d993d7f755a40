"""Waiting for what happens in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(500):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen within 5 s")
