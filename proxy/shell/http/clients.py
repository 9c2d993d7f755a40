"""The client's side of a request under way: the socket that its response is written to, its departure, which stops the
work, and bytes sent before the response is decided, which keep it waiting.

Rule: the head of a response is sent with what follows it in the same turn of the loop, which costs one system call and
wakes the client once. The upstream stops computing as soon as the client has left. Once the first byte was sent, the
status is 200, so a later error is reported in the body: as an event of a stream, else as JSON. That is why
`overflow.keepalive_seconds` is off by default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from proxy.errors import ClientLeft
from proxy.shell.upstream import Headers
from proxy.wire import Wire

STATE_KEY: Final = "connection"
"""Key of the client's connection in `scope["state"]`."""


class Losable(Protocol):
    """A connection that reports its loss."""

    @property
    def is_writable(self) -> bool:
        """Whether what is sent now goes out without waiting for the client to read."""

    @property
    def has_whole_request(self) -> bool:
        """Whether the body of the request that is under way has arrived."""

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """A function that takes whole chunks of the running response, with their framing, until `stop` is called, which
        happens when the connection is no longer writable; None if the response is not sent in chunks, or its head waits
        to be sent with what follows."""

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole response, as two messages of ASGI would; False if only those can."""

    def when_lost(self, then: Callable[[], None] | None) -> None:
        """Call `then` when the connection is lost, or soon if it is lost already; None: call nothing."""


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


class UntilClientLeaves(Struct, eq=False):
    """`async with UntilClientLeaves(receive):` runs its body, and raises ClientLeft in it when the client leaves.

    Without a `connection`, messages are received while watching and thrown away, so watching begins only when the body
    has been read: at once, or after the event that signals it. Call `release` before sending the last byte of the
    response: servers report the end of a response with the same message as a client's departure.
    """

    _receive: Receive
    after: asyncio.Event | None = None
    """Set when the body has been read."""
    connection: Losable | None = None
    """The client's, which costs less than a task for each request."""
    _left: bool = False
    _task: asyncio.Task[Any] | None = None
    _starting: asyncio.Handle | None = None
    _watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        if self.connection is not None:
            self.connection.when_lost(self._leave)
        else:
            # In the loop's next turn, when the request is on its way: before that nothing could be stopped.
            self._starting = asyncio.get_running_loop().call_soon(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
        if self._left and self._task is not None and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise ClientLeft("the client closed its connection before the response was complete") from None

    def release(self) -> None:
        """Stop watching."""
        if self.connection is not None:
            self.connection.when_lost(None)
            return
        if self._starting is not None:
            self._starting.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _start(self) -> None:
        self._watch = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        if self.after is not None:
            await self.after.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        assert self._task is not None, "runs inside a task"
        self._left = True
        self._task.cancel()


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


class Output:
    """The part of a transport that uvicorn's protocol calls."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = transport
        self._loop = loop
        self._head: bytes | None = None
        """A head that is held."""
        self.write: Callable[[bytes], None] = (
            transport.write
        )  # replaced while a head is held: else nothing is in between
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    @property
    def direct(self) -> Callable[[bytes], None] | None:
        """Writes to the socket; None while a head is held."""
        return self._socket.write if self._head is None else None

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Write a whole response, of which no head is held."""
        self.write = self._socket.write
        self._socket.writelines((head, body) if body else (head,))

    def hold_next(self) -> None:
        """Hold the next write: it is the head of a response."""
        self.write = self._hold

    def _hold(self, data: bytes) -> None:
        self._head = data
        self.write = self._send_with_head
        self._loop.call_soon(self._send_head)

    def _send_with_head(self, data: bytes) -> None:
        head, self._head = self._head or b"", None
        self.write = self._socket.write
        self._socket.writelines((head, data) if data else (head,))  # asyncio of Python 3.12: see Exchange.run

    def _send_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self.write = self._socket.write
            self._socket.write(head)

    def write_eof(self) -> None:
        self._send_head()
        self._socket.write_eof()

    def close(self) -> None:
        self._send_head()
        self._socket.close()
