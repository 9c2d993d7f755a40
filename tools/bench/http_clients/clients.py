"""The clients that could send requests upstream, each behind the same small interface.

Rule: each is set up as a transparent proxy would set it up.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

Headers = list[tuple[bytes, bytes]]
Body = bytes | AsyncIterator[bytes] | None


class Answer(Protocol):
    """The head of a response, its body unread."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class Client(Protocol):
    """One HTTP client, set up as a transparent proxy would set it up."""

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> Answer: ...
    async def aclose(self) -> None: ...


class _Httpx:
    """httpx. Its `target` extension keeps the path unchanged; other transports do not know it."""

    def __init__(self, base_url: str, transport: Any = None) -> None:
        import httpx

        self._httpx, self._base_url, self._own_transport = httpx, httpx.URL(base_url), transport is None
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(timeout=None, limits=limits, transport=transport)
        self._client.headers.clear()

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> Answer:
        url, extensions = self._base_url, {"target": self._base_url.raw_path.rstrip(b"/") + target}
        if not self._own_transport:
            url, extensions = self._httpx.URL(str(self._base_url).rstrip("/") + target.decode("ascii")), {}
        request = self._httpx.Request(method, url, headers=headers, content=body, extensions=extensions)
        return _HttpxAnswer(await self._client.send(request, stream=True))

    async def aclose(self) -> None:
        await self._client.aclose()


class _HttpxAnswer:
    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status_code
        self.headers: Headers = response.headers.raw

    def chunks(self) -> AsyncIterator[bytes]:
        found: AsyncIterator[bytes] = self._response.aiter_raw()
        return found

    async def aclose(self) -> None:
        await self._response.aclose()


def _httpx_aiohttp(base_url: str) -> Client:
    import aiohttp
    from httpx_aiohttp import AiohttpTransport

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
        trust_env=True,
    )
    return _Httpx(base_url, AiohttpTransport(client=session))


class _Aiohttp:
    def __init__(self, base_url: str) -> None:
        import aiohttp
        import yarl

        self._url, self._base_url = yarl.URL, base_url
        parts = urlsplit(base_url)
        # its own `trust_env` looks for a password in ~/.netrc and takes two threads a request
        self._proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context()),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
            timeout=aiohttp.ClientTimeout(total=None),
            max_field_size=1 << 20,
            max_line_size=1 << 20,
        )

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> Answer:
        url = self._url(self._base_url + target.decode("ascii"), encoded=True)
        pairs = [(name.decode("ascii"), value.decode("utf-8", "surrogateescape")) for name, value in headers]
        response = await self._session.request(
            method, url, headers=pairs, data=body, allow_redirects=False, proxy=self._proxy
        )
        return _AiohttpAnswer(response)

    async def aclose(self) -> None:
        await self._session.close()


class _AiohttpAnswer:
    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Headers = [(name.lower(), value) for name, value in response.raw_headers]

    def chunks(self) -> AsyncIterator[bytes]:
        found: AsyncIterator[bytes] = self._response.content.iter_any()
        return found

    async def aclose(self) -> None:
        self._response.close()


class _Pyreqwest:
    def __init__(self, base_url: str) -> None:
        from pyreqwest.client import ClientBuilder

        self._base_url = base_url
        builder = ClientBuilder().gzip(False).brotli(False).zstd(False).deflate(False)
        self._client = builder.follow_redirects(False).referer(False).build()

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> Answer:
        builder = self._client.request(method, self._base_url + target.decode("ascii"))
        builder = builder.headers([(name.decode("ascii"), value.decode("latin-1")) for name, value in headers])
        if isinstance(body, bytes):
            builder = builder.body_bytes(body)
        elif body is not None:
            builder = builder.body_stream(body)
        request = builder.streamed_read_buffer_limit(0).build_streamed()
        return _PyreqwestAnswer(request, await request.__aenter__())

    async def aclose(self) -> None:
        await self._client.close()


class _PyreqwestAnswer:
    def __init__(self, request: Any, response: Any) -> None:
        self._request, self._response = request, response
        self.status: int = response.status
        self.headers: Headers = [(n.encode(), v.encode("latin-1")) for n, v in response.headers.items()]

    async def chunks(self) -> AsyncIterator[bytes]:
        reader = self._response.body_reader
        while (chunk := await reader.read_chunk()) is not None:
            yield bytes(chunk)

    async def aclose(self) -> None:
        await self._request.__aexit__(None, None, None)


def _ours(base_url: str) -> Client:
    from proxy.config.upstreams import UpstreamSettings
    from proxy.shell.upstream import Outgoing, Upstream, UpstreamResponse

    class Ours(Upstream):
        async def send(self, method: str, target: bytes, headers: Headers, body: Any) -> UpstreamResponse:
            return await super().send(method, target, headers, Outgoing(body) if isinstance(body, bytes) else body)

    return Ours(UpstreamSettings(base_url=base_url))


CLIENTS: dict[str, Callable[[str], Client]] = {
    "httpx": _Httpx,
    "httpx over httpx-aiohttp": _httpx_aiohttp,
    "aiohttp": _Aiohttp,
    "pyreqwest": _Pyreqwest,
    "proxy.shell.upstream.client": _ours,
}
