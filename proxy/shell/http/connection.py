"""A client's connection: uvicorn's protocol with limits on heads, on the framing of chunks, on waiting.

Rule: llhttp decides where a request ends and refuses what two readers could frame differently (RFC 9112 11.2). A client
that is slow, or sends more than it may, delays no other client and gets a reason, behind the responses to what it sent
before.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy.errors import (
    HeadTooLarge,
    MalformedRequest,
    NoTunnel,
    ProxyError,
    RequestTimeout,
    TooManyConnections,
    UnknownCoding,
)
from proxy.shell.http.clients import STATE_KEY
from proxy.shell.resources import logger
from proxy.wire import error_body

DRAIN_SECONDS: Final = 1.0
"""How long an idle connection stays open once the server stops. A request that is on its way then still gets its
response, with the notice that it was the last one; closing at once would reset the connection. As nginx's
keepalive_min_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_min_timeout"""
MAX_HEADERS: Final = 200
"""Twice the limit of Apache (https://httpd.apache.org/docs/2.4/mod/core.html#limitrequestfields) and gunicorn
(https://docs.gunicorn.org/en/stable/settings.html#limit-request-fields): gateways add their own."""
MAX_AHEAD: Final = 100
"""Requests that a client may send before it has the response to the first; hardly any client sends one. Each takes
2 KB, and thousands of them fit into one read."""
_LINGER_SECONDS: Final = 5.0
"""How long the rest of a refused request is read and thrown away: the system resets a connection that is closed with
bytes unread, and the client then loses the refusal.
https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close"""
_LINGER_BYTES: Final = 64 * 1024 * 1024
"""How much of it: a flood from this machine brings some GB/s, which the loop would spend its time on."""
_FREE_CHUNK_BYTES: Final = 300_000
"""A chunked body may have so many bytes besides three times its content. A chunk of three bytes has eight; encoders
that send each JSON token as a chunk, as Python's `iterencode` does, write more. Below that each byte costs a call."""
_TLS: Final = b"\x16"
"""How a handshake begins, in every version (RFC 8446 5.1)."""
_TLS_PROBLEM: Final = "the client speaks TLS, but this port speaks HTTP: use http://, or put a TLS proxy in front"
_PROBLEMS: Final = {
    "Pause on PRI/Upgrade": "HTTP/2 is not spoken here; HTTP/1.1 is",
    "User callback error": "the target of the request is no URL with a path, or too long",
}
"""llhttp's messages that leave the client guessing (RFC 9113 3.4; RFC 9112 3.2.2)."""


class Connections(Struct):
    """All connections of one process, in each request's `scope["state"][STATE_KEY]`, and how much of the server each
    client may use."""

    max_head_bytes: int
    head_seconds: float
    """Timeout of a head, from its first byte, and of the first byte of a new connection."""
    max_connections: int
    waiting: dict[Connection, None] = {}
    """Connections without a request under way, the longest idle first."""
    is_draining: bool = False
    """The server stops: each response ends its connection, and responses without an end should end."""


class Connection(HttpToolsProtocol):
    """One connection; requests that are sent ahead wait in uvicorn's queue."""

    def __init__(self, connections: Connections, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app_state = {**self.app_state, STATE_KEY: connections}
        self._all = connections
        self._served: RequestResponseCycle | None = None
        """The request under way, or the last one; `cycle` is the newest, which may wait for it."""
        self._refusal: bytes | None = None
        """The last bytes to send, once further input is ignored."""
        self._ignored_bytes = 0
        self._is_in_body = False
        self._fed_bytes = 0
        """Received since the last head or piece of a body ended, without the rest of the read in which it did."""
        self._body_bytes = self._content_bytes = 0
        """Size of this body: as received, and without the framing of its chunks."""

    def close(self) -> None:
        """End the connection behind a response: at once, or with time to read it if its request is still arriving."""
        if not (self._is_in_body and self.cycle is self._served):
            self.transport.close()
        elif self.cycle.response_complete:
            self._refusal = b""  # it ends in `on_response_complete`, which follows
        else:
            self._end(b"")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        most, waiting = self._all.max_connections, self._all.waiting
        is_full = len(self.connections) >= most
        if is_full and (idle := next(iter(waiting), None)) is not None:
            del waiting[idle]  # counted until it is closed, but may make room only once
            idle.transport.close()
            is_full = False
        super().connection_made(transport)
        self.write, self.is_closing = transport.write, transport.is_closing  # which a cycle calls, as it does `close`
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
        if self._refusal is not None:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > _LINGER_BYTES:
                self.transport.pause_reading()
            return
        try:
            self._feed(data)
            self._check()
        except HttpParserError as error:
            cause = error.__context__  # of an error in a callback
            is_tls = data.startswith(_TLS) and not self._is_in_body
            problem = _TLS_PROBLEM if is_tls else _PROBLEMS.get(f"{error}", f"{error}")
            self._refuse(cause if isinstance(cause, ProxyError) else MalformedRequest(problem))
        except ProxyError as error:
            self._refuse(error)

    def _feed(self, data: bytes) -> None:
        """Parse what has arrived. Upgrades are not offered (RFC 9110 7.8): llhttp takes what follows the wish for one,
        its body too, for the other protocol's, so it gets that head again without its wish."""
        self._fed_bytes += len(data)
        if self._is_in_body:
            self._body_bytes += len(data)
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                method, version = self.parser.get_method(), self.parser.get_http_version().encode()
                lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
                head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))
                data = head + data[upgrade.args[0] :]
            else:
                return

    def _check(self) -> None:
        """Check the limits for what has arrived of a head, of the line of a chunk or of a trailer."""
        if self._fed_bytes > self._all.max_head_bytes:
            raise self._too_large(MalformedRequest, "chunk or trailer") if self._is_in_body else self._too_large()
        if self._body_bytes > _FREE_CHUNK_BYTES + 3 * self._content_bytes:
            raise MalformedRequest("the request's chunks have less than 3 bytes each on average")
        if self._is_in_head:
            self._check_fields()

    def _check_fields(self) -> None:
        """Check the headers that have arrived, or the fields of a trailer."""
        if len(self.headers) > MAX_HEADERS:
            raise HeadTooLarge(f"the request has more than {MAX_HEADERS} headers")
        if len(self.url) + len(b"".join(map(b"%b: %b\r\n".__mod__, self.headers))) > self._all.max_head_bytes:
            raise self._too_large()

    def _too_large(self, kind: type[ProxyError] = HeadTooLarge, what: str = "head") -> ProxyError:
        most = self._all.max_head_bytes
        return kind(f"the {what} of the request has more than {most:,} bytes (server.max_header_bytes)")

    @property
    def _is_in_head(self) -> bool:
        """Whether a head has begun: each gets a scope, and its request when it is complete."""
        return self.scope is not (self.cycle and self.cycle.scope)

    @property
    def _is_busy(self) -> bool:
        """Whether a response is under way, or to come."""
        return self._served is not None and not (self._served.response_complete or self._served.disconnected)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._is_busy:
            self._wait(self._all.head_seconds)

    def on_headers_complete(self) -> None:
        self._check_fields()
        named = dict(self.headers)
        if b"transfer-encoding" in named:
            codings = b",".join(value for name, value in self.headers if name == b"transfer-encoding").strip().lower()
            if b"," in codings and codings.endswith(b"chunked"):  # llhttp refuses every other end (RFC 9112 6.3)
                raise UnknownCoding("a request may have no transfer coding but chunked; Content-Encoding can be read")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise NoTunnel("this is no forward proxy: CONNECT opens no tunnel here")
            return  # it comes again: see _feed
        if len(self.pipeline) >= MAX_AHEAD:
            raise MalformedRequest(f"more than {MAX_AHEAD} requests were sent before the response to the first")
        super().on_headers_complete()
        self.cycle.transport = self  # type: ignore[assignment] # it has what a cycle calls
        self.headers = []  # the trailer's, which no application sees
        self._is_in_body = True
        self._fed_bytes = self._body_bytes = self._content_bytes = 0
        if self._all.is_draining:
            self.cycle.keep_alive = False
        if self.cycle.scope["http_version"] < "1.1":
            _speak_http_1_0(self.cycle)
        if not self.pipeline:
            self._served = self.cycle
            self._stop_waiting()
            self._all.waiting.pop(self, None)
        else:
            self.flow.resume_reading()  # else the client's departure would go unnoticed

    def on_body(self, body: bytes) -> None:
        self._content_bytes += len(body)
        self._fed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_in_body:  # not the end of a wish for an upgrade
            if self.headers:  # a trailer
                self._check_fields()
            self._is_in_body, self._fed_bytes, self._body_bytes = False, 0, 0
            super().on_message_complete()

    # Responses.

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if following is not None:
            self._served = following
        elif self.transport.is_closing():
            return
        elif self._refusal is not None:
            self._end(self._refusal)
        elif self.expect_100_continue and self._is_in_body and not self._content_bytes:
            self._end(b"")  # what came next could be that body, or a request (RFC 9110 10.1.1)
        else:
            self._all.waiting[self] = None
            if self._is_in_head or self._all.is_draining:
                self._wait(self._all.head_seconds)

    # The end.

    def shutdown(self) -> None:
        """The server stops: respond to the current request, and to what arrives within a moment. A response whose head
        has promised to keep the connection keeps it so long."""
        self._all.is_draining = True
        if self._served is not None and self._is_busy:
            self._served.keep_alive = self._served.keep_alive and self._served.response_started
        elif self._refusal is None:
            self._wait(DRAIN_SECONDS)

    def timeout_keep_alive_handler(self) -> None:
        if self._is_in_head and self._refusal is None:
            limit = self._all.head_seconds
            self._refuse(RequestTimeout(f"the head took longer than {limit:g} s (server.header_timeout_seconds)"))
        else:
            super().timeout_keep_alive_handler()  # no request is left without a response

    def _refuse(self, error: ProxyError) -> None:
        """Read nothing more, and say why once what came before has its response. A response that has begun breaks off
        if what is wrong is the body of its own request."""
        self._all.waiting.pop(self, None)
        logger().info("request_refused", status=error.status, code=error.code, problem=error.message)
        self._refusal = _answer(error)
        if self._is_in_body and self.cycle is self._served:
            self._end(b"" if self.cycle.response_started else self._refusal)
            return
        if self._is_in_body:
            self.pipeline.popleft()
        if not self._is_busy:
            self._end(self._refusal)

    def _lose(self) -> None:
        """Tell the application that its client is gone."""
        if self._served is not None:  # uvicorn tells only the newest
            self._served.disconnected = True
            self._served.message_event.set()
            self.flow.resume_writing()

    def _end(self, last: bytes) -> None:
        """Write the last bytes, ignore further input, and close once the client has had time to read them."""
        self._refusal = last
        self._lose()
        self.flow.resume_reading()
        self.transport.write(last)
        self.transport.write_eof()
        self._wait(_LINGER_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait for the client to send something, in the place of uvicorn's own timer."""
        self._stop_waiting()
        seconds = DRAIN_SECONDS if self._all.is_draining else seconds
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()


def _speak_http_1_0(cycle: RequestResponseCycle) -> None:
    """Have a response end with its connection, stated length or not, as the client knows no chunks (RFC 9112 6.1); nor
    does it wait for a 100 (RFC 9110 10.1.1)."""
    cycle.waiting_for_100_continue = False
    send = cycle.send

    async def send_unframed(message: Any) -> None:
        cycle.chunked_encoding, cycle.expected_content_length = False, len(message.get("body", b""))
        await send(message)

    cycle.send = send_unframed  # type: ignore[method-assign] # which `run_asgi` gives to the application


def _answer(error: ProxyError) -> bytes:
    body = error_body(error)
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
