"""Upstreams that answer questions about their models in the process; no sockets.

Rule: a URL that no test has named is a mistake of the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from proxy.config.upstreams import UpstreamSettings


@dataclass(frozen=True)
class Reply:
    """A response whose body comes in one piece."""

    status: int
    body: bytes = b""

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class Route:
    """What is asked and answered at one URL."""

    reply: Reply = field(default_factory=lambda: Reply(200))
    failure: Exception | None = None
    """Raised instead."""
    is_silent: bool = False
    """There is no reply at all."""
    key: str | None = None
    """Without it, a 401 that quotes what came instead."""
    asked: list[Mapping[bytes, bytes]] = field(default_factory=list)
    """The headers of each question."""

    def respond(self, status: int = 200, *, body: Any = None) -> None:
        """From now on; `body`: JSON, or bytes as they are."""
        self.reply = Reply(status, body if isinstance(body, bytes) else json.dumps(body).encode())

    async def answer(self, headers: Mapping[bytes, bytes]) -> Reply:
        self.asked.append(headers)
        if self.failure is not None:
            raise self.failure
        if self.is_silent:
            await asyncio.Event().wait()
        sent = headers.get(b"authorization", b"")
        return self.reply if self.key is None or sent == b"Bearer " + self.key.encode() else Reply(401, b"no " + sent)


class AskedUpstreams:
    """All upstreams of a test."""

    def __init__(self, bodies: Mapping[str, Any] | None = None) -> None:
        """`bodies`: the answers to begin with, by URL."""
        self._routes: dict[str, Route] = {}
        for url, body in (bodies or {}).items():
            self.route(url, body=body)

    def route(self, url: str, status: int = 200, *, body: Any = None) -> Route:
        """A URL that may be asked for."""
        route = self._routes[url] = Route()
        route.respond(status, body=body)
        return route

    @property
    def count(self) -> int:
        """How many questions came so far."""
        return sum(len(route.asked) for route in self._routes.values())

    def connections(self, settings: UpstreamSettings) -> _Connections:
        """What stands in the place of `Upstream`."""
        return _Connections(settings, self._routes)


class _Connections:
    def __init__(self, settings: UpstreamSettings, routes: Mapping[str, Route]) -> None:
        parts = urlsplit(settings.base_url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._routes = routes

    async def send(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes | None) -> Reply:
        assert (method, body) == ("GET", None), "a hosted upstream is asked for its list and nothing else"
        route = self._routes[self._origin + target.decode()]
        return await route.answer(dict(headers))

    async def aclose(self) -> None:
        """Nothing is open."""
