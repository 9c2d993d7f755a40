"""One GET to a host that a stranger chose, and only to the public internet.

Rule: a name is resolved once, its addresses are checked, and the connection goes to the checked address, so a name that
resolves differently a moment later (DNS rebinding) gains nothing. Nothing of ours is sent: no key, no cookie.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final, TypeAlias

import httpx

from proxy.core.conversation.references import FetchError
from proxy.shell.references.public_addresses import Address, is_private_network, is_public, literal_address
from proxy.shell.resources.threads import DaemonThreads

Resolve: TypeAlias = Callable[[str], Sequence[Address]]
"""Name → its addresses, the best first. Blocks; raises OSError."""

USUAL_PORTS: Final = frozenset({80, 443})
"""Other ports belong to services that expect no strangers, also on public hosts: the proxy's machine may be one."""
_MAX_TRIES: Final = 3
"""Addresses tried for one name, one after another; the time for all of them is limited elsewhere."""
_CONNECT_SECONDS: Final = 3.0
"""For one of them: the system's own limit is minutes."""
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
        self._threads = DaemonThreads(_RESOLVER_THREADS, "resolver")
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
        self._threads.shutdown(wait=False, cancel_futures=True)

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
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, host)
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
