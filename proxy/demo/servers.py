"""Starts the demo's servers on free ports: an ASGI app on a thread, the proxy as its own process.

Rule: both are reached over real sockets, and both are stopped however the block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

START_SECONDS: Final = 30
"""Longest wait for a server; the proxy starts in half a second, on a busy machine in ten times that."""
STOP_SECONDS: Final = 5
"""How long a server may take to end by itself before it is killed."""
_HOST: Final = "127.0.0.1"
_PERSONAL: Final = ("CONTEXT_PROXY_", "TOOL_OUTPUT_", "UPSTREAM", "OPENAI_")
"""Variables that configure somebody's real proxy or hold a key; the demo's proxy must not see them."""


_DEFECT: Final = re.compile(
    r"^.*\b(?:planning|judging)_failed\b.*$|^Traceback \(most recent call last\):.*(?:\n.*)+", re.MULTILINE
)


class CannotStart(Exception):
    """A server did not start; the text says which one, and its last words."""


class HasDefect(Exception):
    """A proxy has failed inside, although its client may have seen nothing of it; the text is the end of its log."""


def raise_defects(log: str) -> None:
    """Raise HasDefect if a proxy's output tells of a plan that failed, or ends in a traceback."""
    found = _DEFECT.search(log)
    if found is not None:
        raise HasDefect(f"the proxy has a defect: {found[0][-2000:]}")


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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - closed with their servers
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
    listener = socket.create_server((_HOST, 0))
    server = PromptServer(
        uvicorn.Config(app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
    )

    def serve() -> None:
        try:
            with contextlib.suppress(SystemExit):  # how uvicorn ends when the application does not start
                server.run([listener])
        finally:
            server.settled.set()

    thread = threading.Thread(target=serve, name="model-server", daemon=True)
    thread.start()
    try:
        server.settled.wait(START_SECONDS)
        if not server.started:
            raise CannotStart("the model server did not start")
        yield f"http://{_HOST}:{listener.getsockname()[1]}/v1"
    finally:
        server.stop()
        thread.join(STOP_SECONDS)
        listener.close()


@contextlib.contextmanager
def proxy_in_front_of(upstream: str, window_tokens: int, folder: Path, port: int = 0) -> Iterator[str]:
    """Run `python -m proxy serve` for `upstream`, its files in `folder`; yields its base URL. Raises CannotStart, and
    HasDefect after a run in which the proxy has failed inside."""
    command = [sys.executable, "-m", "proxy", "serve", "--upstream", upstream, "--port", str(port)]
    command += ["--context-window", str(window_tokens), "--data-dir", str(folder / "kept")]
    log = folder / "proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=impersonal(os.environ),
        )
    try:
        _wait_until(lambda: _listening_port(log) is not None or process.poll() is not None)
        listening = _listening_port(log)
        if listening is None or process.poll() is not None:
            raise CannotStart(f"the proxy did not start:\n{log.read_text(errors='replace')[-2000:].strip()}")
        yield f"http://{_HOST}:{listening}/v1"
    finally:
        _stop(process)
    raise_defects(log.read_text(errors="replace"))


def impersonal(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without settings and keys."""
    return {name: value for name, value in environment.items() if not name.startswith(_PERSONAL)}


def _listening_port(log: Path) -> int | None:
    """The port in the proxy's `listening` event, once that line is written."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"listening"' in line and line.endswith("}"):
            return int(json.loads(line)["port"])
    return None


def _wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.01)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
