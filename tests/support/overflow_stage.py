"""A stage for journeys of refused requests: the application on a socket of its own, between a client and a model server
that plays scenes.

Rule: nothing waits for time to pass; the model server records every chat request before it acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import structlog
import uvicorn

from proxy.app import create_app
from proxy.config import Settings
from support.serving import PromptServer
from support.upstream import ScriptedModel, Sent, SocketServer, as_json
from support.upstream.scenes import JSON
from support.waiting import PATIENCE_SECONDS


def _unexpected(sent: Sent) -> None:
    raise AssertionError(f"request {sent.number} was not expected")


@dataclass(frozen=True)
class Received:
    """The response that the client received."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def attempts(self) -> str | None:
        return self.headers.get("x-context-proxy-attempts")

    def tokens(self, which: str) -> int:
        """`before`, `after` or `room`, as the proxy says."""
        return int(dict(pair.split("=") for pair in self.headers["x-context-proxy-tokens"].split(";"))[which])


@dataclass
class Stage:
    """The running proxy, its upstream and its client."""

    model: ScriptedModel
    url: str
    client: aiohttp.ClientSession
    settings: Settings

    async def ask(self, body: bytes, **headers: str) -> Received:
        """Send a chat request and take the whole of its answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            self.client.post(self.url, data=body, headers={"content-type": JSON} | named) as answer,
        ):
            received = {name.lower(): value for name, value in answer.headers.items()}
            return Received(answer.status, received, await answer.read())


@contextlib.asynccontextmanager
async def staged(folder: Path, **settings: Any) -> AsyncIterator[Stage]:
    """A stage with these settings, each a section as in YAML; `folder` is the data folder."""
    model = ScriptedModel([_unexpected], beside=lambda *_: as_json({}, 404))  # it has no list of models
    async with SocketServer(model) as upstream:
        where = {"base_url": upstream.base_url, **settings.pop("upstream", {})}
        made = Settings(**{"upstream": where, "data_dir": folder, **settings})
        async with serving(made) as url, client() as session:
            yield Stage(model, url, session, made)


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """The application under uvicorn; the address of its chat route."""
    config = uvicorn.Config(
        create_app(settings), log_config=None, access_log=False, ws="none", interface="asgi3", loop="none"
    )
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio does not do it for a socket that is given; without it each answer in two writes takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = PromptServer(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        assert not running.done(), "the application did not start"
        await asyncio.sleep(0.001)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
    finally:
        server.stop()
        await running
        # The application sets up logging for its process; the next test has another standard output.
        structlog.reset_defaults()
        root = logging.getLogger()
        root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]


def client() -> aiohttp.ClientSession:
    """A client that takes bytes as they come."""
    return aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("accept-encoding",))
