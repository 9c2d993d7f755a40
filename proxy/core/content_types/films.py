"""The contents of a video container: ISO base media (MP4, MOV, M4A, HEIC, AVIF), Matroska, Ogg.

Rule: headers are read in place, in a bounded number of bounded steps.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

_WINDOW_BYTES: Final = 65_536
"""Searched for the names of codecs."""

_BRANDS: Final = (
    (re.compile(rb"avi[fs]"), "image/avif"),
    (re.compile(rb"he[iv][cxms]"), "image/heic"),
    (re.compile(rb"M4[ABP] "), "audio/mp4"),
    (re.compile(rb"qt  "), "video/quicktime"),
    (re.compile(rb"3g[2efghprst].|kddi"), "video/3gpp"),
)
"""https://mp4ra.org/registered-types/brands; all others are MP4."""
_IMAGE_BRANDS: Final = frozenset({b"mif1", b"mif2", b"msf1", b"miaf"})
"""An image of any codec, which the compatible brands state: ISO 23008-12, section 10.2."""
_MAX_BRANDS: Final = 64
_MAX_BOXES: Final = 64
"""Visited within one box."""
_MAX_TRACKS: Final = 16
_TOP_ATOMS: Final = frozenset({b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
"""A QuickTime file from before `ftyp` begins with one of these."""

_MATROSKA: Final = b"\x1a\x45\xdf\xa3"
_WEBM: Final = b"\x42\x82\x84webm"
_CODEC: Final = re.compile(rb"\x86[\x83-\xa0]([AV])_[A-Z]")
"""The elements DocType and CodecID, each with its length: RFC 9559, section 5.1."""


def isobmff(content: bytes) -> str:
    """MP4, MOV, M4A, HEIC, AVIF: by brand, and by tracks if the brand says MP4."""
    if content[4:8] == b"ftyp":
        major, mime = content[8:12], _of_brand(content[8:12])
        if major in _IMAGE_BRANDS:
            length = min(int.from_bytes(content[:4], "big"), 16 + 4 * _MAX_BRANDS)
            others = (_of_brand(content[at : at + 4]) for at in range(16, length, 4))
            return next((other for other in others if other.startswith("image/")), "image/heic")
        return mime or ("audio/mp4" if _handlers(content) == {b"soun"} else "video/mp4")
    if content[4:8] in _TOP_ATOMS:
        kinds = [kind for kind, _, _ in islice(_boxes(content, 0, len(content)), 2)]
        if (kinds[1:] and kinds[1] in _TOP_ATOMS) or content[12:16] == b"mvhd":
            return "video/quicktime"
    return ""


def _of_brand(brand: bytes) -> str:
    return next((mime for pattern, mime in _BRANDS if pattern.fullmatch(brand)), "")


def _handlers(content: bytes) -> set[bytes]:
    """The kinds of tracks in a film: moov / trak / mdia / hdlr, ISO 14496-12, section 8."""
    spans = [(0, len(content))]
    for wanted in (b"moov", b"trak", b"mdia", b"hdlr"):
        spans = [(at, end) for span in spans for kind, at, end in _boxes(content, *span) if kind == wanted][
            :_MAX_TRACKS
        ]
    return {content[at + 8 : at + 12] for at, _ in spans} & {b"soun", b"vide"}


def _boxes(content: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind of each box, and the beginning and end of its content."""
    for _ in range(_MAX_BOXES):
        if at + 8 > end:
            return
        length, kind = struct.unpack_from(">I4s", content, at)
        head = 8
        if length == 1 and at + 16 <= end:  # the length is a longer number
            length, head = struct.unpack_from(">Q", content, at + 8)[0], 16
        elif length == 0:  # to the end
            length = end - at
        if length < head:
            return
        yield kind, at + head, min(at + length, end)
        at += length


def matroska(content: bytes) -> str:
    """WebM or another Matroska, with or without video: by the codecs."""
    if not content.startswith(_MATROSKA):
        return ""
    head = content[:_WINDOW_BYTES]
    codecs = set(_CODEC.findall(head))
    return ("audio/" if codecs == {b"A"} else "video/") + ("webm" if _WEBM in head[:128] else "x-matroska")


def ogg(content: bytes) -> str:
    """By the codecs that the first pages name."""
    if content[:5] != b"OggS\0":
        return ""
    return "video/ogg" if b"\x80theora" in content[:_WINDOW_BYTES] else "audio/ogg"
