"""Sends requests upstream. With its neighbours, the only module that knows the HTTP client (aiohttp).

Why this library: docs/decisions/0001-http-client.md.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from proxy.config import UpstreamSettings
from proxy.errors import ClientError, LoopDetected, ProxyError, UpstreamTimeout, UpstreamUnreachable
from proxy.shell.upstream.connections import Connector
from proxy.shell.upstream.requests import Outgoing, Request, Upload, framing_of, head_of
from proxy.shell.upstream.responses import FAILURES, HOP_BY_HOP, Headers, Response, UpstreamResponse, cause, end_to_end

THROUGH: Final = "through the environment's proxy"
_NOT_SENT: Final = HOP_BY_HOP | {b"host", b"expect", b"content-length"}
"""`expect` was answered by our own server; the others are written anew."""
_MAX_HEADER_BYTES: Final = 128 * 1024
"""Limit for one response header; aiohttp's own 8 KB are less than some content-security policies."""
_MAX_HEADERS: Final = 1_000
"""Headers of a response; cookies and rate limits behind two gateways reach the client library's own limit of 128."""


class WholePath(bytes):
    """Path and query from the root of the upstream's host, instead of those after the base URL."""


_STATUSES: Final = range(200, 600)
"""Final status codes (RFC 9110 15): others have no meaning, and no change of the protocol (101) is requested."""
LOOP_HEADER: Final = b"x-context-proxy-loop"
"""Names each process of this proxy that a request has passed, as CDN-Loop does for networks (RFC 8586): a balancer may
hide that the upstream leads back here. Not `Via`, as nginx does not compress responses to requests that have one
(https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_proxied)."""


class Upstream:
    """Sends requests to one base URL, over as many connections as there are requests under way."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        parts = urlsplit(settings.base_url)
        self.host = _host_of(settings.base_url)
        """Host and port, by which people know it."""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._url = URL(self._origin)
        # Not aiohttp's `trust_env`: it also looks for a password in ~/.netrc, and takes two threads for each request.
        proxies = {} if proxy_bypass(parts.netloc) else getproxies()
        self._proxy = proxies.get(parts.scheme) or proxies.get("all")
        if self._proxy and "://" not in self._proxy:  # as curl takes it, and most others
            self._proxy = f"http://{self._proxy}"
        self._own: Headers = [(b"host", (self._url.host_port_subcomponent or "").encode())]
        """Headers of each request."""
        self._to_proxy = b""
        """What precedes a path that a proxy is given."""
        if self._proxy and parts.scheme == "http":
            self._to_proxy = self._origin.encode()
            if user := urlsplit(self._proxy).netloc.rpartition("@")[0]:
                self._own.append((b"proxy-authorization", b"Basic " + b64encode(unquote_to_bytes(user))))
        through = f" ({THROUGH} {_host_of(self._proxy)})" if self._proxy else ""
        self.where = f"the upstream {self._origin}{through}"
        """How errors begin."""
        self.base_path = settings.base_url.partition("://")[2].removeprefix(parts.netloc).encode()
        """The base URL, without a trailing slash."""
        self._mark = os.urandom(8).hex().encode()
        """This process's value of LOOP_HEADER."""
        self._own.append((LOOP_HEADER, self._mark))
        self._session: aiohttp.ClientSession | None = None
        self._connector: Connector

    async def send(
        self, method: str, target: bytes, headers: Headers, body: Outgoing | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        """Send a request to `target`, path and query after the base URL or a `WholePath`, and read the head of its
        response.

        Raises UpstreamUnreachable, UpstreamTimeout, LoopDetected, and what a streamed body raises.
        """
        if LOOP_HEADER in dict(headers) and any(pair[0] == LOOP_HEADER and self._mark in pair[1] for pair in headers):
            raise LoopDetected(f"{self.where} leads back to this proxy (upstream.base_url)")
        path = self._to_proxy + _escaped(target if isinstance(target, WholePath) else self.base_path + target)
        fields = [*self._own, *end_to_end(headers, _NOT_SENT), *framing_of(method, headers, body)]
        limit = self.settings.first_byte_timeout_seconds
        try:
            async with asyncio.timeout(limit) as wait:
                upload = Upload(head_of(method, path, fields), body, wait, limit)
                response = await (self._session or self._open()).request(
                    method, self._url, data=upload, allow_redirects=False, proxy=self._proxy
                )
                upload.response = response
        except FAILURES as error:
            raise self._failed(error) from None
        assert isinstance(response, Response), "as the session was told"
        if response.status not in _STATUSES:
            response.close()
            raise UpstreamUnreachable(
                f"{self.where} answered with the status {response.status}, which no request asks for"
            )
        return UpstreamResponse.of(response, self.where, self.settings.idle_timeout_seconds)

    def _failed(self, error: Exception) -> ProxyError:
        """The proxy's error for what the HTTP client raised before there was a response."""
        if isinstance(error.__cause__, ClientError):  # the body broke off
            return error.__cause__
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
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Created at the first send, as it belongs to the running loop."""
        self._connector = Connector(is_tls=self._origin.startswith("https:"))
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            request_class=Request,
            response_class=Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
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
