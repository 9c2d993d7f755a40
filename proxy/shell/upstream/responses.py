"""Responses of upstreams, or why there is none.

Rule: the client library's exceptions stop here and become the proxy's own errors; a connection whose response is no
longer read is closed at once, for whatever reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import ssl
from collections.abc import AsyncIterator
from typing import Final, Self, TypeAlias

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from proxy.errors import UpstreamTimeout, UpstreamUnreachable

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in lower case; order and repeats as received."""
HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers about one connection, not about the message: RFC 9110 7.6.1 and the older list of RFC 2616 13.5.1."""
_KEEPS: Final = [b"keep-alive"]
"""The `Connection` of nearly all clients; names nothing else."""
NO_SUCH_HOST: Final = "the host name is unknown"
SPEAKS_NO_TLS: Final = "it does not speak TLS; use http:// instead of https://"
CLOSED: Final = "it closed the connection"
UNTRUSTED: Final = "its certificate is not trusted"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
"""OpenSSL's errors for a plaintext response: include/openssl/sslerr.h; the first up to 3.1, the second since."""
FAILURES: Final = (aiohttp.ClientError, aiohttp.EofStream, HttpProcessingError, OSError, ValueError)
"""Raised when sending a request; ValueError for a multi-line header."""
_DRAIN_SECONDS: Final = 2.0
"""How long to wait for the end of the body after the end of its content: gateways record the cost in between. A
connection that is not finished then is closed, as the next one costs only a handshake."""
_DRAIN_BYTES: Final = 64 * 1024
_OURS: Final = b"x-context-proxy-"
"""How the names of the proxy's own headers begin. An upstream's own never reach a client, who could not tell them from
ours; those of another context-proxy neither."""
_CONTROL: Final = re.compile(rb"[\0-\x08\n-\x1f\x7f]")
"""Characters that no header may have, and our server sends none with; each becomes a blank (RFC 9110 5.5)."""
_ODD: Final = re.compile(rb"\n%b|[\0-\x08\v-\x1f\x7f]" % _OURS)
"""Either, in lines of headers."""


def end_to_end(headers: Headers, dropped: frozenset[bytes] = HOP_BY_HOP) -> Headers:
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


class Response(aiohttp.ClientResponse):
    """A response that knows how its connection ended if its body ends with it: aiohttp takes a reset for an end."""

    ending: asyncio.Future[None] | None = None
    """None for a body whose end is stated."""

    async def start(self, connection: Connection) -> Self:
        """Read the head."""
        protocol = connection.protocol
        assert protocol is not None, "a connection that is open"
        await super().start(connection)
        if "content-length" not in self.headers and "transfer-encoding" not in self.headers:
            self.ending = protocol.closed  # it has been since the connector asked for it
        return self


class UpstreamResponse(Struct, eq=False):
    """A response whose head has been read and whose body waits. Close it, whether read or not."""

    _response: Response
    _where: str
    _idle_seconds: float
    status: int
    headers: Headers
    _timer: asyncio.TimerHandle | None = None
    _waiting_since: float | None = None
    """Loop time; None while the proxy waits for the reader."""

    @classmethod
    def of(cls, response: Response, where: str, idle_seconds: float) -> UpstreamResponse:
        """`where`: the upstream, for people; `idle_seconds`: how long it may be silent."""
        received = [(name.lower(), value) for name, value in response.raw_headers]
        headers = end_to_end(received)
        if _ODD.search(b"".join(map(b"\n%b:%b".__mod__, headers))):  # hardly ever
            headers = [(name, _CONTROL.sub(b" ", value)) for name, value in headers if not name.startswith(_OURS)]
        return cls(response, where, idle_seconds, response.status, headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces that arrive, not decoded. Raises UpstreamUnreachable if it breaks off, and
        UpstreamTimeout after too long a silence; the time that the reader takes does not count."""
        # One timer for the whole response: aiohttp's read timeout sets one for each piece, and pieces come by the
        # thousand.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._end_silence)
        self._waiting_since = loop.time()
        try:
            while piece := await self._response.content.readany():
                self._waiting_since = None
                yield piece
                self._waiting_since = loop.time()
            if (ending := self._response.ending) is not None and ending.done():
                ending.result()
        except TimeoutError:
            raise UpstreamTimeout(
                f"{self._where} was silent for {self._idle_seconds:g} s in the middle of its response "
                "(upstream.idle_timeout_seconds)"
            ) from None
        except FAILURES as error:
            raise UpstreamUnreachable(f"{self._where} broke off its response: {cause(error)}") from None
        finally:
            self._timer.cancel()

    async def drain(self) -> None:
        """Read the rest of a body that is all but over, so that its connection can be reused; not for long."""
        left, read = _DRAIN_BYTES, self._response.content.readany
        with contextlib.suppress(*FAILURES):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while left > 0 and (piece := await read()):
                    left -= len(piece)

    async def aclose(self) -> None:
        """Release the connection: it returns to the pool if the body was read to its end, otherwise it is closed
        now."""
        self._response.close()

    def _end_silence(self) -> None:
        loop = asyncio.get_running_loop()
        silent = 0.0 if self._waiting_since is None else loop.time() - self._waiting_since
        if silent < self._idle_seconds:
            self._timer = loop.call_later(self._idle_seconds - silent, self._end_silence)
        else:
            self._response.content.set_exception(TimeoutError())


def cause(error: Exception) -> str:
    """The cause, in words of the operating system or as the error's name: other texts may quote the URL or a header."""
    match error:
        case aiohttp.ClientConnectorDNSError(errno=number) if number != errno.ETIMEDOUT:
            return NO_SUCH_HOST
        case aiohttp.ClientConnectorSSLError(__cause__=ssl.SSLError(reason=reason)) if reason in _NO_TLS:
            return SPEAKS_NO_TLS
        case aiohttp.ClientConnectorCertificateError(certificate_error=found):
            return f"{UNTRUSTED}: {getattr(found, 'verify_message', type(found).__name__)}"
        case OSError(errno=errno.ECONNREFUSED as number):  # asyncio's text for it says less
            return os.strerror(number)
        case aiohttp.ClientConnectorError(strerror=str(said)) if said:
            return said
        case OSError(errno=int(number)) if number:
            return os.strerror(number)
        case HttpProcessingError() | aiohttp.ClientResponseError():
            return "its response is not valid HTTP"
        case aiohttp.ClientPayloadError():
            return "it is incomplete, or not valid HTTP"
        case aiohttp.ClientConnectionError():
            return CLOSED
    return type(error).__name__
