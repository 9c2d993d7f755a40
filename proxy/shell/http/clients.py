"""The client's side of a request under way: its departure, which stops the work, and bytes sent before the response is
decided, which keep it waiting.

Rule: the upstream stops computing as soon as the client has left. Once the first byte was sent, the status is 200, so a
later error is reported in the body: as an event of a stream, else as JSON. That is why `overflow.keepalive_seconds` is
off by default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from proxy.errors import ClientLeft
from proxy.shell.upstream import Headers
from proxy.wire import Wire

STATE_KEY: Final = "connection"
"""Key of the client's connection in `scope["state"]`."""


class Losable(Protocol):
    """A connection whose client may stop reading."""

    @property
    def is_writable(self) -> bool:
        """Whether what is sent now goes out without waiting for the client to read."""

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """A function that takes whole chunks of the running response, with their framing, until `stop` is called, which
        happens when the connection is no longer writable; None if the response is not sent in chunks."""


def connection_of(scope: Scope) -> Losable | None:
    """The connection of a request; None if the server is not ours."""
    found: Losable | None = scope.get("state", {}).get(STATE_KEY)
    return found


def content_headers(kind: bytes, size: int) -> Headers:
    """Type and length of a body."""
    return [(b"content-type", kind), (b"content-length", b"%d" % size)]


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def until_client_leaves(
    receive: Receive, after: asyncio.Event | None = None
) -> AsyncIterator[Callable[[], object]]:
    """Run the block, and raise ClientLeft in it when the client leaves. Messages are received meanwhile and thrown
    away, so watching begins only when the body has been read: at once, or `after` the event that signals it.

    Yields a function that ends the watch, to be called before the last byte of the response is sent: servers report the
    end of a response with the same message as a client's departure.
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
        yield watching.cancel
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        raise ClientLeft("the client closed its connection before the response was complete") from None
    finally:
        watching.cancel()


_MAX_BODY_BYTES: Final = 1024 * 1024
"""Limit for a response that must be sent in another form; errors are far shorter."""


class KeepAlive(Struct):
    """Respond through `send`, which acts as the server's own `send` unless bytes were sent before the response was
    decided."""

    _send: Send
    _wire: Wire
    _starting: asyncio.Lock | None = None
    """Held while a head is sent; most responses have nothing before it."""
    _begun: bool = False
    """Whether the client has received a head."""
    is_committed: bool = False
    """Whether that was a success's, before the response was decided."""
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
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if not self._begun:
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                self._begun = self.is_committed = True
                self._as_events = self._wire.framing.is_stream(headers)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    @property
    def is_direct(self) -> bool:
        """Whether the messages after a head go to the server as they are."""
        return self._whole is None

    @property
    def rest(self) -> Send:
        """A function that sends the messages after a head: the server's own `send` unless they no longer fit. Events
        come by the thousand, and each would pass one more function for nothing."""
        return self._send if self.is_direct else self.send

    async def send(self, message: Message) -> None:
        """An ASGI message of the response; after the body is committed, messages that no longer fit are translated."""
        is_start = message["type"] == "http.response.start"
        if not self.is_committed:
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
                encode = self._wire.error_in_stream if self._as_events else self._wire.error_in_body
                await self._send({"type": "http.response.body", "body": encode(self._status, bytes(self._whole))})

    async def _tick(self, seconds: float, wanted: Callable[[], bool], headers: Headers) -> None:
        framing = self._wire.framing
        head = [(b"content-type", framing.content_type), (b"cache-control", b"no-cache"), *headers]
        while framing.comment:
            await asyncio.sleep(seconds)
            if wanted():
                await self.pass_on(head, framing.comment)
