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
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Message

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.resources import Share
from proxy.shell.upstream import Headers, header

_DISCARDED_BYTES: Final = 1024 * 1024
_DISCARD_SECONDS: Final = 5.0
"""nginx's lingering_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_timeout"""


async def read_body(request: Request, limit_bytes: int, pause_seconds: float, share: Share | None = None) -> bytes:
    """The whole body; each piece of it waits for room in the `share`. Raises BodyTooLarge, before reading if the length
    is announced; ClientLeft; and RequestTimeout if the client pauses for this long, not counting the time for which it
    is held up."""
    announced = header(request.scope["headers"], b"content-length")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise too_large(f"{int(announced):,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length = 0
    async for piece in Upload(request, pause_seconds, share):
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
    """A body in the pieces that arrive, each of which waits for room in the `share`."""

    def __init__(self, request: Request, pause_seconds: float, share: Share | None = None) -> None:
        self._request = request
        self._pause_seconds = pause_seconds
        self._share = share
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

    async def _pieces(self) -> AsyncIterator[bytes]:
        while not self.finished.is_set():
            message = await self._message()
            if message["type"] == "http.disconnect":
                raise ClientLeft("the client closed its connection before its request was complete")
            if not message.get("more_body", False):
                self.finished.set()
            if piece := message.get("body", b""):
                yield piece

    async def _message(self) -> Message:
        try:
            if self._share is not None:
                return await self._share.next_message(self._request.receive, self._pause_seconds)
            async with asyncio.timeout(self._pause_seconds):
                return await self._request.receive()
        except TimeoutError:
            seconds = f"{self._pause_seconds:g} s (server.body_timeout_seconds)"
            also = "" if self._share is None else ", or too little while others waited"
            raise RequestTimeout(f"nothing of the request's body arrived for {seconds}{also}") from None


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
        body = b"".join(_unpacked(body, coding, limit_bytes))
    return body


def _unpacked(body: bytes, coding: bytes, limit_bytes: int) -> Iterator[bytes]:
    """A body without its last coding, in pieces: the libraries copy whatever follows a member.

    One member may follow another in gzip (RFC 1952 2.2) and zstd (RFC 8878 3); what follows deflate is ignored.
    """
    begin, failure = _reader(coding, body)
    name, at, members, left_bytes = coding.decode(), 0, 0, limit_bytes + 1
    try:
        while not members or (at < len(body) and coding != b"deflate" and not _is_padding(body, at, coding)):
            members += 1
            if members > _MOST_MEMBERS or (members > 1 and coding == b"br"):
                raise MalformedRequest(f"something follows the {name} data of the body, or it has too many members")
            unpacker = begin()
            while not unpacker.eof:
                piece = body[at : at + _PIECE_BYTES] if getattr(unpacker, "needs_input", True) else b""
                unpacked = unpacker.decompress(piece, left_bytes)
                at += len(piece) - len(unpacker.unused_data) - len(getattr(unpacker, "unconsumed_tail", b""))
                left_bytes -= len(unpacked)
                if left_bytes <= 0:
                    raise too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
                if not unpacked and not piece and not unpacker.eof:
                    raise MalformedRequest(f"the {name} data of the body breaks off")
                yield unpacked
    except failure:
        why = ", or asks for a window of over 8 MB" if coding == b"zstd" else ""
        raise MalformedRequest(f"the body is not valid {name} data{why}") from None


def _reader(coding: bytes, body: bytes) -> tuple[Callable[[], Any], type[Exception]]:
    """What makes the decompressor of a member, in the form of zlib's, and the error that it raises."""
    if coding == b"zstd" and (module := _zstd()) is not None:
        options = {module.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        return partial(module.ZstdDecompressor, options=options), module.ZstdError
    if coding == b"br" and (module := _brotli()) is not None:
        return partial(_Brotli, module.Decompressor()), module.error
    bits = _WINDOW_BITS[coding]
    is_bare = coding == b"deflate" and not _has_zlib_head(body)  # as some senders do according to RFC 9110 8.4.1.2
    return partial(zlib.decompressobj, -bits if is_bare else bits), zlib.error


class _Brotli:
    """brotli's decompressor in the form of zlib's."""

    unused_data = b""

    def __init__(self, unpacker: Any) -> None:
        self._unpacker = unpacker

    @property
    def eof(self) -> bool:
        return bool(self._unpacker.is_finished())

    @property
    def needs_input(self) -> bool:
        return bool(self._unpacker.can_accept_more_data())

    def decompress(self, piece: bytes, _: int) -> bytes:
        unpacked: bytes = self._unpacker.process(piece, output_buffer_limit=_PIECE_BYTES)  # and up to half as much
        return unpacked


def _is_padding(body: bytes, at: int, coding: bytes) -> bool:
    """Whether only zeros follow, which gzip allows."""
    return coding in _WINDOW_BITS and body[at] == 0 and body.count(0, at) == len(body) - at


def _has_zlib_head(body: bytes) -> bool:
    """Whether a body begins as RFC 1950 requires: method 8, and a checksum over both bytes."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


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
