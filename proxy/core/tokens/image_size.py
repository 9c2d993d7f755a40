"""Width and height of an image, read from the first bytes of its file.

Rule: nothing here raises and nothing is decoded; a truncated or broken header gives None. An absurd size is returned as
it is written, because the caller that limits pixels has to see it.
"""

from __future__ import annotations

import struct
from typing import Final

_HEIF_BRANDS: Final = frozenset(
    b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")
)
_MOST_EXTENTS: Final = 64

_JPEG_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""TEM, RST0-7 and SOI: markers that stand alone. ITU T.81, table B.1."""
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0-15; DHT, JPG and DAC are in the same range. Same table."""
_JPEG_NO_FRAME_FOLLOWS: Final = frozenset({0xD9, 0xDA})
"""EOI and SOS: the frame header comes before the first scan or nowhere."""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, as stored (before any rotation that EXIF asks for), or None.

    64 KiB of a file are enough, except for a JPEG with more metadata than that before its frame header.

    >>> image_size(b"GIF89a\\x40\\x01\\xf0\\x00"), image_size(b"GIF89a"), image_size(b"%PDF-1.7")
    ((320, 240), None, None)
    """
    try:
        size = _read(head)
    except (struct.error, IndexError):  # the header continues after the given bytes
        return None
    return size if size is not None and size[0] > 0 and size[1] > 0 else None


def _read(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return _pair(">II", head, 16)
    if head.startswith(b"\xff\xd8\xff"):
        return _jpeg(head)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    if head.startswith(b"BM"):
        return _bmp(head)
    return _heif(head) if head[4:12] in _HEIF_BRANDS else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Segment by segment to the frame header; each step moves forward, so it cannot loop."""
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # any marker may be preceded by fill bytes
            at += 1
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        elif marker in _JPEG_NO_FRAME_FOLLOWS:
            return None
        else:
            at += 2 + struct.unpack_from(">H", head, at + 2)[0]
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    """https://developers.google.com/speed/webp/docs/riff_container and, for VP8, RFC 6386, section 9.1."""
    chunk = head[12:16]
    if chunk == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF  # the two bits above are a scale for display
    if chunk == b"VP8L" and head[20] == 0x2F:
        bits = struct.unpack_from("<I", head, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _heif(head: bytes) -> tuple[int, int] | None:
    """HEIC and AVIF: the largest `ispe`, because tiles have their own beside the image's. ISO/IEC 23008-12, 6.5.3."""
    at, sizes = head.find(b"ispe"), list[tuple[int, int]]()
    while at >= 0 and len(sizes) < _MOST_EXTENTS:
        sizes.append(_pair(">II", head, at + 8))
        at = head.find(b"ispe", at + 16)
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def _bmp(head: bytes) -> tuple[int, int] | None:
    """A height below zero means rows from the top: BITMAPINFOHEADER in the Windows GDI reference."""
    header_bytes = struct.unpack_from("<I", head, 14)[0]
    if header_bytes == 12:
        return _pair("<HH", head, 18)
    if header_bytes >= 40:
        width, height = _pair("<ii", head, 18)
        return width, abs(height)
    return None


def _pair(layout: str, head: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, head, at)
    return first, second
