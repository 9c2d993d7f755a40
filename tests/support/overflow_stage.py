"""A stage for journeys of refused requests: the application on a socket of its own, between a client and a model server
that follows a script.

Rule: nothing waits for time to pass; the model server records every chat request before it acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import structlog
import uvicorn

from proxy.app import create_app
from proxy.config import Settings
from support.scripted_upstream import (
    CHUNKED,
    LAST_CHUNK,
    Connection,
    Request,
    ScriptedUpstream,
    chunk,
)
from support.serving import PromptServer
from support.waiting import PATIENCE_SECONDS

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    }
).encode()
DELTA = (
    b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Done."},'
    b'"finish_reason":null}]}\n\n'
)
STREAM = DELTA + b"data: [DONE]\n\n"

Scene: TypeAlias = Callable[[Connection, Request], Awaitable[None]]


def saying(status: int, body: bytes, content_type: str = JSON, *headers: str) -> Scene:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} As Said", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send("\r\n".join([*lines, "", ""]).encode() + body)

    return scene


def streaming(*steps: bytes | asyncio.Event, content_type: bytes = b"text/event-stream") -> Scene:
    """A stream of these pieces; where there is an event, it waits for it."""

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send(CHUNKED.replace(b"text/event-stream", content_type))
        for step in steps:
            if isinstance(step, bytes):
                await connection.send(chunk(step))
            else:
                await step.wait()
        await connection.send(LAST_CHUNK)

    return scene


def after(event: asyncio.Event, scene: Scene) -> Scene:
    """The scene, once the event is set."""

    async def waiting(connection: Connection, request: Request) -> None:
        await event.wait()
        await scene(connection, request)

    return waiting


async def resetting(connection: Connection, _: Request) -> None:
    """A connection that breaks before a byte of an answer."""
    connection.reset()


class Thinking:
    """A scene in which the model never answers."""

    def __init__(self) -> None:
        self.began, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, connection: Connection, _: Request) -> None:
        self.began.set()
        await connection.until_closed()
        self.left.set()


async def accepting(connection: Connection, request: Request) -> None:
    """The answer of a model that accepts the request: a stream if one was requested."""
    streams = json.loads(request.body).get("stream")
    await saying(200, STREAM if streams else COMPLETION, EVENTS if streams else JSON)(connection, request)


class ModelServer:
    """The upstream: plays one scene for each chat request; one more than it has scenes for fails the test."""

    def __init__(self) -> None:
        self.received: list[Request] = []
        self._scenes: list[Scene] = []

    def plays(self, *scenes: Scene) -> None:
        """Begin anew with these scenes."""
        self.received, self._scenes = [], list(scenes)

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.received]

    async def serve(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            if request.line.startswith(b"GET "):  # the list of models, which it does not have
                await saying(404, b"{}")(connection, request)
                continue
            self.received.append(request)
            assert self._scenes, f"request {len(self.received)} was not expected"
            await self._scenes.pop(0)(connection, request)


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

    model: ModelServer
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
    model = ModelServer()
    async with ScriptedUpstream(model.serve) as upstream:
        made = Settings(**{"upstream": {"base_url": upstream.base_url}, "data_dir": folder, **settings})
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
