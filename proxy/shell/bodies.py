"""The body of a request: read within a bound, decompressed within the same bound, or streamed on unread.

Rule: memory is bounded by `server.max_body_bytes`, before and after decompression; a small body that unpacks to
gigabytes is stopped while it unpacks.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.types import Receive

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest

_WINDOW_BITS: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's names for the formats of RFC 9110 8.4.1."""


def can_unpack(encoding: bytes) -> bool:
    """Whether `unpack` reads this content-encoding; the upstream may read others."""
    return encoding in _WINDOW_BITS


async def read_body(receive: Receive, announced_bytes: int, limit_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge, before reading it when its length is announced, and ClientLeft."""
    if announced_bytes > limit_bytes:
        raise _too_large(f"{announced_bytes:,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length, more = 0, True
    while more:
        piece, more = await _next_piece(receive)
        length += len(piece)
        if length > limit_bytes:
            raise _too_large(f"more than {limit_bytes:,} bytes", limit_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class BodyStream:
    """The body in the pieces that arrive."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.finished = asyncio.Event()
        """Set once the whole body has been taken."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces. Raises ClientLeft when the body breaks off."""
        while not self.finished.is_set():
            piece, more = await _next_piece(self._receive)
            if not more:
                self.finished.set()
            if piece:
                yield piece


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    """What has arrived of a body, and whether more will. Raises ClientLeft."""
    message = await receive()
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
    except zlib.error:
        raise MalformedRequest(f"the body is not valid {encoding.decode()} data") from None
    if len(unpacked) > limit_bytes:
        raise _too_large(f"more than {limit_bytes:,} bytes once unpacked", limit_bytes)
    if not unpacker.eof:
        raise MalformedRequest(f"the {encoding.decode()} data of the body breaks off")
    return unpacked


def _has_zlib_head(body: bytes) -> bool:
    """Whether a body begins as RFC 1950 has it: method 8, and a check over both bytes."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


def _too_large(found: str, limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body has {found}; at most {limit_bytes:,} are read (server.max_body_bytes)")
