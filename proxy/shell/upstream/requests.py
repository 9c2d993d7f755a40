"""Requests on their way upstream, with their heads byte for byte.

Rule: while the client sends a body, the client's time runs; while the upstream receives it, the upstream's. A whole
body is let go of as soon as it is written: its response may take minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http import StreamWriter

from proxy.errors import ClientError
from proxy.shell.upstream.responses import Headers, header

_COPIED_BYTES: Final = 16 * 1024
"""The head of a request and a body up to this size are sent together, which copies both."""


_CHUNKED: Final = b"\r\ntransfer-encoding: chunked\r\n\r\n"
_WITHOUT_BODY: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods of requests that state no length if they have no body (RFC 9110 8.6)."""


class Outgoing:
    """A whole body, until it is written."""

    def __init__(self, body: bytes, sent: Callable[[], Awaitable[None]] | None = None) -> None:
        """`sent` is called once it is written."""
        self.length = len(body)
        self._body = body
        self._sent = sent

    async def write_to(self, writer: AbstractStreamWriter, head: bytes = b"") -> None:
        """Write the body, behind a head that is copied, and do not keep it."""
        body, self._body = head + self._body if head else self._body, b""
        await writer.write(body)
        del body
        if self._sent is not None:
            await self._sent()


def head_of(method: str, target: bytes, headers: Headers) -> bytes:
    """The head of a request. Raises ValueError for a header of several lines."""
    head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target, b"".join(map(b"%b: %b\r\n".__mod__, headers)))
    if len(head.splitlines()) != len(headers) + 2:
        raise ValueError
    return head


def framing_of(method: str, headers: Headers, body: Outgoing | AsyncIterator[bytes] | None) -> Headers:
    """The header that says how long the body is: a replaced one has another length than its client announced."""
    if isinstance(body, Outgoing):
        return [(b"content-length", b"%d" % body.length)]
    if body is None:
        return [] if method in _WITHOUT_BODY else [(b"content-length", b"0")]
    announced = header(headers, b"content-length").strip()
    return [(b"content-length", announced) if announced else (b"transfer-encoding", b"chunked")]


class Upload(aiohttp.Payload):
    """A request's head and its body."""

    response: aiohttp.ClientResponse | None = None
    """Set once its head is there: the body may go on behind that."""

    def __init__(
        self, head: bytes, body: Outgoing | AsyncIterator[bytes] | None, wait: asyncio.Timeout, seconds: float
    ) -> None:
        """`wait`: for the response, `seconds` from when the upstream has to receive a piece, or to respond."""
        super().__init__(body)
        self.head = head
        self.body = body
        self.wait = wait
        self.seconds = seconds

    @property
    def consumed(self) -> bool:
        """True if the client library may not send it a second time."""
        return self.body is not None

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body as fast as the upstream takes it."""
        if isinstance(self.body, Outgoing):
            self._end_wait_after(self.seconds)
            await self.body.write_to(writer)
            return
        assert self.body is not None, "else the head is all there is"
        try:
            self._end_wait_after(None)
            async for piece in self.body:
                self._end_wait_after(self.seconds)
                await writer.write(piece)
                self._end_wait_after(None)
        except ClientError as error:  # which `send` reports, too
            if self.response is not None:
                self.response.content.set_exception(error)
            raise
        self._end_wait_after(self.seconds)

    def _end_wait_after(self, seconds: float | None) -> None:
        """Count the upstream's time from now on, or none as long as the client's runs."""
        if self.response is None:
            self.wait.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Not asked for: only `write` is called."""
        raise NotImplementedError


class Request(aiohttp.ClientRequest):
    """Sends an `Upload`. The client library's own `send` takes headers as text, which it writes as UTF-8."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send the head, and the body with it if it is short; else the body follows while the response is awaited,
        which may come before its end."""
        upload, protocol, task = self.body, conn.protocol, None
        assert isinstance(upload, Upload)
        assert protocol is not None, "a connection that is open"
        writer = StreamWriter(protocol, self.loop)
        if isinstance(upload.body, Outgoing) and upload.body.length <= _COPIED_BYTES:
            await upload.body.write_to(writer, upload.head)
        else:
            await writer.write(upload.head, drain=False)
            if upload.head.endswith(_CHUNKED):
                writer.enable_chunking()
            if upload.body is not None:
                task = asyncio.create_task(self.write_bytes(writer, conn))
        return self.response_class(
            self.method,
            self.original_url,
            writer=task,
            continue100=None,
            timer=TimerNoop(),
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self.session,
            stream_writer=writer,
        )
