"""The upstream as seen from the proxy; with its parts, the only modules that know the HTTP client (aiohttp).

Rule: the client library's exceptions stop here and become the proxy's own errors; a connection whose response is no
longer read is closed at once, for whatever reason. Why this library: docs/decisions/0001-http-client.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct
from yarl import URL

from proxy.config import UpstreamSettings
from proxy.errors import LoopDetected, UpstreamTimeout, UpstreamUnreachable
from proxy.shell.resources import DaemonThreads, TooSlow
from proxy.shell.upstream.exchange import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Exchange,
    Exchanges,
    Outgoing,
    Upload,
    notice_what_was_closed,
)
from proxy.shell.upstream.tap import Consumer, Tap

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in lower case; order and repeats as received."""
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers about one connection, not about the message: RFC 9110 7.6.1 and the older list of RFC 2616 13.5.1."""
_KEEPS: Final = [b"keep-alive"]
"""The `Connection` of nearly all clients; names nothing else."""
_NOT_SENT: Final = _HOP_BY_HOP | {b"host", b"expect"}
"""The HTTP client sets the former itself; `expect` was answered by our own server."""
_NOT_SENT_WITH_A_WHOLE: Final = _NOT_SENT | {b"content-length"}
"""A replaced body has another length than the one announced; a stream keeps it."""
NO_SUCH_HOST: Final = "the host name is unknown"
SPEAKS_NO_TLS: Final = "it does not speak TLS; use http:// instead of https://"
CLOSED: Final = "it closed the connection"
THROUGH: Final = "through the environment's proxy"
UNTRUSTED: Final = "its certificate is not trusted"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
"""OpenSSL's errors for a plaintext response: include/openssl/sslerr.h; the first up to 3.1, the second since."""
_FAILURES: Final = (aiohttp.ClientError, aiohttp.EofStream, HttpProcessingError, OSError, ValueError)
"""Raised when sending a request; ValueError for a multi-line header."""
_LOCAL_IDLE_SECONDS: Final = 4
"""uvicorn, under vLLM and many others, closes connections that were idle for 5 seconds. A connection that is closed
while a request is on its way looks like a failure, and a POST must not be sent twice; so the proxy closes first."""
_HOSTED_IDLE_SECONDS: Final = 55
"""Load balancers of hosted APIs keep connections for 60 seconds and more; TLS makes new ones expensive."""
_DRAIN_SECONDS: Final = 2.0
"""How long to wait for the end of the body after the end of its content: gateways record the cost in between. A
connection that is not finished then is closed, as the next one costs only a handshake."""
_DRAIN_BYTES: Final = 64 * 1024
_ARRIVED_BYTES: Final = 64 * 1024
"""Limit for a body that is read at once if it has arrived."""
_LOOK_UP_SECONDS: Final = 5.0
"""Timeout of a DNS look-up: then another look-up may begin, and the upstream's connect timeout is not over."""
_LOOK_UP_THREADS: Final = 8
_TCP_KEEPALIVE_SECONDS: Final = 30
"""Models think for minutes; routers forget silent connections after less."""


class WholePath(bytes):
    """Path and query from the root of the upstream's host, instead of those after the base URL."""


_OURS: Final = b"x-context-proxy-"
"""How the names of the proxy's own headers begin. An upstream's own never reach a client, who could not tell them from
ours; those of another context-proxy neither."""
_STATUSES: Final = range(200, 600)
"""Final status codes (RFC 9110 15); others have no meaning."""
LOOP_HEADER: Final = b"x-context-proxy-loop"
"""Names each process of this proxy that a request has passed, as CDN-Loop does for networks (RFC 8586): a balancer may
hide that the upstream leads back here. Not `Via`, as nginx does not compress responses to requests that have one
(https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_proxied)."""


def end_to_end(headers: Headers, dropped: frozenset[bytes] = _HOP_BY_HOP) -> Headers:
    """Headers without those about a single connection or `dropped` for another reason, and without those that
    `Connection` names.

    >>> end_to_end([(b"connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"accept", b"*/*")])
    [(b'accept', b'*/*')]
    """
    if b"connection" in dict(headers):
        values = [value for name, value in headers if name == b"connection"]
        if values != _KEEPS:
            dropped = dropped.union(option.strip().lower() for option in b",".join(values).split(b","))
    return [pair for pair in headers if pair[0] not in dropped]


def header(headers: Headers, name: bytes) -> bytes:
    """The first header of that lower-case name, or nothing."""
    return dict(reversed(headers)).get(name, b"")


class UpstreamResponse(Struct, eq=False):
    """A response whose head has been read and whose body waits. Close it, whether read or not."""

    _response: aiohttp.ClientResponse | Exchange
    _where: str
    _idle_seconds: float
    status: int
    headers: Headers
    _cut_off: asyncio.Future[None] | None
    _timer: asyncio.TimerHandle | None = None
    _waiting_since: float | None = None
    """Loop time; None while the proxy waits for the reader."""
    _consumer: Consumer | None = None
    _tap: Tap | None = None
    _read_bytes: int = 0

    @classmethod
    def of(cls, response: aiohttp.ClientResponse | Exchange, where: str, idle_seconds: float) -> UpstreamResponse:
        """`where`: the upstream, for people; `idle_seconds`: how long it may be silent."""
        received = [(name.lower(), value) for name, value in response.raw_headers]
        headers = end_to_end(received)
        if b" ".join(dict(received)).find(_OURS) >= 0:  # hardly ever
            headers = [pair for pair in headers if not pair[0].startswith(_OURS)]
        return cls(response, where, idle_seconds, response.status, headers, _end_of_connection(response))

    def hand_to(self, consumer: Consumer) -> None:
        """Hand each chunk to `consumer` in the callback in which it arrives, while it has room; `chunks` yields the
        others."""
        self._consumer = consumer

    def arrived(self) -> bytes | None:
        """The whole body, if it is here already, as short ones are that come with their head. None: `chunks` has it."""
        content = self._response.content
        is_here = content.is_eof() and content.exception() is None and content.total_bytes <= _ARRIVED_BYTES
        return content.read_nowait() if is_here and self._cut_off is None else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces that arrive, not decoded. Raises UpstreamUnreachable if it breaks off, and
        UpstreamTimeout after too long a silence; the time that the reader takes does not count."""
        # One timer for the whole response, not one for each piece: pieces come by the thousand.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._end_silence)
        read, now = self._response.content.readany, loop.time
        try:
            self._waiting_since = now()
            while True:
                if self._consumer is not None and not self._response.content.is_eof():
                    await self._consumed(self._consumer)
                if not (piece := await read()):
                    break
                self._read_bytes += len(piece)
                self._waiting_since = None
                yield piece
                self._waiting_since = now()
            if self._cut_off is not None and self._cut_off.done():
                self._cut_off.result()
        except TimeoutError:
            raise UpstreamTimeout(
                f"{self._where} was silent for {self._idle_seconds:g} s in the middle of its response "
                "(upstream.idle_timeout_seconds)"
            ) from None
        except (aiohttp.ClientError, aiohttp.EofStream, HttpProcessingError, OSError) as error:
            raise UpstreamUnreachable(f"{self._where} broke off its response: {_cause(error)}") from None
        finally:
            self._timer.cancel()

    async def _consumed(self, consumer: Consumer) -> None:
        """Wait while `consumer` consumes the body. Raises what it raises."""
        tap = self._response.tap(consumer, self._read_bytes) if isinstance(self._response, Exchange) else None
        if tap is None:
            return
        self._tap = tap
        try:
            await tap.over
        finally:
            tap.end()
            self._tap, self._read_bytes, self._waiting_since = None, tap.read_bytes, tap.last

    async def drain(self) -> None:
        """Read the rest of a body that is all but over, so that its connection can be reused; not for long."""
        left, read = _DRAIN_BYTES, self._response.content.readany
        with contextlib.suppress(aiohttp.ClientError, aiohttp.EofStream, HttpProcessingError, OSError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while left > 0 and (piece := await read()):
                    left -= len(piece)

    async def aclose(self) -> None:
        """Release the connection: it returns to the pool if the body was read to its end, otherwise it is closed
        now."""
        self._response.close()

    def _end_silence(self) -> None:
        since, loop = self._waiting_since if self._tap is None else self._tap.last, asyncio.get_running_loop()
        silent = 0.0 if since is None else loop.time() - since
        if silent < self._idle_seconds:
            self._timer = loop.call_later(self._idle_seconds - silent, self._end_silence)
        else:
            self._response.content.set_exception(TimeoutError())
            if self._tap is not None:
                self._tap.end()


class Upstream:
    """Sends requests to one base URL, over as many connections as there are requests under way."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        parts = urlsplit(settings.base_url)
        self.host = _host_of(settings.base_url)
        """Host and port, by which people know it."""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._base_url = settings.base_url
        self._idle_seconds = _HOSTED_IDLE_SECONDS if parts.scheme == "https" else _LOCAL_IDLE_SECONDS
        # Not aiohttp's `trust_env`: it also looks for a password in ~/.netrc, and takes two threads for each request.
        proxies = {} if proxy_bypass(parts.netloc) else getproxies()
        self._proxy = proxies.get(parts.scheme) or proxies.get("all")
        if self._proxy and "://" not in self._proxy:  # as curl takes it, and most others
            self._proxy = f"http://{self._proxy}"
        through = f" ({THROUGH} {_host_of(self._proxy)})" if self._proxy else ""
        self.where = f"the upstream {self._origin}{through}"
        """How errors begin."""
        self.base_path = settings.base_url.partition("://")[2].removeprefix(parts.netloc).encode()
        """The base URL, without a trailing slash."""
        self._mark = os.urandom(8).hex().encode()
        """This process's value of LOOP_HEADER."""
        self._session: aiohttp.ClientSession | None = None
        self._resolver: _Resolver
        self._connector: aiohttp.TCPConnector
        self._exchanges: Exchanges | None = None
        """None, too, if the environment names a proxy for the upstream."""

    async def send(
        self, method: str, target: bytes, headers: Headers, body: Outgoing | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        """Send a request to `target`, path and query after the base URL or a `WholePath`, and read the head of its
        response.

        Raises UpstreamUnreachable, UpstreamTimeout, LoopDetected, and what a streamed body raises.
        """
        if LOOP_HEADER in dict(headers) and any(name == LOOP_HEADER and self._mark in value for name, value in headers):
            raise LoopDetected(f"{self.where} leads back to this proxy (upstream.base_url)")
        session = self._session or self._open()
        path = _escaped(target if isinstance(target, WholePath) else self.base_path + target)
        whole = Outgoing(b"") if body is None else body if isinstance(body, Outgoing) else None
        passed = end_to_end(headers, _NOT_SENT if whole is None else _NOT_SENT_WITH_A_WHOLE)
        if self._exchanges is not None and whole is not None:  # as nearly all requests
            try:
                return self._answer(await self._exchanges.send(method.encode(), path, passed, whole))
            except _FAILURES as error:
                raise self._failed(error) from None
        pairs = [(name.decode("latin-1"), _header_text(value)) for name, value in passed]
        pairs.append((LOOP_HEADER.decode(), self._mark.decode()))
        if body is not None and whole is not None:
            pairs.append(("content-length", str(whole.length)))
        limit = self.settings.first_byte_timeout_seconds
        upload = None if body is None or isinstance(body, Outgoing) else Upload(body)
        pieces = None if body is None else upload or whole
        await notice_what_was_closed()
        try:
            async with asyncio.timeout(None if upload else limit) as wait:
                if upload:
                    upload.wait_for_upstream = lambda: wait.reschedule(asyncio.get_running_loop().time() + limit)
                    upload.wait_for_client = lambda: wait.reschedule(None)
                response = await session.request(
                    method,
                    URL(self._origin + path.decode(), encoded=True),
                    headers=pairs,
                    data=None if pieces is None else pieces.pieces(),
                    allow_redirects=False,
                    proxy=self._proxy,
                )
        except _FAILURES as error:
            if upload is not None and upload.failure is not None:
                raise upload.failure from None
            raise self._failed(error) from None
        return self._answer(response)

    def _answer(self, response: aiohttp.ClientResponse | Exchange) -> UpstreamResponse:
        """Raises UpstreamUnreachable for a status that no client could be given: a 101, since no protocol change was
        requested, and numbers that HTTP does not have."""
        if response.status not in _STATUSES:
            response.close()
            raise UpstreamUnreachable(
                f"{self.where} changed to another protocol unrequested"
                if response.status == 101
                else f"{self.where} answered with the status {response.status}, which HTTP does not have"
            )
        return UpstreamResponse.of(response, self.where, self.settings.idle_timeout_seconds)

    def _failed(self, error: Exception) -> UpstreamTimeout | UpstreamUnreachable:
        """The proxy's error for what the HTTP client raised before there was a response."""
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            self._connector.clear_dns_cache()  # the name may have moved
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            limit, setting = self.settings.connect_timeout_seconds, "upstream.connect_timeout_seconds"
            return UpstreamTimeout(f"{self.where} took no connection within {limit:g} s ({setting})")
        if isinstance(error, TimeoutError):
            limit, setting = self.settings.first_byte_timeout_seconds, "upstream.first_byte_timeout_seconds"
            return UpstreamTimeout(f"{self.where} began no response within {limit:g} s ({setting})")
        return UpstreamUnreachable(f"{self.where} cannot be reached: {_cause(error)}")

    async def aclose(self) -> None:
        """Close all connections; the next send opens others, on any loop."""
        if self._session is None:
            return
        if self._exchanges is not None:
            self._exchanges.close()
        session, self._session, self._exchanges = self._session, None, None
        await session.close()
        await self._resolver.close()

    def _open(self) -> aiohttp.ClientSession:
        """Created at the first send, as it belongs to the running loop."""
        self._resolver = _Resolver()
        self._connector = connector = aiohttp.TCPConnector(
            limit=0,
            resolver=self._resolver,
            keepalive_timeout=self._idle_seconds,
            # Reads SSL_CERT_FILE; 20 ms, so only if TLS is used.
            ssl=ssl.create_default_context() if self._base_url.startswith("https") else False,
            socket_factory=_kept_alive_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),  # added if missing
            timeout=aiohttp.ClientTimeout(total=None, connect=self.settings.connect_timeout_seconds),
            max_field_size=MAX_HEADER_BYTES,
            max_line_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )
        if self._proxy is None:
            base_url = URL(self._base_url, encoded=True)
            limits = self.settings.connect_timeout_seconds, self.settings.first_byte_timeout_seconds
            mark = LOOP_HEADER + b": " + self._mark
            self._exchanges = Exchanges(self._session, base_url, mark, *limits, self._idle_seconds)
        return self._session


def _host_of(url: str) -> str:
    """Host and port, without a user and a password."""
    return urlsplit(url).netloc.rpartition("@")[2]


class _Resolver(aiohttp.abc.AbstractResolver):
    """The system's resolver, on threads of its own and with a limit: aiohttp has all requests wait for one look-up."""

    def __init__(self) -> None:
        self._threads = DaemonThreads(_LOOK_UP_THREADS, "upstream-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[aiohttp.abc.ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        try:
            found = await self._threads.run(_LOOK_UP_SECONDS, look_up)
        except TooSlow:
            raise OSError(errno.ETIMEDOUT, f"its name was not resolved within {_LOOK_UP_SECONDS:g} s") from None
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            aiohttp.abc.ResolveResult(
                hostname=host, host=str(at[0]), port=int(at[1]), family=family, proto=proto, flags=flags
            )
            for family, _, proto, _, at in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _end_of_connection(response: aiohttp.ClientResponse | Exchange) -> asyncio.Future[None] | None:
    """How the connection ends, for a response that ends with it: aiohttp takes a reset for an end there, too."""
    if isinstance(response, Exchange):
        return response.ending
    protocol = response.connection.protocol if response.connection else None
    if protocol is None or "content-length" in response.headers or "transfer-encoding" in response.headers:
        return None
    return protocol.closed


def _kept_alive_socket(address: tuple[Any, ...]) -> socket.socket:
    found = socket.socket(*address[:3])
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on macOS
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _TCP_KEEPALIVE_SECONDS)
    return found


def _escaped(target: bytes) -> bytes:
    """The target as received; bytes that no URL may contain are escaped, as the HTTP client takes only ASCII."""
    return target if target.isascii() else b"".join(b"%c" % b if b < 128 else b"%%%02X" % b for b in target)


def _header_text(value: bytes) -> str:
    """The client library sends text as UTF-8: a value in UTF-8 arrives unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _cause(error: Exception) -> str:
    """The cause, in words of the operating system or as the error's name: other texts may quote the URL or a header."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return CLOSED
    if isinstance(error, aiohttp.ClientConnectorDNSError) and error.errno != errno.ETIMEDOUT:
        return NO_SUCH_HOST
    if isinstance(error, aiohttp.ClientConnectorSSLError) and getattr(error.__cause__, "reason", "") in _NO_TLS:
        return SPEAKS_NO_TLS
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = getattr(error, "certificate_error", error)
        return f"{UNTRUSTED}: {getattr(found, 'verify_message', type(found).__name__)}"
    is_refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED  # asyncio's text for it says less
    if isinstance(error, aiohttp.ClientConnectorError) and error.strerror and not is_refused:
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, HttpProcessingError):
        return "its response is not valid HTTP"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "it is incomplete, or not valid HTTP"
    if isinstance(error, aiohttp.ClientConnectionError):
        return CLOSED
    return type(error).__name__
