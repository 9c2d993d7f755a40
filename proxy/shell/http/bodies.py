"""The body of a request: read within a bound, decompressed within the same bound, or streamed on unread.

Rule: memory is bounded by `server.max_body_bytes`, before and after decompression; a small body that unpacks to
gigabytes is stopped while it unpacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from starlette.types import Receive

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.resources.workload import Share

_WINDOW_BITS: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's names for the formats of RFC 9110 8.4.1."""
_MOST_MEMBERS: Final = 10_000
"""Of a gzip body: bgzip makes one for each 64 KB; each costs some microseconds, however little it holds."""
_PIECE_BYTES: Final = 64 * 1024
_DISCARDED_BYTES: Final = 1024 * 1024
_DISCARD_SECONDS: Final = 5.0
"""As nginx's lingering_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_timeout"""


def can_unpack(encoding: bytes) -> bool:
    """Whether `unpack` reads this content-encoding; the upstream may read others."""
    return encoding in _WINDOW_BITS


async def read_body(
    receive: Receive, announced_bytes: int, limit_bytes: int, pause_seconds: float, share: Share | None = None
) -> bytes:
    """The whole body; each piece waits for room in the `share`. Raises BodyTooLarge, before reading it when its length
    is announced, ClientLeft, and RequestTimeout when the client pauses for so long: the time that it is held up does
    not count."""
    if announced_bytes > limit_bytes:
        raise _too_large(f"{announced_bytes:,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length, more = 0, True
    while more:
        piece, more = await _next_piece(receive, pause_seconds, share)
        length += len(piece)
        if length > limit_bytes:
            raise _too_large(f"more than {limit_bytes:,} bytes", limit_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class BodyStream:
    """The body in the pieces that arrive."""

    def __init__(self, receive: Receive, pause_seconds: float) -> None:
        self._receive = receive
        self._pause_seconds = pause_seconds
        self.finished = asyncio.Event()
        """Set once the whole body has been taken."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces. Raises ClientLeft when the body breaks off, and RequestTimeout when the client pauses for too
        long; the time that the reader takes does not count."""
        while not self.finished.is_set():
            piece, more = await _next_piece(self._receive, self._pause_seconds)
            if not more:
                self.finished.set()
            if piece:
                yield piece

    async def discard(self) -> None:
        """Read what is left and throw it away, where that is little: the system resets a connection that is closed with
        bytes unread, and the client loses the answer that says why nobody read them."""
        left = _DISCARDED_BYTES
        with contextlib.suppress(ClientLeft, RequestTimeout, TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for piece in self:
                    left -= len(piece)
                    if left <= 0:
                        return


async def _next_piece(receive: Receive, pause_seconds: float, share: Share | None = None) -> tuple[bytes, bool]:
    """What has arrived of a body, and whether more will. Raises ClientLeft and RequestTimeout."""
    try:
        if share is not None:
            message = await share.next_message(receive, pause_seconds)
        else:
            async with asyncio.timeout(pause_seconds):
                message = await receive()
    except TimeoutError:
        said = f"nothing of the request's body came for {pause_seconds:g} s (server.body_timeout_seconds)"
        also = "" if share is None else ", or too little while others waited"
        raise RequestTimeout(said + also) from None
    if message["type"] == "http.disconnect":
        raise ClientLeft("the client closed its connection before its request was complete")
    return message.get("body", b""), message.get("more_body", False)


def unpack(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """A compressed body as it was. Raises MalformedRequest for broken data, BodyTooLarge past the limit."""
    window_bits = _WINDOW_BITS[encoding]
    if encoding == b"deflate" and not _has_zlib_head(body):
        window_bits = -window_bits  # without its frame, as RFC 9110 says that some senders do
    unpacker = zlib.decompressobj(window_bits)
    try:
        unpacked = unpacker.decompress(body, limit_bytes + 1)
        if unpacker.unused_data and encoding != b"deflate":
            further = _further_members(unpacker.unused_data, window_bits, limit_bytes + 1 - len(unpacked))
            unpacked = b"".join((unpacked, *further))
    except zlib.error:
        raise MalformedRequest(f"the body is not valid {encoding.decode()} data") from None
    if len(unpacked) > limit_bytes:
        raise _too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
    if not unpacker.eof:
        raise MalformedRequest(f"the {encoding.decode()} data of the body breaks off")
    return unpacked


def _further_members(packed: bytes, window_bits: int, most_bytes: int) -> Iterator[bytes]:
    """The members of a gzip file behind its first, unpacked: RFC 1952 2.2. Zeros may follow the last, as gzip has it.

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
    """Whether a body begins as RFC 1950 has it: method 8, and a check over both bytes."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


def _too_large(found: str, limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body has {found}; at most {limit_bytes:,} are read (server.max_body_bytes)")
