"""The type that the bytes of a file state: signatures at fixed places, and the inside of containers.

Rule: a signature is so long or structured that no text and no other format begins like it; a short one (`BM`, an MPEG
frame) counts only with the fields that must follow. Only a bounded part of the content is examined.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

from proxy.core.content_types.archives import ole, zip_archive
from proxy.core.content_types.films import isobmff, matroska, ogg
from proxy.core.content_types.frames import aac, mpeg_audio, transport_stream

_AT_START: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0\x08\0\0\0", "image/tiff"),  # BigTIFF
    (b"MM\0+\0\x08\0\0", "image/tiff"),
    (b"8BPS\0\x01", "image/vnd.adobe.photoshop"),
    (b"8BPS\0\x02", "image/vnd.adobe.photoshop"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\xff\x4f\xff\x51\0", "image/jp2"),
    (b"fLaC\0\0\0", "audio/flac"),
    (b"fLaC\x80\0\0", "audio/flac"),
    (b"#!AMR\n", "audio/amr"),
    (b"#!AMR-WB\n", "audio/amr"),
    (b"MThd\0\0\0\x06", "audio/midi"),
    (b".snd\0\0\0", "audio/basic"),
    (b"FLV\x01", "video/x-flv"),
    (b"{\\rtf", "application/rtf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xc5\xd0\xd3\xc6", "application/postscript"),  # EPS with a preview for DOS
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"\0asm\x01\0\0\0", "application/wasm"),
    (b"\0\x01\0\0\0", "font/ttf"),
    (b"OTTO\0", "font/otf"),
    (b"wOFF\0\x01\0\0", "font/woff"),
    (b"wOFFOTTO", "font/woff"),
    (b"wOF2\0\x01\0\0", "font/woff2"),
    (b"wOF2OTTO", "font/woff2"),
)

_PDF: Final = re.compile(rb"%PDF-\d\.\d(?! ?[A-Za-z])")
"""A sentence may also begin with a header, but it continues."""
_PDF_SEARCH_BYTES: Final = 1_024
"""Readers accept a header that begins within this many bytes: PDF 1.7 (ISO 32000-1), annex H, note 13."""
_PDF_END_BYTES: Final = 2_048
_BZIP2: Final = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_RIFF: Final = {b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo", b"WEBP": "image/webp"}
_ASF: Final = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_ASF_VIDEO: Final = bytes.fromhex("c0ef19bc4d5bcf11a8fd00805f5c442b")
"""The stream type of a video stream: Advanced Systems Format specification, section 10.4."""
_ASF_SEARCH_BYTES: Final = 16_384
_BMP_HEADER_BYTES: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
"""Lengths of the header after the file header: the versions of BITMAPINFOHEADER, and OS/2's."""


def mime_by_signature(content: bytes) -> str:
    """The type that the bytes state; empty if they state none."""
    for start, mime in _AT_START:
        if content.startswith(start):
            return mime
    for look in _LOOKS:
        if mime := look(content):
            return mime
    return ""


def mime_behind_junk(content: bytes) -> str:
    """The type of a content that begins with something else. Not for texts: a text may mention PDF."""
    late = _PDF.search(content, 0, _PDF_SEARCH_BYTES)
    return "application/pdf" if late and b"startxref" in content[-_PDF_END_BYTES:] else ""


def _pdf(content: bytes) -> str:
    return "application/pdf" if _PDF.match(content) else ""


def _riff(content: bytes) -> str:
    return _RIFF.get(content[8:12], "") if content[:4] in (b"RIFF", b"RF64") else ""


def _aiff(content: bytes) -> str:
    return "audio/aiff" if content[:4] == b"FORM" and content[8:12] in (b"AIFF", b"AIFC") else ""


def _bmp(content: bytes) -> str:
    if content[:2] != b"BM" or len(content) < 26:
        return ""
    pixels_at, header_bytes = struct.unpack_from("<II", content, 10)
    return "image/bmp" if header_bytes in _BMP_HEADER_BYTES and pixels_at >= 14 + header_bytes else ""


def _icon(content: bytes) -> str:
    """A directory of images: none is empty, and the byte after the number of colours is zero."""
    if content[:4] not in (b"\0\0\x01\0", b"\0\0\x02\0") or len(content) < 22:
        return ""
    images, first_bytes, first_at = struct.unpack_from("<4xH8xII", content)
    return "image/x-icon" if 0 < images < 256 and content[9] == 0 and first_bytes and first_at >= 22 else ""


def _bzip2(content: bytes) -> str:
    return "application/x-bzip2" if _BZIP2.match(content) else ""


def _program_stream(content: bytes) -> str:
    """A pack header of MPEG-2 or MPEG-1: ISO 13818-1, section 2.5.3, and 11172-1, section 2.4.3."""
    marked = content[:4] == b"\0\0\x01\xba" and len(content) > 4 and (content[4] >> 6 == 1 or content[4] >> 4 == 2)
    return "video/mpeg" if marked else ""


def _zstd(content: bytes) -> str:
    """A skippable frame may come first: RFC 8878, section 3.1.2."""
    if not re.match(rb"[\x50-\x5f]\x2a\x4d\x18.{4}", content, re.DOTALL):
        return ""
    behind = 8 + int.from_bytes(content[4:8], "little")
    return "application/zstd" if content[behind : behind + 4] == b"\x28\xb5\x2f\xfd" else ""


def _asf(content: bytes) -> str:
    if not content.startswith(_ASF):
        return ""
    return "video/x-ms-wmv" if _ASF_VIDEO in content[:_ASF_SEARCH_BYTES] else "audio/x-ms-wma"


def _portable_executable(content: bytes) -> str:
    if content[:2] != b"MZ" or len(content) < 64:
        return ""
    header_at = struct.unpack_from("<I", content, 60)[0]
    found = content[header_at : header_at + 4] == b"PE\0\0"
    return "application/vnd.microsoft.portable-executable" if found else ""


def _tar(content: bytes) -> str:
    """The header's checksum, which every tar has, old or new: the oldest have no `ustar`."""
    header = content[:512]
    stated = header[148:156].strip(b" \0")
    if len(header) < 512 or not re.fullmatch(rb"[0-7]{1,7}", stated):
        return ""
    counted = sum(header) - sum(header[148:156]) + 8 * 32
    return "application/x-tar" if header[0] and counted == int(stated, 8) else ""


_LOOKS: Final[tuple[Callable[[bytes], str], ...]] = (
    zip_archive, ole, _riff, isobmff, matroska, ogg, _pdf, _aiff, _bmp, _icon, _bzip2, _zstd, _asf, _program_stream,
    _portable_executable, _tar, mpeg_audio, aac, transport_stream,
)  # fmt: skip
"""In this order; the frames of audio streams come last, because they are the shortest signatures."""
