"""A client's connection: uvicorn's protocol, with bounds on heads, on the framing of chunks and on waiting.

Rule: a client that is slow, or sends more than it may, delays no other client and gets a reason. httptools (llhttp)
decides where a request ends and refuses what two readers could frame differently (RFC 9112 11.2). What arrives behind a
request that is being served waits as bytes, so requests are parsed and served one at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from proxy.errors import (
    HeadTooLarge,
    MalformedRequest,
    NoTunnel,
    ProxyError,
    RequestTimeout,
    TooManyConnections,
    UnknownCoding,
)
from proxy.shell.http.clients import STATE_KEY, Output
from proxy.shell.resources import logger
from proxy.wire import error_body

DRAIN_SECONDS: Final = 1.0
"""How long an idle connection stays open once the server stops. A request that is on its way then still gets its
response, with the notice that it was the last one; closing at once would reset the connection. As nginx's
keepalive_min_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_min_timeout"""
MAX_HEADERS: Final = 200
"""Twice the limit of Apache (https://httpd.apache.org/docs/2.4/mod/core.html#limitrequestfields) and gunicorn
(https://docs.gunicorn.org/en/stable/settings.html#limit-request-fields): gateways add their own."""
_LINGER_SECONDS: Final = 5.0
"""How long the rest of a refused request is read and thrown away: the system resets a connection that is closed with
bytes unread, and the client then loses the refusal.
https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close"""
_LINGER_BYTES: Final = 64 * 1024 * 1024
"""How much of it: a flood from this machine brings some GB/s, which the loop would spend its time on."""
_HELD_BYTES: Final = 64 * 1024
"""Requests that a client sends ahead; beyond this, the proxy stops reading from it."""
_FREE_CHUNK_BYTES: Final = 300_000
"""A chunked body may have so many bytes besides three times its content. A chunk of three bytes has eight; encoders
that send each JSON token as a chunk, as Python's `iterencode` does, write more. Below that each byte costs a call."""
_MAX_CHUNK_LINE_BYTES: Final = 8192
"""A chunk's length with its extensions, or the trailer: one of nginx's header buffers."""
_TLS: Final = b"\x16"
"""How a handshake begins, in every version (RFC 8446 5.1)."""
_TLS_PROBLEM: Final = "the client speaks TLS, but this port speaks HTTP: use http://, or put a TLS proxy in front"
_PROBLEMS: Final = {"Pause on PRI/Upgrade": "HTTP/2 is not spoken here; HTTP/1.1 is"}
"""llhttp's messages that leave the client guessing (RFC 9113 3.4)."""
_BLANK_LINE: Final = b"\r\n\r\n"
_EMPTY_LINES: Final = re.compile(rb"[\r\n]+")
_CHUNK_LINE: Final = re.compile(rb"0*([1-9A-Fa-f][0-9A-Fa-f]{0,15})(?:;[^\n]*)?\r\n")
"""The line before a chunk's content, with its size (RFC 9112 7.1). llhttp refuses what it would read otherwise."""
_OF_THE_CONNECTION: Final = frozenset((b"connection", b"transfer-encoding"))
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that uvicorn refuses in a header, without line ends, which are counted."""


class Connections(Struct):
    """All connections of one process, and how much of the server each client may use."""

    max_head_bytes: int
    head_seconds: float
    """Timeout of a head, from its first byte, and of the first byte of a new connection."""
    keep_alive_seconds: float
    """Timeout of the first byte of the next request."""
    max_connections: int
    waiting: dict[Connection, None] = {}
    """Connections without a request under way, the longest idle first."""
    is_draining: bool = False
    """The server stops: each response ends its connection."""


class Connection(HttpToolsProtocol):
    """One connection, in the application's `scope["state"][STATE_KEY]` as a `Losable`."""

    transport: Any  # an `Output`
    is_writable = True
    """See Losable."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, STATE_KEY: self}, _loop)
        self._all = connections
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = self._is_in_body = False
        self._is_busy = False
        """Whether the application is handling a request of this connection."""
        self._is_refused = False
        """Whether further input is ignored."""
        self._ignored_bytes = 0
        self._held = bytearray()
        """Bytes received of the requests after that one."""
        self._end_of_last = b""
        """The last bytes of the piece before, if its blank line or the line before a chunk may be incomplete."""
        self._body_left = 0
        """Missing bytes of a body of known length."""
        self._chunk_left = 0
        """Missing bytes of a chunk, with the line end after its content."""
        self._line_bytes = 0
        """Since the beginning of the head, or since the last content of a chunk."""
        self._body_bytes = self._content_bytes = 0
        """Size of this body: as sent, and without the framing of its chunks."""
        self._is_lost = False
        """Whether the application knows that its client is gone."""
        self._leave: Callable[[], None] | None = None
        """Called when the connection is lost."""
        self._stop_chunks: Callable[[], None] | None = None
        """Called when the connection is no longer writable."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # of a stream
        most, waiting = self._all.max_connections, self._all.waiting
        is_full = len(self.connections) >= most
        if is_full and (idle := next(iter(waiting), None)) is not None:
            del waiting[idle]  # counted until it is closed, but may make room only once
            idle.transport.close()
            is_full = False
        super().connection_made(Output(transport, self.loop))  # type: ignore[arg-type] # it has what uvicorn calls
        if is_full:
            self._refuse(TooManyConnections(f"all {most:,} connections are taken (server.max_connections)"))
        else:
            waiting[self] = None
            self._wait(self._all.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._all.waiting.pop(self, None)
        self._lose()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        taken = self._parse_pieces(data) if not self._held or self._is_refused else 0
        if taken < len(data):
            self._held += data[taken:]
            if len(self._held) > _HELD_BYTES:
                self.transport.pause_reading()

    def _parse_pieces(self, data: bytes | bytearray) -> int:
        """Parse up to the end of a request that is being served, and return how many bytes that took. A piece ends
        where a request may end, so none contains parts of two. Blank lines in a body make no pieces: a body may consist
        of them."""
        at = 0
        while at < len(data):
            if self._is_refused:
                self._ignored_bytes += len(data) - at
                if self._ignored_bytes > _LINGER_BYTES:
                    self.transport.pause_reading()
                return len(data)
            if self._is_busy and not self._is_in_body:
                break
            begin = at
            if self._body_left:
                at += self._body_left
            elif self._is_in_body:
                at = self._end_of_chunks(data, at)
            else:
                at = self._end_of_head(data, at)
            self._parse(data[begin:at])
        return at

    def _end_of_head(self, data: bytes | bytearray, begin: int) -> int:
        """Return where the head ends, or the data."""
        before, self._end_of_last = self._end_of_last, b""
        joined = before + data if before else data
        if joined[begin] in b"\r\n" and not self._is_in_head and (empty := _EMPTY_LINES.match(joined, begin)):
            begin = empty.end()  # lines before a request end nothing (RFC 9112 2.2)
        end = joined.find(_BLANK_LINE, begin)
        if end < 0:
            self._end_of_last = bytes(joined[-3:])
            return len(data)
        return end + len(_BLANK_LINE) - len(before)

    def _end_of_chunks(self, data: bytes | bytearray, begin: int) -> int:
        """Return where the chunks end that begin here; without one, where the line ends, or the data."""
        before, self._end_of_last = self._end_of_last, b""
        joined = before + data if before else data
        end = begin + self._chunk_left
        while (line := _CHUNK_LINE.match(joined, end)) is not None:
            end = line.end() + int(line[1], 16) + len(b"\r\n")
        if end == begin:
            end = joined.find(b"\n", begin) + 1
            if not end:
                end, self._end_of_last = len(joined), bytes(joined[begin:])
        self._chunk_left = max(end - len(joined), 0)
        return end - len(before)

    def _parse(self, data: bytes | bytearray) -> None:
        was_in_head = self._is_in_head
        self._line_bytes += len(data)
        if self._is_in_body:
            self._body_bytes += len(data)
            self._body_left -= min(len(data), self._body_left)
        try:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade:
                self._feed_again()
            if self._is_in_head:
                self._check_head()
                if not was_in_head:
                    self._wait(self._all.head_seconds)
            elif self._is_in_body and not self._body_left:
                self._check_chunks()
        except HttpParserError as error:
            cause = error.__context__  # of an error in a callback
            problem = (
                _TLS_PROBLEM
                if data.startswith(_TLS) and not self._is_in_body
                else _PROBLEMS.get(f"{error}", f"{error}")
            )
            self._refuse(cause if isinstance(cause, ProxyError) else MalformedRequest(problem))
        except ProxyError as error:
            self._refuse(error)

    def _feed_again(self) -> None:
        """Feed the head without its wish for an upgrade: what follows would be the other protocol's, the body too."""
        if self._is_in_head:
            headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            line = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
            self.parser.feed_data(line + b"".join(headers) + b"\r\n")

    def _check_head(self) -> None:
        """Check the limits for a head, or for what has arrived of it."""
        most = self._all.max_head_bytes
        if self._line_bytes > most:
            raise HeadTooLarge(f"the head of the request has more than {most:,} bytes (server.max_header_bytes)")
        if len(self.headers) > MAX_HEADERS:
            raise HeadTooLarge(f"the request has more than {MAX_HEADERS} headers")

    def _check_chunks(self) -> None:
        if self._line_bytes > _MAX_CHUNK_LINE_BYTES:
            raise MalformedRequest(
                f"the request has a chunk or trailer with over {_MAX_CHUNK_LINE_BYTES:,} other bytes"
            )
        if self._body_bytes > _FREE_CHUNK_BYTES + 3 * self._content_bytes:
            raise MalformedRequest("the request's chunks have less than 3 bytes each on average")

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))  # uvicorn compares each with `expect`

    def on_headers_complete(self) -> None:
        self._check_head()
        found = dict(self.headers)
        if b"expect" in found:
            self.expect_100_continue = any(v.lower() == b"100-continue" for n, v in self.headers if n == b"expect")
        if b"transfer-encoding" in found:
            _check_codings([value for name, value in self.headers if name == b"transfer-encoding"])
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise NoTunnel("this is no forward proxy: CONNECT opens no tunnel here")
            return  # upgrades are not offered, so the request comes again without its wish (RFC 9110 7.8)
        length = found.get(b"content-length", b"0")
        if not length.isdigit():  # llhttp leaves the blanks after it
            self.headers[:] = [(n, v.strip() if n == b"content-length" else v) for n, v in self.headers]
        super().on_headers_complete()
        self.headers = []  # the trailer's, which no application sees
        self._is_in_head, self._is_in_body, self._is_busy = False, True, True
        self._body_left = int(length)
        self._line_bytes = self._body_bytes = self._content_bytes = 0
        if self._all.is_draining:
            self.cycle.keep_alive = False
        self.transport.hold_next()
        self._stop_waiting()
        self._all.waiting.pop(self, None)

    def on_body(self, body: bytes) -> None:
        self._content_bytes += len(body)
        self._line_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_in_body:
            self._is_in_body, self._line_bytes = False, 0
            super().on_message_complete()

    # The application.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle.scope["http_version"] < "1.1":
            app = _without_chunks(cycle, app)
        task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self._request_over)

    def on_response_complete(self) -> None:
        """The next request waits until the application has returned."""

    def _request_over(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._is_busy, self._stop_chunks = False, None
        if self.transport.is_closing() or self._is_refused:
            return
        if self.expect_100_continue and self._is_in_body and not self._body_bytes:
            self._end()  # what came next could be that body, or a request (RFC 9110 10.1.1)
            return
        self._all.waiting[self] = None
        self._wait(self._all.keep_alive_seconds)
        self.flow.resume_reading()
        if self._held:
            del self._held[: self._parse_pieces(self._held)]
            if len(self._held) <= _HELD_BYTES:
                self.transport.resume_reading()

    def when_lost(self, then: Callable[[], None] | None) -> None:
        """See Losable."""
        self._leave = then
        if self._is_lost and then is not None:
            self.loop.call_soon(then)

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """See Losable."""
        cycle = self.cycle
        if cycle is None or not cycle.chunked_encoding or cycle.response_complete or not self.is_writable:
            return None
        self._stop_chunks = stop
        return self.transport.direct  # type: ignore[no-any-return] # see above

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """See Losable. Through uvicorn, FastAPI and Starlette, a response takes four times as many steps."""
        cycle, named = self.cycle, dict(headers)
        is_simple = named.get(b"content-length") == b"%d" % len(body) and named.keys().isdisjoint(_OF_THE_CONNECTION)
        may_be_sent = self.is_writable and cycle.keep_alive and not cycle.response_started
        if not (is_simple and may_be_sent) or cycle.scope["method"] == "HEAD":
            return False
        lines = (*cycle.default_headers, *headers)
        head = b"".join(map(b"%b: %b\r\n".__mod__, lines))
        if not head.count(b"\r") == head.count(b"\n") == len(lines) or _CONTROLS.search(head):
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write_whole(b"%b%b\r\n" % (STATUS_LINE[status], head), body)
        cycle.message_event.set()
        return True

    @property
    def has_whole_request(self) -> bool:
        """Whether the body of the request that is under way has arrived."""
        return not self._is_in_body

    @property
    def is_draining(self) -> bool:
        """Whether the server is stopping, so that responses without an end should end."""
        return self._all.is_draining

    # The end.

    def pause_writing(self) -> None:
        self._stop_writing()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.is_writable = not self._is_lost
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: respond to the current request, and to what arrives within a moment. A response whose head
        has promised to keep the connection keeps it so long."""
        self._all.is_draining = True
        if self._is_busy:
            self.cycle.keep_alive = self.cycle.keep_alive and self.cycle.response_started
        elif not self._is_refused:
            self._wait(DRAIN_SECONDS)

    def _stop_writing(self) -> None:
        self.is_writable = False
        if self._stop_chunks is not None:
            self._stop_chunks()
            self._stop_chunks = None

    def _refuse(self, error: ProxyError) -> None:
        """Say why nothing more is read, and close once the client has had time to read that. A response that has begun
        breaks off instead."""
        self._all.waiting.pop(self, None)
        logger().info("request_refused", status=error.status, code=error.code, problem=error.message)
        if not (self._is_in_body and self.cycle.response_started):
            self.transport.write(_answer(error))
        if self._is_busy:
            self._lose()
        self._end()

    def _lose(self) -> None:
        """Tell the application that its client is gone."""
        if self._is_lost:
            return
        self._is_lost = True
        self._stop_writing()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()
        if self._leave is not None:
            self._leave()

    def _end(self) -> None:
        """Ignore further input, and close once the client has had time to read what was written."""
        self._is_refused = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self._stop_waiting()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _wait(self, seconds: float) -> None:
        """Wait for the client to send something."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(DRAIN_SECONDS if self._all.is_draining else seconds, self._late)

    def _late(self) -> None:
        if self._is_in_head:
            limit = self._all.head_seconds
            self._refuse(RequestTimeout(f"the head took longer than {limit:g} s (server.header_timeout_seconds)"))
        else:
            self.transport.close()  # no request is left without a response

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _without_chunks(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """Have a response without a length end with its connection, as the client knows no chunks (RFC 9112 6.1)."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_measured = False

        async def send_unframed(message: Message) -> None:
            nonlocal is_measured
            if message["type"] == "http.response.start":
                is_measured = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = None if is_measured else False
            elif not is_measured:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unframed)  # type: ignore[arg-type] # uvicorn's own types of the same

    return answer  # type: ignore[return-value] # see above


def _check_codings(values: list[bytes]) -> None:
    """llhttp refuses `chunked` before the end; without `chunked` the end of the body cannot be known (RFC 9112 6.3)."""
    codings = [coding.strip().lower() for coding in b",".join(values).split(b",")]
    if codings[-1] != b"chunked":
        raise MalformedRequest("the request does not say plainly how long its body is")
    if len(codings) > 1:
        raise UnknownCoding("a request may have no transfer coding but chunked; Content-Encoding can be read")


def _answer(error: ProxyError) -> bytes:
    body = error_body(error)
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
