"""A client's connection as the server's parser sees it: whole heads of bounded size, one request at a time.

Rule: a client that is slow, or sends more than it may, delays nobody else and is told why. The `asyncio.Protocol` here
sits in front of uvicorn's, which it calls only as a transport would; the application says through `scope["state"]` when
it is done with a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.errors import ProxyError, RequestTimeout, TooManyConnections
from proxy.shell.http.disconnect import STATE_KEY
from proxy.shell.http.framing import Requests
from proxy.shell.resources.logs import logger, write_lines_for
from proxy.wire.json_wire import error_body

DRAIN_SECONDS: Final = 1.0
"""For an idle connection once the server stops. A request that is on its way then still gets its response, with the
notice that it was the last one; closing at once would reset the connection. As nginx's keepalive_min_timeout:
https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_min_timeout"""
_LINGER_SECONDS: Final = 5.0
"""How long the rest of a refused request is read and thrown away: the system resets a connection that is closed with
bytes unread, and the client then loses the refusal.
https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close"""
_LINGER_BYTES: Final = 64 * 1024 * 1024
"""How much of it: a flood from this machine brings some GB/s, which the loop would spend its time on."""
_HELD_BYTES: Final = 64 * 1024
"""Of the requests that a client sends ahead; at more, the proxy stops reading from it."""


class ConnectionLimits(Struct, frozen=True):
    """How much of the server a client may use."""

    max_head_bytes: int
    head_seconds: float
    """For a head, from its first byte, and for the first byte of a new connection."""
    keep_alive_seconds: float
    """For the first byte of the next request."""
    max_connections: int


class Connections:
    """All connections of one process; passed to uvicorn as its `http` class. Can be pickled until it is called."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.waiting: dict[Connection, None] = {}
        """Connections without a request under way, the longest idle first."""
        self.is_draining = False
        self.state: ServerState | None = None
        """Shared by uvicorn's protocols; its headers are ours."""
        self._open: set[Any] = set()

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        if self.state is None:
            self.state = ServerState()
            self.state.tasks = server_state.tasks  # the server waits for these
            self._open = server_state.connections  # and for these, after telling them to shut down
        connection = Connection(self)
        state = {**app_state, STATE_KEY: connection}
        connection.parser = HttpToolsProtocol(config=config, server_state=self.state, app_state=state, _loop=_loop)
        return connection

    def admit(self, connection: Connection) -> bool:
        """Count a new connection. At the limit the longest idle one makes room for it; False if none is idle."""
        if len(self._open) >= self.limits.max_connections:
            idle = next(iter(self.waiting), None)
            if idle is None:
                return False
            del self.waiting[idle]  # it is counted until it is closed, but may make room only once
            idle.close()
        self._open.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection has closed."""
        self._open.discard(connection)
        self.waiting.pop(connection, None)

    def drain(self) -> None:
        """From now on each response says that its connection ends with it."""
        if not self.is_draining and self.state is not None:
            self.is_draining = True
            self.state.default_headers.append((b"connection", b"close"))


class Connection(asyncio.Protocol):
    """One connection. All input passes through here; output goes directly from uvicorn to the socket."""

    parser: HttpToolsProtocol
    is_writable = True
    """As Losable says."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._requests = Requests(connections.limits.max_head_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: _Output
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        """Whether the application is handling a request of this connection."""
        self._is_refused = False
        """Whether further input is ignored."""
        self._ignored_bytes = 0
        self._held = b""
        """What has arrived of the requests after that one."""
        self._is_lost = False
        """Whether the application has been told that its client is gone."""
        self._leave: Callable[[], None] | None = None
        """Called when the connection is lost."""
        self._stop_chunks: Callable[[], None] | None = None
        """Called when the connection is no longer writable."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # of a stream
        self._transport = _Output(transport, self._loop)
        is_admitted = self._connections.admit(self)
        self.parser.connection_made(self._transport)
        if is_admitted:
            self._connections.waiting[self] = None
            self._wait(self._limits.head_seconds)
        else:
            most = self._limits.max_connections
            self._refuse(TooManyConnections(f"all {most:,} connections are taken (server.max_connections)"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._connections.forget(self)
        self._lose(exc)

    def when_lost(self, then: Callable[[], None] | None) -> None:
        """As Losable says."""
        self._leave = then
        if self._is_lost and then is not None:
            self._loop.call_soon(then)

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """As Losable says."""
        cycle = self.parser.cycle
        if cycle is None or not cycle.chunked_encoding or cycle.response_complete or not self.is_writable:
            return None
        self._stop_chunks = stop
        return self._transport.direct

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > _LINGER_BYTES:
                self._transport.pause_reading()
            return
        was_in_body, was_between = self._requests.is_in_body, self._requests.is_between
        if self._is_busy and not was_in_body:
            self._hold(data)
            return
        try:
            passed, rest = self._requests.take(data)
        except ProxyError as error:
            self._refuse(error, is_begun=was_in_body)
            return
        if passed:
            if not was_in_body:
                self._begin_request()
            self.parser.data_received(passed)
            if rest:
                self.data_received(rest)
        elif was_between and not self._requests.is_between:
            self._wait(self._limits.head_seconds)

    def eof_received(self) -> None:
        self.parser.eof_received()

    def pause_writing(self) -> None:
        self._stop_writing()
        self.parser.pause_writing()

    def resume_writing(self) -> None:
        self.is_writable = not self._is_lost
        self.parser.resume_writing()

    @property
    def is_draining(self) -> bool:
        """Whether the server is stopping, so that responses without an end should end."""
        return self._connections.is_draining

    @property
    def has_whole_request(self) -> bool:
        """Whether the body of the request that is under way has arrived."""
        return not self._requests.is_in_body

    def request_over(self) -> None:
        """The application is done with its request."""
        self._is_busy, self._stop_chunks = False, None
        if self._transport.is_closing() or self._is_refused:
            return
        if self._requests.is_held_back:  # what came next could be that body, or a request
            self._end()
            return
        self._connections.waiting[self] = None
        self._wait(self._limits.keep_alive_seconds)
        if self._held:
            held, self._held = self._held, b""
            self._transport.resume_reading()
            self.data_received(held)

    def shutdown(self) -> None:
        """The server stops: respond to the current request, and to what arrives within a moment."""
        self._connections.drain()
        if not self._is_busy and not self._is_refused:
            self._wait(DRAIN_SECONDS)

    def close(self) -> None:
        """Close now; what was written is still sent."""
        self._transport.close()

    def _stop_writing(self) -> None:
        self.is_writable = False
        if self._stop_chunks is not None:
            self._stop_chunks()
            self._stop_chunks = None

    def _begin_request(self) -> None:
        self._is_busy = True
        self._transport.hold_next()
        self._stop_waiting()
        self._connections.waiting.pop(self, None)

    def _hold(self, data: bytes) -> None:
        """Keep the bytes that belong to requests after the current one."""
        self._held += data
        if len(self._held) > _HELD_BYTES:
            self._transport.pause_reading()

    def _refuse(self, error: ProxyError, *, is_begun: bool = False) -> None:
        """Say why nothing more is read, and close once the client has had time to read that.

        `is_begun`: the application has the head of this request, and may have begun its response, which then breaks
        off.
        """
        self._connections.waiting.pop(self, None)
        logger().info("request_refused", status=error.status, outcome=error.code, problem=error.message)
        if not (is_begun and self.parser.cycle.response_started):
            self._transport.write(_answer(error))
        if self._is_busy:
            self._lose(error)  # an error leaves the closing to us
        self._end()

    def _lose(self, reason: Exception | None) -> None:
        """Tell the application that its client is gone."""
        if self._is_lost:
            return
        self._is_lost = True
        self._stop_writing()
        self.parser.connection_lost(reason)
        if self._leave is not None:
            self._leave()

    def _end(self) -> None:
        """Ignore further input, and close once the client has had time to read what was written."""
        self._is_refused = True
        self._transport.write_eof()
        self._timer_in(_LINGER_SECONDS, self.close)

    def _wait(self, seconds: float) -> None:
        """Wait for the client to send something."""
        self._timer_in(DRAIN_SECONDS if self._connections.is_draining else seconds, self._late)

    def _late(self) -> None:
        if self._requests.is_between or self._requests.is_in_body:
            self.close()  # no request is left without a response
        else:
            limit = self._limits.head_seconds
            self._refuse(RequestTimeout(f"the head took longer than {limit:g} s (server.header_timeout_seconds)"))

    def _timer_in(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Output(asyncio.Transport):
    """The socket as uvicorn's protocol writes to it: the head of a response and what follows it in the same turn of the
    loop go out together. A body that fits beside its head costs one system call, and wakes its client once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._socket = transport
        self._loop = loop
        self._head: bytes | None = None
        """A head that is held."""
        self._go_on()

    @property
    def direct(self) -> Callable[[bytes], None] | None:
        """What writes to the socket; None while a head is held."""
        return self._socket.write if self._head is None else None

    def hold_next(self) -> None:
        """What is written next is the head of a response."""
        self.write = self._hold  # type: ignore[method-assign] # so that events of a stream pass nothing of ours

    def _hold(self, data: bytes | bytearray | memoryview) -> None:
        self._head = bytes(data)
        self.write = self._send_with_head  # type: ignore[method-assign] # as above
        self._loop.call_soon(self._send_head)

    def _send_with_head(self, data: bytes | bytearray | memoryview) -> None:
        head, self._head = self._head or b"", None
        self._go_on()
        self._socket.writelines((head, data))

    def _send_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._go_on()
            self._socket.write(head)

    def _go_on(self) -> None:
        self.write = self._socket.write  # type: ignore[method-assign] # as above

    def write_eof(self) -> None:
        self._send_head()
        self._socket.write_eof()

    def close(self) -> None:
        self._send_head()
        self._socket.close()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


def _answer(error: ProxyError) -> bytes:
    body = error_body(error)
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def telling(app: ASGIApp) -> ASGIApp:
    """An application that tells each connection when its request is done."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            write_lines_for("")  # the connection's timers begin here, and belong to no request
            connection = scope.get("state", {}).get(STATE_KEY)
            if connection is not None:
                connection.request_over()

    return told
