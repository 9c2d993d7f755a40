"""An ASGI application on a free port, on a thread.

Rule: it is stopped however the block is left, as soon as nothing is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from proxy.demo import START_SECONDS, STOP_SECONDS, CannotStart


class PromptServer(uvicorn.Server):
    """uvicorn's server that ends as soon as nothing is under way, where uvicorn's own sleeps for up to 0.3 seconds."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()
        """Set once the server listens, or has ended without."""
        self._told_to_stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Begin to end; any thread may call it."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended by itself
                self._loop.call_soon_threadsafe(self._told_to_stop.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.settled.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # its number 0 sets the time of the `date` header
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told_to_stop.wait(), timeout=1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event
                    await asyncio.sleep(0.002)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@contextlib.contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an ASGI app on a free port, on a thread; yields `http://127.0.0.1:PORT/v1`."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = PromptServer(
        uvicorn.Config(app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
    )

    def serve() -> None:
        try:
            with contextlib.suppress(SystemExit):  # how uvicorn ends when the application does not start
                server.run([listener])
        finally:
            server.settled.set()

    thread = threading.Thread(target=serve, name="served", daemon=True)
    thread.start()
    try:
        server.settled.wait(START_SECONDS)
        if not server.started:
            raise CannotStart("the application did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.stop()
        thread.join(STOP_SECONDS)
        listener.close()
