"""Bytes for a client whose response is not decided yet, so that nothing on the way gives up: those that the upstream
sends before any content, and the proxy's own comments for streams that wait for their first event.

Rule: until the first such byte nothing changes. After it a 200 is on its way, so a later error is reported in the body:
as an event of a stream, else as JSON. An upstream that begins like this has no other way itself; for the proxy's own
comments this is why `overflow.keepalive_seconds` is off by default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct, field
from starlette.types import Message, Send

from proxy.shell.upstream.client import Headers
from proxy.wire.protocol import Wire

_MAX_BODY_BYTES: Final = 1024 * 1024
"""Of a response that must be sent in another form; errors are far shorter."""


class KeepAlive(Struct):
    """Respond through `send`, which acts as the server's own `send` unless bytes were sent before the response was
    decided."""

    _send: Send
    _wire: Wire
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: bool = False
    """Whether the client has received a head."""
    _committed: bool = False
    """Whether that was before the response was decided."""
    _as_events: bool = True
    """Whether the committed body is a stream."""
    _status: int = 200
    _whole: bytearray | None = None
    """A response that must be sent in another form, as far as it has arrived."""

    @contextlib.asynccontextmanager
    async def comments(self, seconds: float, wanted: Callable[[], bool], headers: Headers) -> AsyncIterator[None]:
        """Sends a comment at this interval. `wanted` is called before each: whether the client wants a stream is known
        once its request has been read."""
        ticking = asyncio.create_task(self._tick(seconds, wanted, headers))
        try:
            yield
        finally:
            ticking.cancel()

    async def pass_on(self, headers: Headers, piece: bytes) -> None:
        """Pass on what the upstream sends before any content. `headers` are for a client that has none yet."""
        async with self._starting:
            if not self._begun:
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                self._begun = self._committed = True
                self._as_events = self._wire.framing.is_stream(headers)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    @property
    def is_direct(self) -> bool:
        """Whether the messages after a head go to the server as they are."""
        return self._whole is None

    @property
    def rest(self) -> Send:
        """What sends the messages after a head: the server's own `send` unless they no longer fit. Events come by the
        thousand, and each would pass one more function for nothing."""
        return self._send if self.is_direct else self.send

    async def send(self, message: Message) -> None:
        """An ASGI message of the response; after the body is committed, messages that no longer fit are translated."""
        is_start = message["type"] == "http.response.start"
        if not self._committed:
            self._begun |= is_start
            await self._send(message)
        elif is_start:
            self._status = message["status"]
            fits = self._wire.framing.is_stream(message["headers"]) if self._as_events else self._status < 400
            self._whole = None if fits else bytearray()
        elif self._whole is None:
            await self._send(message)
        else:
            self._whole += message.get("body", b"")[: _MAX_BODY_BYTES - len(self._whole)]
            if not message.get("more_body", False):
                told = self._wire.error_in_stream if self._as_events else self._wire.error_in_body
                await self._send({"type": "http.response.body", "body": told(self._status, bytes(self._whole))})

    async def _tick(self, seconds: float, wanted: Callable[[], bool], headers: Headers) -> None:
        framing = self._wire.framing
        head = [(b"content-type", framing.content_type), (b"cache-control", b"no-cache"), *headers]
        while framing.comment:
            await asyncio.sleep(seconds)
            if wanted():
                await self.pass_on(head, framing.comment)
