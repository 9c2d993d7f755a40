"""One request and the head of its response over a connection of aiohttp's pool, without what a session does around
them; and bodies on their way upstream.

Rule: connections, TLS and the parsing of responses are aiohttp's. Left out is what a proxy does not need (parsed URLs,
cookies, redirects, traces, a task for each body), which is half of the cost of a small request. A connection returns to
the pool only if the request was written and the response read to their ends. While the client sends a body, the
client's time runs; while the upstream receives it, the upstream's. A whole body is let go of as soon as it is written:
its response may take minutes. Only `client.py` uses this module; docs/decisions/0001-http-client.md has the figures.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, cast

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from proxy.errors import ClientError
from proxy.shell.upstream.tap import Consumer, Tap

MAX_HEADER_BYTES: Final = 128 * 1024
"""Limit for one response header; aiohttp's own 8 KB are less than some content-security policies."""
MAX_HEADERS: Final = 1_000
"""Headers of a response; cookies and rate limits behind two gateways reach the client library's own limit of 128."""
_MAX_HEADS: Final = 1_000
"""Limit for one response, interim ones included: one or two are common, and slow gateways send one now and then."""
_WITHOUT_BODY: Final = (b"GET", b"HEAD", b"OPTIONS")
"""Methods without a length where there is no body: RFC 9110 8.6."""


class Exchange:
    """A response whose head has been read; has the members of aiohttp's `ClientResponse` that the proxy uses."""

    status = 0
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()
    content: aiohttp.StreamReader
    ending: asyncio.Future[None] | None = None
    """How the connection ends, for a response that ends with it."""

    def __init__(self, connection: Connection, keep: Callable[[Connection], None]) -> None:
        """`keep` takes the connection once its response is over."""
        assert connection.protocol is not None, "a connection that is open"
        self._connection: Connection | None = connection
        self._keep = keep
        self._protocol = connection.protocol
        self._tap: Tap

    async def is_open(self) -> bool:
        """Whether the connection is open, as far as the kernel knows, and silent: the pool may hold some that were
        closed while the loop was busy, and what was sent into one of them must not be sent again. Bytes that a server
        sends before a request, such as a 408, would be taken for the response to it."""
        transport = self._protocol.transport
        if transport is not None and _has_news(transport):
            await notice_what_was_closed()
        return self._protocol.is_connected() and not self._protocol.should_close

    async def run(self, request: bytes, body: Outgoing, *, is_head: bool) -> None:
        """Send a request and read the head of its response; `is_head`: it is a HEAD. Raises what aiohttp's protocol
        does, and TimeoutError if `give_up` was called."""
        protocol, transport = self._protocol, self._protocol.transport
        assert transport is not None, "a connection that is open"
        protocol.set_response_params(
            skip_payload=is_head,
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )
        self._tap = Tap.of(protocol, transport)
        content = body.take()
        # One system call, and no copy of both together. asyncio of Python 3.12 would write an empty piece for ever.
        transport.writelines((request, content) if content else (request,))
        await body.written()
        for _ in range(_MAX_HEADS):
            message, payload = await protocol.read()
            status = message.code
            if status >= 200 or status < 100 or status == 101:
                break
        else:  # reading queued ones takes no loop turn, so they would block all requests
            raise HttpProcessingError(message="too many interim responses")
        self.status, self.raw_headers, self.content = status, message.raw_headers, payload
        if "content-length" not in message.headers and "transfer-encoding" not in message.headers:
            self.ending = protocol.closed
        payload.on_eof(self._release)

    def give_up(self) -> None:
        """The head takes too long."""
        self._protocol.set_exception(TimeoutError())

    def tap(self, consumer: Consumer, read_bytes: int) -> Tap | None:
        """Hand the rest of the body to `consumer` until the caller ends it; None if something waits for its reader.
        `read_bytes`: size of the body read so far."""
        content = self.content
        is_waited_for = content.total_bytes == read_bytes and not content.is_eof() and content.exception() is None
        if not is_waited_for or self._protocol.transport is None or not consumer.is_ready:
            return None
        self._tap.begin(content, consumer, read_bytes)
        return self._tap

    def close(self) -> None:
        """Release the connection; closes it if the response was not read to its end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _release(self) -> None:
        if self._connection is None:
            return
        transport = self._protocol.transport
        if transport is None or transport.get_write_buffer_size():
            self.close()  # a response before the whole request was sent: the rest must not precede the next one
        else:
            self._keep(self._connection)
            self._connection = None


class Exchanges:
    """Sends whole requests to one origin, over connections of a session's connector. Those that are idle are kept here:
    to give them back to the connector and to ask for them again takes ten times as long."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: URL,
        mark: bytes,
        connect_seconds: float,
        head_seconds: float,
        idle_seconds: float,
    ) -> None:
        """`mark`: the line of a header that each request gets. `head_seconds`: for the head of a response, from the
        time at which its request is sent. `idle_seconds`: after which a connection is closed."""
        assert session.connector is not None, "a session that is open"
        self._connector = cast("aiohttp.TCPConnector", session.connector)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_seconds)
        self._head_seconds = head_seconds
        self._idle_seconds = idle_seconds
        self._idle: list[tuple[Connection, float]] = []
        """Connections for the next requests, each with the loop time from which on it is too old, the newest last."""
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        # Never sent: it is where the connector connects to.
        self._like = aiohttp.ClientRequest("POST", base_url, loop=asyncio.get_running_loop(), session=session)
        self._host, self._mark = b"host: %b" % self._like.headers["Host"].encode(), mark
        self._awaited: dict[Exchange, float] = {}
        """Exchanges that wait for a response head, each with its deadline in loop time, the oldest first."""
        self._clock: asyncio.TimerHandle | None = None
        """One timer for all of them: a timer for each would cost a thirtieth of a small request."""

    async def send(
        self, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: Outgoing
    ) -> Exchange:
        """Return the response to a request with these headers, whose bytes stay as they are: a session would send them
        as UTF-8. Raises what aiohttp does, and ValueError for a header of several lines."""
        lines = [b"%b %b HTTP/1.1" % (method, target), self._host, *map(b"%b: %b".__mod__, headers), self._mark]
        if body.length or method not in _WITHOUT_BODY:
            lines.append(b"content-length: %d" % body.length)
        request = b"\r\n".join((*lines, b"", b""))
        if not request.count(b"\n") == request.count(b"\r") == len(lines) + 1:
            raise ValueError("a header of several lines")
        while True:
            kept = self._kept()
            exchange = Exchange(kept or await self._connection(), self._keep)
            try:
                if kept is None or await exchange.is_open():  # one that a server closes at once is not opened for ever
                    self._awaited[exchange] = self._loop.time() + self._head_seconds
                    if self._clock is None:
                        self._clock = self._loop.call_later(self._head_seconds, self._give_up_late)
                    await exchange.run(request, body, is_head=method == b"HEAD")
                    return exchange
            except BaseException:
                exchange.close()
                raise
            finally:
                self._awaited.pop(exchange, None)
            exchange.close()

    def _give_up_late(self) -> None:
        now = self._loop.time()
        for exchange, until in list(self._awaited.items()):
            if now < until:
                self._clock = self._loop.call_at(until, self._give_up_late)
                return
            del self._awaited[exchange]
            exchange.give_up()
        self._clock = None

    def _kept(self) -> Connection | None:
        """The newest idle connection that is not too old."""
        while self._idle:
            connection, until = self._idle.pop()
            if connection.protocol is not None and self._loop.time() < until:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        protocol = connection.protocol
        if protocol is None or protocol.should_close:
            connection.close()
            return
        self._idle.append((connection, self._loop.time() + self._idle_seconds))
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._idle_seconds, self._close_old)

    def _close_old(self) -> None:
        now = self._loop.time()
        idle, self._idle = self._idle, []
        for connection, until in idle:
            if now < until:
                self._idle.append((connection, until))
            else:
                connection.close()
        self._sweep = self._loop.call_at(self._idle[0][1], self._close_old) if self._idle else None

    def close(self) -> None:
        """Close what is idle."""
        for timer in (self._sweep, self._clock):
            if timer is not None:
                timer.cancel()
        for connection, _ in self._idle:
            connection.close()
        self._idle = []

    async def _connection(self) -> Connection:
        """Open a connection; look up the name's addresses again if none of the cached ones accepts it."""
        try:
            try:
                return await self._connector.connect(self._like, traces=[], timeout=self._timeout)
            except aiohttp.ClientConnectorError as error:
                if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorDNSError):
                    raise
                self._connector.clear_dns_cache()
                return await self._connector.connect(self._like, traces=[], timeout=self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error


async def notice_what_was_closed() -> None:
    """Lets the loop notice now, not at the next use, that a pooled connection was closed while the loop was busy."""
    for _ in range(2):  # uvloop takes one turn for it, asyncio two
        await asyncio.sleep(0)


def _has_news(transport: asyncio.Transport) -> bool:
    """Whether something waits to be read from an upstream that has nothing to say: an end, most likely."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))


class Upload:
    """A streamed body that remembers why it broke off: the HTTP client only reports that it did."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self.failure: ClientError | None = None
        self.wait_for_upstream: Callable[[], None] = lambda: None
        """Called with each piece that the upstream has to receive, and when it has to respond: its time runs."""
        self.wait_for_client: Callable[[], None] = lambda: None
        """Called when the client has to send more."""

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._body:
                self.wait_for_upstream()
                yield piece
                self.wait_for_client()
        except ClientError as error:
            self.failure = error
            raise
        self.wait_for_upstream()


class Outgoing:
    """A whole body, until it is written."""

    def __init__(self, body: bytes, sent: Callable[[], Awaitable[None]] | None = None) -> None:
        """`sent` is called once it is written."""
        self.length = len(body)
        self._body = body
        self._sent = sent

    def take(self) -> bytes:
        """The body, for one who writes it at once: it is not kept."""
        body, self._body = self._body, b""
        return body

    async def written(self) -> None:
        if self._sent is not None:
            await self._sent()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body for an HTTP client that takes chunks."""
        yield self.take()
        await self.written()
