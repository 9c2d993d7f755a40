"""Remote images, downloaded within limits of time, size, trust. They come only from the public internet.

Rule: whatever a server does, the result is an image or the reason why there is none, in bounded time and memory; each
hop of a redirect is checked as if it were the first. A name is resolved once, its addresses are checked, and the
connection goes to the checked address, so a name that resolves differently a moment later (DNS rebinding) gains
nothing. Nothing of ours is sent: no key, no cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Final, TypeAlias

import httpx
from msgspec import Struct

from proxy.core.addresses import Address, is_private_network, is_public, literal_address
from proxy.core.content_types import ContentKind, media_type, plain_mime
from proxy.core.conversation import Fetched, FetchError, Unfetched
from proxy.errors import BodyTooLarge, MalformedRequest
from proxy.shell.http import plain_body
from proxy.shell.resources import Threads

MAX_REDIRECTS: Final = 5
MAX_AT_ONCE: Final = 8
"""Downloads of one process; each holds up to `media.max_bytes`."""
PAUSE_SECONDS: Final = 1.0
"""Between two tries."""

_PASSING: Final = frozenset({FetchError.UNREACHABLE, FetchError.BROKEN, FetchError.SERVER_ERROR})
"""Worth a second try within seconds."""
_UNLABELLED: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""Sent by object stores for files of unknown type; the bytes decide."""
_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")
"""RFC 6838, 4.2: no space and no quote, so it cannot be a sentence."""
_BY_STATUS: Final = {
    **dict.fromkeys((401, 402, 403, 407, 451), FetchError.ACCESS_DENIED),
    **dict.fromkeys((404, 410), FetchError.NOT_FOUND),
    429: FetchError.RATE_LIMITED,
}
_SHOWN_CHARACTERS: Final = 300
"""Limit for an address in a diagnosis."""
_NAME_CHARACTERS: Final = 80
_UNPRINTABLE_IN_NAMES: Final = re.compile(r"[^\w.()+,=@ -]+")


class _Trail(Struct):
    """The course of a download, for diagnosis."""

    url: httpx.URL
    response: httpx.Response | None = None

    def unfetched(self, no: NotFetched) -> Unfetched:
        code = None if self.response is None else self.response.status_code
        return Unfetched(no.obstacle, code, _shown(self.url), _content_type(self.response), no.limit)


class Fetcher:
    """Downloads images."""

    def __init__(self, transport: httpx.AsyncBaseTransport, *, max_bytes: int, timeout_seconds: float) -> None:
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        self._client = httpx.AsyncClient(transport=transport, cookies=no_cookies, trust_env=False)
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def fetch(self, address: str) -> Fetched | Unfetched:
        """The image at an address, or why there is none. Waits for its turn first; its time begins only then."""
        try:
            trail = _Trail(httpx.URL(address).copy_with(fragment=None))
        except (httpx.InvalidURL, ValueError):
            return Unfetched(FetchError.BAD_ADDRESS)
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_seconds) as limit:
                    return await self._followed_twice(trail, limit)
            except TimeoutError:
                return trail.unfetched(NotFetched(FetchError.TIMEOUT, self._timeout_seconds))
            except NotFetched as no:
                return trail.unfetched(no)

    async def aclose(self) -> None:
        """Release all resources."""
        await self._client.aclose()

    async def _followed_twice(self, trail: _Trail, limit: asyncio.Timeout) -> Fetched:
        """The image, if necessary at the second try: a failure is remembered for an hour, and a transient one should
        not be."""
        start = trail.url
        try:
            return await self._followed(trail, start)
        except NotFetched as no:
            left_seconds = (limit.when() or 0.0) - asyncio.get_running_loop().time()
            if no.obstacle not in _PASSING or left_seconds <= PAUSE_SECONDS:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
        return await self._followed(trail, start)

    async def _followed(self, trail: _Trail, start: httpx.URL) -> Fetched:
        request = httpx.Request("GET", start)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                trail.url, trail.response = request.url, None
                trail.response = response = await self._client.send(request, stream=True)
                async with contextlib.aclosing(response):
                    if response.next_request is None:
                        return await self._image(response, _name(start))
                    request = response.next_request
        except httpx.TransportError as error:
            raise NotFetched(obstacle_of(error)) from None
        except (httpx.InvalidURL, ValueError):  # of a redirect
            raise NotFetched(FetchError.BAD_ADDRESS) from None
        raise NotFetched(FetchError.TOO_MANY_REDIRECTS, MAX_REDIRECTS)

    async def _image(self, response: httpx.Response, name: str) -> Fetched:
        status = response.status_code
        if status not in (200, 203):
            other = FetchError.SERVER_ERROR if status >= 500 else FetchError.HTTP_ERROR
            raise NotFetched(FetchError.EMPTY if status == 204 else _BY_STATUS.get(status, other))
        declared = plain_mime(_content_type(response))
        if declared not in _UNLABELLED and not declared.startswith("image/"):
            raise NotFetched(FetchError.NOT_AN_IMAGE)
        body = await self._body(response)
        encoding = response.headers.get("content-encoding", "")
        # In a thread: unpacking 20 MB takes 60 ms.
        return await asyncio.to_thread(self._checked, body, encoding, declared, name)

    async def _body(self, response: httpx.Response) -> bytes:
        """The body as sent, whatever its announced length."""
        announced = response.headers.get("content-length", "")
        too_large = NotFetched(FetchError.TOO_LARGE, self._max_bytes)
        if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            raise too_large
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._max_bytes:
                raise too_large
        return bytes(body)

    def _checked(self, body: bytes, encoding: str, declared: str, name: str) -> Fetched:
        try:
            stated = [(b"content-encoding", encoding.strip().encode("ascii", "replace"))]
            body = plain_body(body, stated, self._max_bytes)
        except BodyTooLarge:
            raise NotFetched(FetchError.TOO_LARGE, self._max_bytes) from None
        except MalformedRequest:
            raise NotFetched(FetchError.BROKEN) from None
        if not body:
            raise NotFetched(FetchError.EMPTY)
        if media_type(body, declared, name).kind is not ContentKind.IMAGE:
            raise NotFetched(FetchError.NOT_AN_IMAGE)
        return Fetched(body, "" if declared in _UNLABELLED else declared, name)


def _content_type(response: httpx.Response | None) -> str:
    stated = "" if response is None else response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return stated if _TYPE.fullmatch(stated) else ""


def _shown(url: httpx.URL) -> str:
    """An address without anything that may be a password, a signature or a sentence."""
    path = url.raw_path.decode("ascii", "replace").partition("?")[0]
    host = url.netloc.decode("ascii", "replace")
    return f"{url.scheme}://{host}{path}"[:_SHOWN_CHARACTERS]


def _name(url: httpx.URL) -> str:
    """The file name at the end of an address, made fit to print; else the host."""
    last = url.path.rstrip("/").rpartition("/")[2]
    return _UNPRINTABLE_IN_NAMES.sub("_", last)[-_NAME_CHARACTERS:].strip(" .") or url.host


Resolve: TypeAlias = Callable[[str], Sequence[Address]]
"""Name → its addresses, the best first. Blocks; raises OSError."""

USUAL_PORTS: Final = frozenset({80, 443})
"""Other ports belong to services that expect no strangers, also on public hosts: the proxy's machine may be one."""
_MAX_TRIES: Final = 3
"""Addresses tried for one name, one after another; the time for all of them is limited elsewhere."""
_CONNECT_SECONDS: Final = 3.0
"""Timeout of one connection attempt: the system's own limit is minutes."""
_RESOLVER_THREADS: Final = 8
"""Separate threads: a name server that does not respond must not take those that plan requests."""
_HEADERS: Final = {"user-agent": "context-proxy", "accept": "image/*", "accept-encoding": "identity"}
"""Images are already compressed; one that arrives compressed all the same is unpacked within the size limit."""


class NotFetched(Exception):
    """Why there is no content; `limit` if one was exceeded."""

    def __init__(self, obstacle: FetchError, limit: float | None = None) -> None:
        super().__init__(obstacle.value)
        self.obstacle = obstacle
        self.limit = limit


def system_resolver(host: str) -> Sequence[Address]:
    """The system resolver's addresses, in the order of RFC 6724."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(address[0]) for *_, address in found))


class CheckedTransport(httpx.AsyncHTTPTransport):
    """Sends each request, the first or that of a redirect, to an address that it has checked, over a connection of its
    own: one made for one name, with its certificate checked, must not serve another name at the same address.

    Proxies named by the environment are not used: they would resolve the name themselves, and connect to anything.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        resolve: Resolve = system_resolver,
        is_open: Callable[[Address], bool] = is_public,
        ports: frozenset[int] = USUAL_PORTS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        super().__init__(verify=tls or httpx.create_ssl_context(), trust_env=False, limits=limits)
        self._allow_private = allow_private
        self._resolve = resolve
        self._is_open = is_open
        self._ports = ports
        self._threads = Threads(_RESOLVER_THREADS, "resolver")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response of one server, its body unread. Raises NotFetched."""
        url = request.url
        may_ask = url.port is None or url.port in self._ports or self._allow_private
        if url.scheme not in ("http", "https") or url.userinfo or not may_ask:
            raise NotFetched(FetchError.BAD_ADDRESS)
        failure = NotFetched(FetchError.PRIVATE_ADDRESS)
        allowed = [
            address
            for address in await self._addresses(url)
            if self._is_open(address) or (self._allow_private and is_private_network(address))
        ]
        for address in allowed[:_MAX_TRIES]:
            try:
                return await super().handle_async_request(_to(address, url))
            except httpx.TransportError as error:
                failure = NotFetched(obstacle_of(error))
            if failure.obstacle not in (FetchError.UNREACHABLE, FetchError.TIMEOUT):
                break
        raise failure

    async def _addresses(self, url: httpx.URL) -> Sequence[Address]:
        host = url.raw_host.decode("ascii")
        try:
            literal = literal_address(host)
        except ValueError:
            raise NotFetched(FetchError.BAD_ADDRESS) from None
        if literal is not None:
            return (literal,)
        try:
            return await self._threads.run(_CONNECT_SECONDS, partial(self._resolve, host))
        except (OSError, UnicodeError):
            raise NotFetched(FetchError.UNKNOWN_HOST) from None


def _to(address: Address, url: httpx.URL) -> httpx.Request:
    """A request for exactly this address: the name is sent in the header and in the TLS handshake, where the
    certificate must match it."""
    timeout = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
    return httpx.Request(
        "GET",
        url.copy_with(host=str(address)),
        headers={"host": url.netloc.decode("ascii"), **_HEADERS},
        extensions={"timeout": timeout, "sni_hostname": url.raw_host.decode("ascii")},
    )


def obstacle_of(error: httpx.TransportError) -> FetchError:
    """The meaning of an error of the client library. Its text may quote the address and is not kept."""
    if isinstance(error, httpx.TimeoutException):
        return FetchError.TIMEOUT
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return FetchError.INSECURE
        cause = cause.__cause__ or cause.__context__
    return FetchError.UNREACHABLE if isinstance(error, httpx.ConnectError) else FetchError.BROKEN
