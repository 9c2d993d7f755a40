"""Listens in between a client and what it takes for its API: every request and answer passes as it is, and is kept."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

TURN_HEADER: Final = "x-e2e-turn"
"""Tells the upstream which request of the client it serves; a proxy passes on what it does not know."""
_OF_THE_CONNECTION: Final = ("host", "content-length", "transfer-encoding", "keep-alive", "expect")
_MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass
class Exchange:
    """One request of the client, and what it got."""

    number: int
    method: str
    path: str
    sent: bytes
    asked: dict[str, str] = field(default_factory=dict)
    """Headers of the request."""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    received: bytearray = field(default_factory=bytearray)

    @property
    def body(self) -> Any:
        """The sent body, parsed."""
        return json.loads(self.sent)

    @property
    def is_refused(self) -> bool:
        """Whether the client sees an error, in the status or in a stream."""
        body = bytes(self.received)
        reported = (
            b"event: error",
            b"event: response.failed",
            b"event: response.incomplete",
            b"context_window_exceeded",
        )
        return self.status >= 400 or any(word in body for word in reported)


class Tap:
    """`async with Tap("http://127.0.0.1:1234") as tap:`, and the client is sent to `tap.root`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.exchanges: list[Exchange] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout())
        application = web.Application(client_max_size=_MAX_BYTES)
        application.router.add_route("*", "/{any:.*}", self._pass)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.root = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(len(self.exchanges) + 1, request.method, request.path, await request.read())
        exchange.asked = {name.lower(): text for name, text in request.headers.items()}
        self.exchanges.append(exchange)
        headers = [(name, text) for name, text in request.headers.items() if name.lower() not in _OF_THE_CONNECTION]
        headers.append((TURN_HEADER, str(exchange.number)))
        async with self._session.request(
            request.method, self._target + request.path_qs, headers=headers, data=exchange.sent or None
        ) as answer:
            exchange.status = answer.status
            exchange.headers = {name.lower(): text for name, text in answer.headers.items()}
            out = web.StreamResponse(status=answer.status)
            for name, text in answer.headers.items():
                if name.lower() not in (*_OF_THE_CONNECTION, "connection"):
                    out.headers.add(name, text)
            with contextlib.suppress(ConnectionError):  # a client that has heard enough
                await out.prepare(request)
                async for piece in answer.content.iter_any():
                    exchange.received += piece
                    await out.write(piece)
                await out.write_eof()
            return out
