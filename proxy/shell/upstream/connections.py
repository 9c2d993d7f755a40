"""Connections to upstreams, from aiohttp's pool.

Rule: a request that was sent on a connection is not sent again, so one that the upstream has closed must not be used.
Bytes that arrive before a request, such as a 408, would be taken for the response to it.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import ssl
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from proxy.shell.resources import Threads, TooSlow

LOCAL_IDLE_SECONDS: Final = 4
"""uvicorn, under vLLM and many others, closes connections that were idle for 5 seconds. A connection that is closed
while a request is on its way looks like a failure, and a POST must not be sent twice; so the proxy closes first."""
HOSTED_IDLE_SECONDS: Final = 55
"""Load balancers of hosted APIs keep connections for 60 seconds and more; TLS makes new ones expensive."""
_LOOK_UP_SECONDS: Final = 5.0
"""Timeout of a DNS look-up: then another look-up may begin, and the upstream's connect timeout is not over."""
_LOOK_UP_THREADS: Final = 8
_TCP_KEEPALIVE_SECONDS: Final = 30
"""Models think for minutes; routers forget silent connections after less."""


class Connector(aiohttp.TCPConnector):
    """A pool that hands out a used connection only if it is open and silent."""

    def __init__(self, *, is_tls: bool) -> None:
        super().__init__(
            limit=0,
            resolver=Resolver(),
            keepalive_timeout=HOSTED_IDLE_SECONDS if is_tls else LOCAL_IDLE_SECONDS,
            # Reads SSL_CERT_FILE; 20 ms, so only if TLS is used.
            ssl=ssl.create_default_context() if is_tls else False,
            socket_factory=_kept_alive_socket,
        )
        self.handed_out: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """Return an open connection; look up the name's addresses again if none of the cached ones accepts it."""
        while True:
            try:
                connection = await super().connect(req, traces, timeout)
            except aiohttp.ClientConnectorError as error:
                if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorDNSError):
                    raise
                self.clear_dns_cache()
                connection = await super().connect(req, traces, timeout)
            if self._is_new(connection) or _is_usable(connection):
                return connection
            connection.close()

    def _is_new(self, connection: Connection) -> bool:
        """True for a connection that no request has used; one that a server closes at once is not opened for ever."""
        protocol = connection.protocol
        assert protocol is not None, "a connection that is open"
        if protocol in self.handed_out:
            return False
        self.handed_out.add(protocol)
        if closed := protocol.closed:  # from now on it remembers how it ended
            closed.add_done_callback(asyncio.Future.exception)  # which few ask for
        return True


def _is_usable(connection: Connection) -> bool:
    """True if a connection of the pool is open and silent. The kernel knows of an end or of bytes that the loop was too
    busy to read."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing() or protocol.should_close:
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return not poll.poll(0)


def _kept_alive_socket(address: tuple[Any, ...]) -> socket.socket:
    found = socket.socket(*address[:3])
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on macOS
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _TCP_KEEPALIVE_SECONDS)
    return found


class Resolver(AbstractResolver):
    """The system's resolver, on threads of its own and with a limit: aiohttp has all requests wait for one look-up."""

    def __init__(self) -> None:
        self._threads = Threads(_LOOK_UP_THREADS, "upstream-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        try:
            found = await self._threads.run(_LOOK_UP_SECONDS, look_up)
        except TooSlow:
            raise OSError(errno.ETIMEDOUT, f"its name was not resolved within {_LOOK_UP_SECONDS:g} s") from None
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=str(at[0]), port=int(at[1]), family=family, proto=proto, flags=flags)
            for family, _, proto, _, at in found
        ]

    async def close(self) -> None:
        """Nothing to close: each look-up has a thread of its own."""
