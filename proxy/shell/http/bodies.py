"""The body of a request: read up to a limit, or streamed unread.

Rule: memory is bounded by `server.max_body_bytes`, before and after decompression; a small body that unpacks to
gigabytes is stopped while it unpacks. The readers for brotli, and for zstd before
Python 3.14, come with the extra `compression`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Message

from proxy.config import ServerSettings
from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.resources import Share, in_thread
from proxy.shell.upstream import Headers, header


async def read_body(request: Request, limit_bytes: int, pause_seconds: float, share: Share | None = None) -> bytes:
    """The whole body; each piece of it waits for room in the `share`. Raises BodyTooLarge, before reading if the length
    is announced; ClientLeft; and RequestTimeout if the client pauses for this long, not counting the time for which it
    is held up."""
    announced = header(request.scope["headers"], b"content-length")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise too_large(f"{int(announced):,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length = 0
    async for piece in pieces_of(request, pause_seconds, share):
        length += len(piece)
        if length > limit_bytes:
            raise too_large(f"more than {limit_bytes:,} bytes", limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


async def read_plain_body(request: Request, server: ServerSettings, share: Share | None = None) -> bytes:
    """The whole body without its compression. Raises what `read_body` and `plain_body` raise."""
    body = await read_body(request, server.max_body_bytes, server.body_timeout_seconds, share)
    return await in_thread(plain_body, body, request.scope["headers"], server.max_body_bytes)


class Received:
    """The body of a request as it came, in a box, so that no caller holds a body that may be set aside."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.held_bytes = len(body)

    def become(self, body: bytes) -> None:
        """Share bytes that are held elsewhere, too."""
        self.body, self.held_bytes = body, 0

    def set_aside(self) -> object:
        """Take out the body."""
        body, self.body = self.body, b""
        return body

    def put_back(self, content: object) -> None:
        """Restore what `set_aside` returned, or a copy of it."""
        assert isinstance(content, bytes), "what was taken out"
        self.body = content


async def pieces_of(
    request: Request, pause_seconds: float, share: Share | None = None, arrived: asyncio.Event | None = None
) -> AsyncIterator[bytes]:
    """The body in the pieces that arrive, each of which waits for room in the `share`; `arrived` is set with the last.

    Raises ClientLeft if the body breaks off, and RequestTimeout if the client pauses for too long; the time that the
    reader takes does not count.
    """
    is_whole = False
    while not is_whole:
        message = await _message(request, pause_seconds, share)
        if message["type"] == "http.disconnect":
            raise ClientLeft("the client closed its connection before its request was complete")
        is_whole = not message.get("more_body", False)
        if is_whole and arrived is not None:
            arrived.set()
        if piece := message.get("body", b""):
            yield piece


async def _message(request: Request, pause_seconds: float, share: Share | None) -> Message:
    try:
        if share is not None:
            return await share.next_message(request.receive, pause_seconds)
        async with asyncio.timeout(pause_seconds):
            return await request.receive()
    except TimeoutError:
        also = "" if share is None else ", or too little while others waited"
        raise RequestTimeout(
            f"nothing of the request's body arrived for {pause_seconds:g} s (server.body_timeout_seconds){also}"
        ) from None


def too_large(found: str, limit_bytes: int) -> BodyTooLarge:
    """The error for a client whose body has `found`."""
    return BodyTooLarge(f"the body has {found}; at most {limit_bytes:,} are read (server.max_body_bytes)")


_MOST_CODINGS: Final = 3
"""Nested codings; clients use one."""
_MOST_MEMBERS: Final = 100
"""Limit for a gzip or zstd body: what follows a member is copied for the next. Clients send one."""
_ZSTD_WINDOW_LOG: Final = 23
"""8 MB, the most memory that an HTTP sender may require of a reader: RFC 9659."""


def can_unpack(encoding: bytes) -> bool:
    """True if `unpack` reads a content-encoding; the upstream may read others."""
    codings = _codings(encoding)
    return 0 < len(codings) <= _MOST_CODINGS and _readers().keys() >= set(codings)


def encoding_of(headers: Headers) -> bytes:
    """The compressions of a body, in the order in which they were applied; empty if there is none."""
    encoding = b",".join(value.lower() for name, value in headers if name == b"content-encoding")
    return b"" if encoding == b"identity" else encoding


def plain_body(body: bytes, headers: Headers, limit_bytes: int) -> bytes:
    """The body without its compression. Raises MalformedRequest and BodyTooLarge."""
    encoding = encoding_of(headers)
    if encoding and not can_unpack(encoding):
        raise MalformedRequest(
            "the body has a compression that the proxy cannot read; gzip, deflate, zstd and br can be"
        )
    return unpack(body, encoding, limit_bytes) if encoding else body


def unpack(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """Decompress a body. Raises MalformedRequest for broken data, BodyTooLarge beyond the limit."""
    for coding in reversed(_codings(encoding)):
        body = _unpacked(body, coding, limit_bytes)
    return body


def _unpacked(body: bytes, coding: bytes, limit_bytes: int) -> bytes:
    """A body without its last coding. One member may follow another in gzip, and zeros the last (RFC 1952 2.2), as in
    zstd (RFC 8878 3); what follows deflate is ignored."""
    begin, failure = _readers()[coding]
    if coding == b"deflate" and not _has_zlib_head(body):  # as some senders do according to RFC 9110 8.4.1.2
        begin = partial(zlib.decompressobj, -zlib.MAX_WBITS)
    name, members, left_bytes = coding.decode(), list[bytes](), limit_bytes + 1
    while not members or body.strip(b"\0"):
        if len(members) >= _MOST_MEMBERS:
            raise MalformedRequest(f"the {name} data of the body has too many members")
        unpacker = begin()
        try:
            members.append(unpacker.decompress(body, left_bytes))
        except failure:
            why = ", or asks for a window of over 8 MB" if coding == b"zstd" else ""
            raise MalformedRequest(f"the body is not valid {name} data{why}") from None
        left_bytes -= len(members[-1])
        if left_bytes <= 0:
            raise too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
        if not unpacker.eof:
            raise MalformedRequest(f"the {name} data of the body breaks off")
        body = b"" if coding == b"deflate" else unpacker.unused_data
    return b"".join(members)


def _codings(encoding: bytes) -> list[bytes]:
    """In the order in which they were applied.

    >>> _codings(b"gzip, Identity,BR")
    [b'gzip', b'br']
    """
    found = [coding.strip().lower() for coding in encoding.split(b",")]
    return [coding for coding in found if coding not in (b"", b"identity")]


def _has_zlib_head(body: bytes) -> bool:
    """Whether a body begins as RFC 1950 requires: method 8, and a checksum over both bytes."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


class _Brotli:
    """brotli's decompressor in the form of zlib's."""

    unused_data = b""

    def __init__(self, unpacker: Any) -> None:
        self._unpacker = unpacker

    @property
    def eof(self) -> bool:
        return bool(self._unpacker.is_finished())

    def decompress(self, body: bytes, most: int) -> bytes:
        return bytes(self._unpacker.process(body, output_buffer_limit=most))  # and up to half as much


@functools.cache
def _readers() -> Mapping[bytes, tuple[Callable[[], Any], type[Exception]]]:
    """What makes the decompressor of a member, by coding (RFC 9110 8.4.1), and the error that it raises."""
    gzip = partial(zlib.decompressobj, 31), zlib.error
    readers: dict[bytes, tuple[Callable[[], Any], type[Exception]]] = {
        b"gzip": gzip,
        b"x-gzip": gzip,
        b"deflate": (zlib.decompressobj, zlib.error),
    }
    for name in ("backports.zstd", "compression.zstd"):  # for older Pythons, and Python's own
        with contextlib.suppress(ImportError):
            zstd = importlib.import_module(name)
            options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
            readers[b"zstd"] = partial(zstd.ZstdDecompressor, options=options), zstd.ZstdError
    with contextlib.suppress(ImportError):
        brotli = importlib.import_module("brotli")
        if hasattr(brotli.Decompressor, "can_accept_more_data"):  # from 1.2 on it can stop early
            readers[b"br"] = lambda: _Brotli(brotli.Decompressor()), brotli.error
    return readers
