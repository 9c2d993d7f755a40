"""The body of a request: read up to a limit and decompressed, or streamed unread.

Rule: memory is bounded by `server.max_body_bytes`, before and after decompression; a small body that unpacks to
gigabytes is stopped while it unpacks. The readers for zstd (before Python 3.14) and brotli come with the extra
`compression`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import zlib
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.resources import Share
from proxy.shell.upstream import Headers

_DISCARDED_BYTES: Final = 1024 * 1024
_DISCARD_SECONDS: Final = 5.0
"""nginx's lingering_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_timeout"""


async def read_body(request: Request, limit_bytes: int, pause_seconds: float, share: Share | None = None) -> bytes:
    """The whole body; each piece of it waits for room in the `share`. Raises BodyTooLarge, before reading if the length
    is announced; ClientLeft; and RequestTimeout if the client pauses for this long, not counting the time for which it
    is held up."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise too_large(f"{int(announced):,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length = 0

    async def receive() -> Message:
        if share is not None:
            return await share.next_message(request.receive, pause_seconds)
        return await _next_message(request, pause_seconds)

    async for piece in _pieces(
        request, receive, pause_seconds, "" if share is None else ", or too little while others waited"
    ):
        length += len(piece)
        if length > limit_bytes:
            raise too_large(f"more than {limit_bytes:,} bytes", limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


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


class Upload:
    """A body that is passed on in the pieces that arrive."""

    def __init__(self, request: Request, pause_seconds: float) -> None:
        self._request = request
        self._pause_seconds = pause_seconds
        self._first = b""
        self.finished = asyncio.Event()
        """Set once the whole body has arrived."""

    async def whole(self) -> bytes | None:
        """The body if it has arrived; None: it comes in pieces, the first of which has."""
        self._first = await anext(self._pieces(), b"")
        return self._first if self.finished.is_set() else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces. Raises ClientLeft if the body breaks off, and RequestTimeout if the client pauses for too long;
        the time that the reader takes does not count."""
        first, self._first = self._first, b""
        if first:
            yield first
        if not self.finished.is_set():
            async for piece in self._pieces():
                yield piece

    async def discard(self) -> None:
        """Read the rest and throw it away, if it is short: the system resets a connection that is closed with bytes
        unread, and the client then loses the response that explains it."""
        left = _DISCARDED_BYTES
        with contextlib.suppress(ClientLeft, RequestTimeout, TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for piece in self:
                    left -= len(piece)
                    if left <= 0:
                        return

    def _pieces(self) -> AsyncIterator[bytes]:
        return _pieces(self._request, self._receive, self._pause_seconds)

    async def _receive(self) -> Message:
        message = await _next_message(self._request, self._pause_seconds)
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.finished.set()
        return message


async def _next_message(request: Request, pause_seconds: float) -> Message:
    async with asyncio.timeout(pause_seconds):
        return await request.receive()


async def _pieces(request: Request, receive: Receive, pause_seconds: float, also: str = "") -> AsyncIterator[bytes]:
    """The pieces of a body. Raises ClientLeft and RequestTimeout."""
    try:
        async for piece in Request(request.scope, receive).stream():
            if piece:
                yield piece
    except TimeoutError:
        reason = f"nothing of the request's body arrived for {pause_seconds:g} s (server.body_timeout_seconds)"
        raise RequestTimeout(reason + also) from None
    except ClientDisconnect:
        raise ClientLeft("the client closed its connection before its request was complete") from None


def too_large(found: str, limit_bytes: int) -> BodyTooLarge:
    """The error for a client whose body has `found`."""
    return BodyTooLarge(f"the body has {found}; at most {limit_bytes:,} are read (server.max_body_bytes)")


_WINDOW_BITS: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's names for the formats of RFC 9110 8.4.1."""
_MOST_CODINGS: Final = 3
"""Nested codings; clients use one."""
_MOST_MEMBERS: Final = 10_000
"""Limit for a gzip or zstd body: bgzip and pzstd make many; each costs some microseconds, however little it holds."""
_PIECE_BYTES: Final = 64 * 1024
_ZSTD_WINDOW_LOG: Final = 23
"""8 MB, the most memory that an HTTP sender may require of a reader: RFC 9659."""


def can_unpack(encoding: bytes) -> bool:
    """Whether `unpack` reads a content-encoding; the upstream may read others."""
    codings = _codings(encoding)
    return 0 < len(codings) <= _MOST_CODINGS and all(_is_known(coding) for coding in codings)


def is_zlibs(encoding: bytes) -> bool:
    """Whether zlib alone can read it."""
    return encoding in _WINDOW_BITS


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
        body = _READERS[coding](body, coding, limit_bytes)
    return body


def _codings(encoding: bytes) -> list[bytes]:
    """In the order in which they were applied.

    >>> _codings(b"gzip, Identity,BR")
    [b'gzip', b'br']
    """
    found = [coding.strip().lower() for coding in encoding.split(b",")]
    return [coding for coding in found if coding not in (b"", b"identity")]


def _is_known(coding: bytes) -> bool:
    if coding == b"zstd":
        return _zstd() is not None
    return _brotli() is not None if coding == b"br" else coding in _WINDOW_BITS


@functools.cache
def _zstd() -> ModuleType | None:
    """Python's own module, or its equivalent for older Pythons."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


@functools.cache
def _brotli() -> ModuleType | None:
    """From 1.2 on, which can stop early: https://github.com/google/brotli/releases/tag/v1.2.0"""
    with contextlib.suppress(ImportError):
        found = importlib.import_module("brotli")
        if hasattr(found.Decompressor, "can_accept_more_data"):
            return found
    return None


def _unzstd(body: bytes, _: bytes, limit_bytes: int) -> bytes:
    module = _zstd()
    assert module is not None, "can_unpack was asked"
    pieces: list[bytes] = []
    at, frames, most_bytes = 0, 0, limit_bytes + 1
    try:
        while most_bytes > 0 and (at < len(body) or not frames):  # one frame may follow another: RFC 8878 3
            frames += 1
            if frames > _MOST_MEMBERS:
                raise MalformedRequest(f"the zstd data of the body has more than {_MOST_MEMBERS:,} frames")
            unpacker = module.ZstdDecompressor(options={module.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
            while not unpacker.eof and most_bytes > 0:
                piece = b""
                if unpacker.needs_input:
                    if at == len(body):
                        raise MalformedRequest("the zstd data of the body breaks off")
                    piece = body[at : at + _PIECE_BYTES]
                    at += len(piece)
                pieces.append(unpacker.decompress(piece, most_bytes))
                most_bytes -= len(pieces[-1])
            at -= len(unpacker.unused_data) if unpacker.eof else 0
    except module.ZstdError:
        raise MalformedRequest("the body is not valid zstd data, or asks for a window of over 8 MB") from None
    if most_bytes <= 0:
        raise too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
    return b"".join(pieces)


def _unbrotli(body: bytes, _: bytes, limit_bytes: int) -> bytes:
    module = _brotli()
    assert module is not None, "can_unpack was asked"
    unpacker = module.Decompressor()
    pieces: list[bytes] = []
    at, length = 0, 0
    try:
        while not unpacker.is_finished():
            piece = body[at : at + _PIECE_BYTES] if unpacker.can_accept_more_data() else b""
            at += len(piece)
            unpacked = unpacker.process(piece, output_buffer_limit=_PIECE_BYTES)  # and up to half as much again
            if not unpacked and not piece and at == len(body):
                raise MalformedRequest("the br data of the body breaks off")
            pieces.append(unpacked)
            length += len(unpacked)
            if length > limit_bytes:
                raise too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
    except module.error:
        raise MalformedRequest("the body is not valid br data") from None
    if at < len(body):
        raise MalformedRequest("something follows the br data of the body")
    return b"".join(pieces)


def _unzip(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    window_bits = _WINDOW_BITS[encoding]
    if encoding == b"deflate" and not _has_zlib_head(body):
        window_bits = -window_bits  # without its frame, as some senders do according to RFC 9110
    unpacker = zlib.decompressobj(window_bits)
    try:
        unpacked = unpacker.decompress(body, limit_bytes + 1)
        if unpacker.unused_data and encoding != b"deflate":
            further = _further_members(unpacker.unused_data, window_bits, limit_bytes + 1 - len(unpacked))
            unpacked = b"".join((unpacked, *further))
    except zlib.error:
        raise MalformedRequest(f"the body is not valid {encoding.decode()} data") from None
    if len(unpacked) > limit_bytes:
        raise too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
    if not unpacker.eof:
        raise MalformedRequest(f"the {encoding.decode()} data of the body breaks off")
    return unpacked


def _further_members(packed: bytes, window_bits: int, most_bytes: int) -> Iterator[bytes]:
    """The members of a gzip file after its first, unpacked: RFC 1952 2.2. Zeros may follow the last, as gzip allows.

    In pieces, as zlib copies whatever follows a member. Raises MalformedRequest and zlib.error.
    """
    at, members = 0, 0
    while at < len(packed) and most_bytes > 0:
        if packed[at] == 0 and packed.count(0, at) == len(packed) - at:
            return
        members += 1
        if members > _MOST_MEMBERS:
            raise MalformedRequest(f"the gzip data of the body has more than {_MOST_MEMBERS:,} members")
        unpacker = zlib.decompressobj(window_bits)
        while not unpacker.eof and at < len(packed) and most_bytes > 0:
            piece = packed[at : at + _PIECE_BYTES]
            unpacked = unpacker.decompress(piece, most_bytes)
            at += len(piece) - len(unpacker.unused_data) - len(unpacker.unconsumed_tail)
            most_bytes -= len(unpacked)
            yield unpacked
        if not unpacker.eof and most_bytes > 0:
            raise MalformedRequest("the gzip data of the body breaks off")


def _has_zlib_head(body: bytes) -> bool:
    """Whether a body begins as RFC 1950 requires: method 8, and a checksum over both bytes."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


_READERS: Final = {**dict.fromkeys(_WINDOW_BITS, _unzip), b"zstd": _unzstd, b"br": _unbrotli}
