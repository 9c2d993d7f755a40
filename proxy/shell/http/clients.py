"""The departure of a client, which ends the work for it: the upstream stops computing as soon as it has left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.types import Receive

from proxy.errors import ClientLeft

STATE_KEY: Final = "connections"
"""Key of the process's `Connections` in `scope["state"]`: whether the server is stopping."""


@contextlib.asynccontextmanager
async def until_client_leaves(
    receive: Receive, after: asyncio.Event | None = None, has_all: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Run the block, and end it when the client leaves. Messages are received meanwhile and thrown away, so watching
    begins only when the body has been read: at once, or `after` the event that signals it.

    Servers report the end of a response with the same message as a departure, so the block must not await anything
    after the last byte. Raises ClientLeft unless the client `has_all` that it wanted.
    """
    task, has_left = asyncio.current_task(), False
    assert task is not None, "runs inside a task"

    async def watch() -> None:
        nonlocal has_left
        if after is not None:
            await after.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        if not has_all():
            raise ClientLeft("the client closed its connection before the response was complete") from None
    finally:
        watching.cancel()
