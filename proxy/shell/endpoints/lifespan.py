"""Start and stop of the application, on the server's signals, and applications that are created on demand.

Rule: a failure at the start stops the server with the reason; what was opened is closed, whatever happens to the rest.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Holds open resources while the server runs."""


async def run_lifespan(lifespan: Lifespan, receive: Receive, send: Send) -> None:
    """ASGI's lifespan protocol: https://asgi.readthedocs.io/en/latest/specs/lifespan.html."""
    moment = "startup"
    await receive()
    try:
        async with lifespan():
            await send({"type": "lifespan.startup.complete"})
            moment = "shutdown"
            await receive()
    except BaseException:
        await send({"type": f"lifespan.{moment}.failed", "message": traceback.format_exc()})
        raise
    await send({"type": "lifespan.shutdown.complete"})


class MadeWhenAsked:
    """An application that takes long to load. A thread creates it at the first request, while others are served."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None or (self._made.done() and self._made.exception() is not None):
            self._made = asyncio.ensure_future(asyncio.to_thread(self._make))
        app = await asyncio.shield(self._made)  # another request may wait for it, too
        await app(scope, receive, send)
