"""Sends responses: the one place where an error becomes one.

Rule: once a byte of a response has been sent, the only honest way to report a failure is to break the stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct, field
from starlette.types import Send

from proxy.errors import ClientLeft, ProxyError, RequestTimeout, UpstreamError
from proxy.shell.http.clients import KeepAlive, Losable, UntilClientLeaves
from proxy.shell.relay.peeking import PeekedResponse
from proxy.shell.relay.relay import Response
from proxy.shell.relay.watching import StreamedResponse
from proxy.shell.upstream.client import Headers, UpstreamResponse, header
from proxy.wire.protocol import Wire
from proxy.wire.registry import DEFAULT
from proxy.wire.streams import TAIL_BYTES, Tail

_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
"""What is copied from a client into logs and headers: visible ASCII of bounded length."""
_PIECES_OF_THE_END: Final = 32
"""Bytes examined when a response breaks off: `[DONE]` may arrive in several pieces."""


_HANDING_ON: Final = (UpstreamResponse, PeekedResponse, StreamedResponse)
"""Responses that pass as they arrive."""


class Passable(Protocol):
    """A response whose body arrives in pieces."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def headers(self) -> Headers:
        """As they are sent."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body."""


class ResponseSender(Struct, eq=False):
    """Sends one response, and knows whether it has begun."""

    _send: Send
    _request_id: bytes
    _wire: Wire = DEFAULT
    _alive: KeepAlive | None = None
    """What `send` belongs to, if bytes may be sent before the response is decided."""
    status: int = 0
    """Of the response; 0 until it has begun."""
    sent_bytes: int = 0
    last: Tail = field(default_factory=lambda: Tail(TAIL_BYTES, _PIECES_OF_THE_END))
    """The end of what was sent."""
    _is_read: bool = False
    _connection: Losable | None = None
    """The client's, once a response may be handed on piece by piece."""
    _send_piece: Send | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the client has all of a streamed response, however its connection or the upstream's ends."""
        return self._wire.is_complete(self.last.joined)

    def head(self, headers: Headers, own: Headers) -> Headers:
        """The headers of a response, with the proxy's `own`."""
        return [*self._with_request_id(headers), *own]

    async def pass_on(self, answer: Passable, client: UntilClientLeaves, own: Headers) -> None:
        """Forward the upstream's response, each piece as it arrives, with the proxy's `own` headers."""
        headers = self.head(answer.headers, own)
        self.status, whole = answer.status, answer.whole_body if isinstance(answer, PeekedResponse) else None
        if whole is not None and (to := client.connection) and to.send_whole(answer.status, headers, whole):
            client.release()
            self._is_read, self.sent_bytes = True, len(whole)
            self.last.add(whole)
            return
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if whole is not None:
            await self._end(whole, client)
            return
        send = self._send if self._alive is None else self._alive.rest
        if client.connection is not None and isinstance(answer, _HANDING_ON):
            self._connection, self._send_piece = client.connection, send
            answer.hand_to(self)
        try:
            async for piece in answer.chunks():
                self.sent_bytes += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                self.last.add(piece)
        except UpstreamError:
            if not self.is_whole:
                raise
        await self._end(b"", client)

    async def _end(self, body: bytes, client: UntilClientLeaves) -> None:
        """Send the end of a response, or all of it."""
        self._is_read = True
        self.sent_bytes += len(body)
        client.release()
        await self._send({"type": "http.response.body", "body": body})
        if body:
            self.last.add(body)

    @property
    def is_ready(self) -> bool:
        """Whether the client's connection takes a piece at once."""
        return self._connection is not None and self._connection.is_writable

    def take(self, piece: bytes) -> None:
        """Forward a piece at once: it must be ready."""
        self.sent_bytes += len(piece)
        assert self._send_piece is not None, "it is ready"
        sending = self._send_piece({"type": "http.response.body", "body": piece, "more_body": True})
        for _ in sending.__await__():
            raise AssertionError("a connection that is writable lets nobody wait")
        self.last.add(piece)

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """What forwards pieces with the framing in which they came, if they would be sent in chunks anyway."""
        is_direct = self._alive is None or self._alive.is_direct
        return self._connection.chunk_writer(stop) if self._connection is not None and is_direct else None

    def note_written(self, pieces: Sequence[bytes]) -> None:
        """These pieces were forwarded like that."""
        self.sent_bytes += sum(map(len, pieces))
        self.last.extend(pieces)

    async def let_go(self, answer: Response) -> None:
        """Close a response; if its client left with all of it, only when the body is over."""
        try:
            if not self._is_read and self.is_whole:
                await answer.drain()
        finally:
            await answer.aclose()

    async def refuse(self, error: ProxyError, own: Headers | None = None) -> None:
        """An error in the wire's shape; nothing if the response has begun, so that the server breaks it off."""
        if self.status or isinstance(error, ClientLeft):
            return
        body = self._wire.error(error, self._request_id.decode())
        described = [(b"content-type", self._wire.content_type), (b"content-length", str(len(body)).encode())]
        if isinstance(error, RequestTimeout):
            described.append((b"connection", b"close"))  # no other request can follow in the middle of one
        headers = [*self._with_request_id(described), *(own or [])]
        if all(name != self._wire.id_header for name, _ in headers):
            headers.append((self._wire.id_header, self._request_id))
        self.status = error.status
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _with_request_id(self, headers: Headers) -> Headers:
        """The upstream's own id stays visible under another name: its support asks for it."""
        if b"x-request-id" in dict(headers):
            renamed = {b"x-request-id": b"x-upstream-request-id"}
            headers = [(renamed.get(name, name), value) for name, value in headers]
        return [*headers, (b"x-request-id", self._request_id)]


def request_id_of(headers: Headers) -> bytes:
    """The client's own id for its request, else a new one."""
    given = header(headers, b"x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else b"req-" + os.urandom(8).hex().encode()
