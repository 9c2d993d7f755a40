"""Work that is done again and again beside the requests.

Rule: it ends when it is stopped, even if a library swallows the cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Recurring:
    """One piece of work, over and over."""

    def __init__(self, once: Callable[[], Awaitable[None]], name: str) -> None:
        """`once`: waits until the work is due, and does it; never raises. `name`: of the task, for whoever lists
        them."""
        self._once = once
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Do it from now on."""
        self._is_stopping = False
        self._task = asyncio.create_task(self._for_ever(), name=self._name)

    async def stop(self) -> None:
        """Do it no more; what is under way is cancelled. Does nothing if it was never started."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _for_ever(self) -> None:
        while not self._is_stopping:
            await self._once()
