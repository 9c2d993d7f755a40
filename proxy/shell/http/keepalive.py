"""What a client gets while its answer does not stand yet, so that nothing between gives up: what the upstream sends
before it says anything, and comments of the proxy's own for streams that wait for their first event.

Rule: until the first such byte nothing changes. With it a 200 is on its way, so that an error that comes later is told
in the body: as an event of a stream, else as its JSON. An upstream that begins so has no other way itself; for the
proxy's own comments this is why `overflow.keepalive_seconds` is off unless it is set.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.types import Message, Send

from proxy.shell.upstream.client import Headers
from proxy.wire.protocol import Wire

COMMENT: Final = b": keepalive\n\n"
"""Clients skip lines that begin with a colon."""
_HEAD: Final[Headers] = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_MAX_BODY_BYTES: Final = 1024 * 1024
"""Of an answer that has to be told in another form; errors are shorter by far."""


class KeepAlive:
    """Answer through `send`, which is the server's own `send` as long as nothing went out before the answer stood."""

    def __init__(self, send: Send, wire: Wire) -> None:
        self._send = send
        self._wire = wire
        self._starting = asyncio.Lock()
        self._begun = False
        """Whether the client has a head."""
        self._committed = False
        """Whether that was before its answer stood."""
        self._as_events = True
        """Whether the committed body is a stream."""
        self._status = 200
        self._whole: bytearray | None = None
        """An answer that has to be told in another form, as far as it has come."""

    @contextlib.asynccontextmanager
    async def comments(self, seconds: float, wanted: Callable[[], bool], headers: Headers) -> AsyncIterator[None]:
        """Sends a comment every so many seconds. `wanted` is asked before each: whether the client wants a stream is
        known once its request has been read."""
        ticking = asyncio.create_task(self._tick(seconds, wanted, [*_HEAD, *headers]))
        try:
            yield
        finally:
            ticking.cancel()

    async def pass_on(self, headers: Headers, piece: bytes) -> None:
        """What the upstream sends before it says anything. `headers` are for a client that has none yet."""
        async with self._starting:
            if not self._begun:
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                self._begun = self._committed = True
                self._as_events = _is_stream(headers)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send(self, message: Message) -> None:
        """An ASGI message of the response; once the body is committed, what does not belong there is translated."""
        is_start = message["type"] == "http.response.start"
        if not self._committed:
            self._begun |= is_start
            await self._send(message)
        elif is_start:
            self._status = message["status"]
            fits = _is_stream(message["headers"]) if self._as_events else self._status < 400
            self._whole = None if fits else bytearray()
        elif self._whole is None:
            await self._send(message)
        else:
            self._whole += message.get("body", b"")[: _MAX_BODY_BYTES - len(self._whole)]
            if not message.get("more_body", False):
                told = self._wire.error_in_stream if self._as_events else self._wire.error_in_body
                await self._send({"type": "http.response.body", "body": told(self._status, bytes(self._whole))})

    async def _tick(self, seconds: float, wanted: Callable[[], bool], headers: Headers) -> None:
        while True:
            await asyncio.sleep(seconds)
            if wanted():
                await self.pass_on(headers, COMMENT)


def _is_stream(headers: Headers) -> bool:
    return any(name == b"content-type" and b"event-stream" in value.lower() for name, value in headers)
