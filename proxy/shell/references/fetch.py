"""Remote images: downloaded within limits of time, size and trust, and only from the public internet.

Rule: whatever a server does, the result is an image or the reason why there is none, in bounded time and memory; each
hop of a redirect is checked as if it were the first. A name is resolved once, its addresses are checked, and the
connection goes to the checked address, so a name that resolves differently a moment later (DNS rebinding) gains
nothing. Nothing of ours is sent: no key, no cookie.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final, TypeAlias

import httpx
from msgspec import Struct

from proxy.core.addresses import Address, is_private_network, is_public, literal_address
from proxy.core.content_types import ContentKind, media_type, plain_mime
from proxy.core.conversation import Fetched, FetchError, Unfetched
from proxy.errors import BodyTooLarge, MalformedRequest
from proxy.shell.http import can_unpack, unpack
from proxy.shell.resources import Threads

MAX_REDIRECTS: Final = 5
MAX_AT_ONCE: Final = 8
"""Downloads of one process; each holds up to `media.max_bytes`."""
PAUSE_SECONDS: Final = 1.0
"""Between two tries."""

_PASSING: Final = frozenset({FetchError.UNREACHABLE, FetchError.BROKEN, FetchError.SERVER_ERROR})
"""Worth a second try within seconds."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
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
    http_code: int | None = None
    content_type: str = ""

    def unfetched(self, obstacle: FetchError, limit: float | None = None) -> Unfetched:
        return Unfetched(obstacle, self.http_code, _shown(self.url), self.content_type, limit)


class Fetcher:
    """Downloads images."""

    def __init__(self, requests: GuardedRequests, *, max_bytes: int, timeout_seconds: float) -> None:
        self._requests = requests
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def fetch(self, address: str) -> Fetched | Unfetched:
        """The image at an address, or why there is none. Waits for its turn first; its time begins only then."""
        try:
            trail = _Trail(_parsed(address))
        except NotFetched as no:
            return Unfetched(no.obstacle)
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_seconds) as limit:
                    return await self._followed_twice(trail, _name(trail.url), limit)
            except TimeoutError:
                return trail.unfetched(FetchError.TIMEOUT, self._timeout_seconds)
            except NotFetched as no:
                return trail.unfetched(no.obstacle, no.limit)
            except httpx.TransportError as error:
                return trail.unfetched(obstacle_of(error))

    async def aclose(self) -> None:
        """Release all resources."""
        await self._requests.aclose()

    async def _followed_twice(self, trail: _Trail, name: str, limit: asyncio.Timeout) -> Fetched:
        """The image, if necessary at the second try: a failure is remembered for an hour, and a transient one should
        not be."""
        start = trail.url
        try:
            return await self._followed(trail, name)
        except (NotFetched, httpx.TransportError) as error:
            obstacle = error.obstacle if isinstance(error, NotFetched) else obstacle_of(error)
            ends = limit.when() or 0.0
            if obstacle not in _PASSING or ends - asyncio.get_running_loop().time() <= PAUSE_SECONDS:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
        trail.url, trail.http_code, trail.content_type = start, None, ""
        return await self._followed(trail, name)

    async def _followed(self, trail: _Trail, name: str) -> Fetched:
        seen: set[httpx.URL] = set()
        while True:
            seen.add(trail.url)
            response = await self._requests.get(trail.url)
            try:
                trail.http_code, trail.content_type = response.status_code, _content_type(response)
                target = _target(trail.url, response)
                if target is None:
                    return await self._image(response, name)
            finally:
                await response.aclose()
            if target in seen or len(seen) > MAX_REDIRECTS:
                raise NotFetched(FetchError.TOO_MANY_REDIRECTS, MAX_REDIRECTS if target not in seen else None)
            trail.url, trail.http_code, trail.content_type = target, None, ""

    async def _image(self, response: httpx.Response, name: str) -> Fetched:
        status = response.status_code
        if status not in (200, 203):
            other = FetchError.SERVER_ERROR if status >= 500 else FetchError.HTTP_ERROR
            raise NotFetched(FetchError.EMPTY if status == 204 else _BY_STATUS.get(status, other))
        declared = plain_mime(_content_type(response))
        if declared not in _UNLABELLED and not declared.startswith("image/"):
            raise NotFetched(FetchError.NOT_AN_IMAGE)
        body = await self._body(response)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
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
        if encoding not in ("", "identity"):
            if not can_unpack(encoding.encode("latin-1", "replace")):
                raise NotFetched(FetchError.BROKEN)
            try:
                body = unpack(body, encoding.encode("latin-1"), self._max_bytes)
            except BodyTooLarge:
                raise NotFetched(FetchError.TOO_LARGE, self._max_bytes) from None
            except MalformedRequest:
                raise NotFetched(FetchError.BROKEN) from None
        if not body:
            raise NotFetched(FetchError.EMPTY)
        if media_type(body, declared, name).kind is not ContentKind.IMAGE:
            raise NotFetched(FetchError.NOT_AN_IMAGE)
        return Fetched(body, "" if declared in _UNLABELLED else declared, name)


def _parsed(address: str) -> httpx.URL:
    try:
        return httpx.URL(address).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError):
        raise NotFetched(FetchError.BAD_ADDRESS) from None


def _target(url: httpx.URL, response: httpx.Response) -> httpx.URL | None:
    """Where a redirect leads; None if the response is not a redirect."""
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        return url.join(location).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError):
        raise NotFetched(FetchError.BAD_ADDRESS) from None


def _content_type(response: httpx.Response) -> str:
    stated = response.headers.get("content-type", "").partition(";")[0].strip().lower()
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


class GuardedRequests:
    """Sends GET requests, each over its own connection.

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
        self._allow_private = allow_private
        self._resolve = resolve
        self._is_open = is_open
        self._ports = ports
        self._threads = Threads(_RESOLVER_THREADS, "resolver")
        # Without keep-alive: the pool keys connections by address and port, and one made for one name, with its
        # certificate checked, must not serve another name at the same address.
        self._transport = httpx.AsyncHTTPTransport(
            verify=tls or httpx.create_ssl_context(),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def get(self, url: httpx.URL) -> httpx.Response:
        """The response of one server, its body unread and redirects not followed; the caller closes it.

        Raises NotFetched.
        """
        host = self._host(url)
        failure = NotFetched(FetchError.PRIVATE_ADDRESS)
        allowed = [address for address in await self._addresses(host) if self._may_connect(address)]
        for address in allowed[:_MAX_TRIES]:
            try:
                return await self._ask(url, host, address)
            except NotFetched as no:
                if no.obstacle not in (FetchError.UNREACHABLE, FetchError.TIMEOUT):
                    raise
                failure = no
        raise failure

    async def aclose(self) -> None:
        """Release all resources."""
        await self._transport.aclose()

    def _host(self, url: httpx.URL) -> str:
        may_ask = url.port is None or url.port in self._ports or self._allow_private
        if url.scheme not in ("http", "https") or url.userinfo or not may_ask:
            raise NotFetched(FetchError.BAD_ADDRESS)
        return url.raw_host.decode("ascii")

    def _may_connect(self, address: Address) -> bool:
        return self._is_open(address) or (self._allow_private and is_private_network(address))

    async def _addresses(self, host: str) -> Sequence[Address]:
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

    async def _ask(self, url: httpx.URL, host: str, address: Address) -> httpx.Response:
        """Request `url` from exactly this address: the name is sent in the header and in the TLS handshake, where the
        certificate must match it."""
        timeout = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
        request = httpx.Request(
            "GET",
            url.copy_with(host=str(address)),
            headers={"host": url.netloc.decode("ascii"), **_HEADERS},
            extensions={"timeout": timeout, "sni_hostname": host},
        )
        try:
            return await self._transport.handle_async_request(request)
        except httpx.TransportError as error:
            raise NotFetched(obstacle_of(error)) from None


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
