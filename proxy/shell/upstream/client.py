"""Sends requests upstream; with its neighbours, the only modules that know the HTTP client (aiohttp).

Rule: while the client sends a body, the client's time runs; while the upstream receives it, the upstream's. A whole
body is let go of as soon as it is written: its response may take minutes. Why this library:
docs/decisions/0001-http-client.md.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from proxy.config import UpstreamSettings
from proxy.errors import ClientError, LoopDetected, UpstreamTimeout, UpstreamUnreachable
from proxy.shell.upstream.connections import Connector
from proxy.shell.upstream.responses import FAILURES, HOP_BY_HOP, Headers, Response, UpstreamResponse, cause, end_to_end

THROUGH: Final = "through the environment's proxy"
_NOT_SENT: Final = HOP_BY_HOP | {b"host", b"expect"}
"""The HTTP client sets the former itself; `expect` was answered by our own server."""
_NOT_SENT_WITH_A_WHOLE: Final = _NOT_SENT | {b"content-length"}
"""A replaced body has another length than the one announced; a stream keeps it."""
_NOT_ADDED: Final = ("accept", "accept-encoding", "content-type", "user-agent")
"""Headers that the HTTP client adds if they are missing."""
_COPIED_BYTES: Final = 16 * 1024
"""The head of a request and a body up to this size are sent together, which copies both."""
_MAX_HEADER_BYTES: Final = 128 * 1024
"""Limit for one response header; aiohttp's own 8 KB are less than some content-security policies."""
_MAX_HEADERS: Final = 1_000
"""Headers of a response; cookies and rate limits behind two gateways reach the client library's own limit of 128."""


class WholePath(bytes):
    """Path and query from the root of the upstream's host, instead of those after the base URL."""


_STATUSES: Final = range(200, 600)
"""Final status codes (RFC 9110 15); others have no meaning."""
LOOP_HEADER: Final = b"x-context-proxy-loop"
"""Names each process of this proxy that a request has passed, as CDN-Loop does for networks (RFC 8586): a balancer may
hide that the upstream leads back here. Not `Via`, as nginx does not compress responses to requests that have one
(https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_proxied)."""


class Outgoing:
    """A whole body, until it is written."""

    def __init__(self, body: bytes, sent: Callable[[], Awaitable[None]] | None = None) -> None:
        """`sent` is called once it is written."""
        self.length = len(body)
        self._body = body
        self._sent = sent

    async def write_to(self, writer: AbstractStreamWriter) -> None:
        """Write the body without a copy, and do not keep it."""
        if self.length > _COPIED_BYTES:
            writer.send_headers()  # else they are sent in one piece with the body
        body, self._body = self._body, b""
        await writer.write(body)
        del body
        if self._sent is not None:
            await self._sent()


class _Upload(aiohttp.Payload):
    """A body on its way upstream. Remembers why it broke off: the HTTP client only reports that it did."""

    consumed = True  # the client library may not send it a second time
    failure: ClientError | None = None

    def __init__(self, body: Outgoing | AsyncIterator[bytes], wait: asyncio.Timeout, seconds: float) -> None:
        """`wait`: for the response, `seconds` from when the upstream has to receive a piece, or to respond."""
        super().__init__(body)
        self.body = body
        self.wait = wait
        self.seconds = seconds

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body as fast as the upstream takes it."""
        self.wait_for_upstream()
        if isinstance(self.body, Outgoing):
            await self.body.write_to(writer)
            return
        try:
            self.wait.reschedule(None)
            async for piece in self.body:
                self.wait_for_upstream()
                await writer.write(piece)
                self.wait.reschedule(None)
        except ClientError as error:
            self.failure = error
            raise
        self.wait_for_upstream()

    def wait_for_upstream(self) -> None:
        """Begin to count the upstream's time."""
        self.wait.reschedule(asyncio.get_running_loop().time() + self.seconds)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Not asked for: only `write` is called."""
        raise NotImplementedError


class Upstream:
    """Sends requests to one base URL, over as many connections as there are requests under way."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        parts = urlsplit(settings.base_url)
        self.host = _host_of(settings.base_url)
        """Host and port, by which people know it."""
        self._origin = f"{parts.scheme}://{parts.netloc}"
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
        self._mark = os.urandom(8).hex()
        """This process's value of LOOP_HEADER."""
        self._session: aiohttp.ClientSession | None = None
        self._connector: Connector

    async def send(
        self, method: str, target: bytes, headers: Headers, body: Outgoing | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        """Send a request to `target`, path and query after the base URL or a `WholePath`, and read the head of its
        response.

        Raises UpstreamUnreachable, UpstreamTimeout, LoopDetected, and what a streamed body raises.
        """
        mark = self._mark.encode()
        if any(name == LOOP_HEADER and mark in value for name, value in headers):
            raise LoopDetected(f"{self.where} leads back to this proxy (upstream.base_url)")
        path = _escaped(target if isinstance(target, WholePath) else self.base_path + target)
        is_upload = body is not None and not isinstance(body, Outgoing)
        passed = end_to_end(headers, _NOT_SENT if is_upload else _NOT_SENT_WITH_A_WHOLE)
        pairs = [(name.decode("latin-1"), _header_text(value)) for name, value in passed]
        pairs.append((LOOP_HEADER.decode(), self._mark))
        if isinstance(body, Outgoing):
            pairs.append(("content-length", str(body.length)))
        limit = self.settings.first_byte_timeout_seconds
        upload = None
        try:
            async with asyncio.timeout(limit if body is None else None) as wait:
                if body is not None:
                    upload = _Upload(body, wait, limit)
                response = await (self._session or self._open()).request(
                    method,
                    URL(self._origin + path.decode(), encoded=True),
                    headers=pairs,
                    data=upload,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
        except FAILURES as error:
            if upload is not None and upload.failure is not None:
                raise upload.failure from None
            raise self._failed(error) from None
        assert isinstance(response, Response), "as the session was told"
        return self._answer(response)

    def _answer(self, response: Response) -> UpstreamResponse:
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
        return UpstreamUnreachable(f"{self.where} cannot be reached: {cause(error)}")

    async def aclose(self) -> None:
        """Close all connections; the next send opens others, on any loop."""
        if self._session is None:
            return
        session, self._session = self._session, None
        await session.close()
        await self._connector.names.close()

    def _open(self) -> aiohttp.ClientSession:
        """Created at the first send, as it belongs to the running loop."""
        self._connector = Connector(is_tls=self._origin.startswith("https:"))
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            response_class=Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            timeout=aiohttp.ClientTimeout(total=None, connect=self.settings.connect_timeout_seconds),
            max_field_size=_MAX_HEADER_BYTES,
            max_line_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )
        return self._session


def _host_of(url: str) -> str:
    """Host and port, without a user and a password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _escaped(target: bytes) -> bytes:
    """The target as received; bytes that no URL may contain are escaped, as the HTTP client takes only ASCII."""
    return target if target.isascii() else b"".join(b"%c" % b if b < 128 else b"%%%02X" % b for b in target)


def _header_text(value: bytes) -> str:
    """The client library sends text as UTF-8: a value in UTF-8 arrives unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
