"""What is in a container: ZIP, OLE, ISO base media (MP4 and its kin), Matroska, Ogg.

Rule: names and headers are read in place, in a bounded number of bounded steps; nothing is ever unpacked.
"""

from __future__ import annotations

import re
import struct
from typing import Final

_WINDOW_BYTES: Final = 65_536
"""Looked at from each end of a content."""

_OPEN_XML: Final = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
)
_ZIP_ENTRY: Final = re.compile(rb"PK\x03\x04.{22}(..)..|PK\x01\x02.{24}(..).{16}", re.DOTALL)
"""The heads of an entry before its content, and in the directory at the end; the group is the length of the name that
follows: APPNOTE 6.3.10, sections 4.3.7 and 4.3.12. In the first, the length of the extra field lies between."""
_MAX_ENTRIES: Final = 1_000
_MIMETYPE: Final = re.compile(rb"PK\x03\x04.{22}\x08\0..mimetype([!-~]{1,80})", re.DOTALL)
"""OpenDocument and EPUB: the first entry is called so, is stored plain and holds the type."""

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_STREAMS: Final = (
    ("WordDocument", "application/msword"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("__properties_version1.0", "application/vnd.ms-outlook"),
)
_MAX_DIRECTORY_SECTORS: Final = 256
_FAT_SECTORS_IN_HEADER: Final = 109

_BRANDS: Final = (
    (re.compile(rb"avi[fs]"), "image/avif"),
    (re.compile(rb"he[iv][cxms]|mif1|msf1"), "image/heic"),
    (re.compile(rb"M4[ABP] |M4B"), "audio/mp4"),
    (re.compile(rb"qt  "), "video/quicktime"),
    (re.compile(rb"3g[2gpres]."), "video/3gpp"),
)
_TOP_ATOMS: Final = frozenset({b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
"""With which a QuickTime file from before `ftyp` begins."""

_MATROSKA: Final = b"\x1a\x45\xdf\xa3"


def zip_archive(content: bytes) -> str:
    """A ZIP, or the document that it is."""
    if content[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        return ""
    if stated := _MIMETYPE.match(content):
        mime = stated[1].decode()
        if mime.startswith(("application/epub+zip", "application/vnd.oasis.opendocument.")):
            return mime.partition("PK")[0]
    names = _zip_names(content)
    if b"[Content_Types].xml" in names:
        for folder, mime in _OPEN_XML:
            if any(name.startswith(folder) for name in names):
                return mime
    return "application/zip"


def _zip_names(content: bytes) -> set[bytes]:
    names: set[bytes] = set()
    for window in {content[:_WINDOW_BYTES], content[-_WINDOW_BYTES:]}:
        for entry in _ZIP_ENTRY.finditer(window):
            if len(names) >= _MAX_ENTRIES:
                break
            length = struct.unpack("<H", entry[1] or entry[2])[0]
            names.add(window[entry.end() : entry.end() + length])
    return names


def ole(content: bytes) -> str:
    """Office before 2007, told apart by the names in the container's directory: [MS-CFB], sections 2.2 and 2.6."""
    if not content.startswith(_OLE):
        return ""
    try:
        names = _ole_names(content)
    except struct.error:  # cut off
        names = set()
    return next((mime for name, mime in _OLE_STREAMS if name in names), "application/x-ole-storage")


def _ole_names(content: bytes) -> set[str]:
    power, sector = struct.unpack_from("<30xH", content)[0], struct.unpack_from("<I", content, 48)[0]
    size = 1 << min(power, 12)
    names: set[str] = set()
    for _ in range(_MAX_DIRECTORY_SECTORS):
        at = (sector + 1) * size
        for entry in range(at, min(at + size, len(content) - 127), 128):
            length = struct.unpack_from("<H", content, entry + 64)[0]
            names.add(content[entry : entry + max(0, min(length, 64) - 2)].decode("utf-16-le", "replace"))
        table, place = divmod(sector, size // 4)
        if table >= _FAT_SECTORS_IN_HEADER or sector >= 0xFFFFFFFA:
            break
        table_sector = struct.unpack_from("<I", content, 76 + 4 * table)[0]
        sector = struct.unpack_from("<I", content, (table_sector + 1) * size + 4 * place)[0]
    return names


def isobmff(content: bytes) -> str:
    """MP4, MOV, M4A, HEIC, AVIF: the brand, and for films without a picture, the tracks."""
    if content[4:8] == b"ftyp":
        length = min(max(16, int.from_bytes(content[:4], "big")), 256)
        brands = [content[8:12], *(content[at : at + 4] for at in range(16, length, 4))]
        if brands[0] in (b"mif1", b"msf1", b"miaf"):  # says only that it is an image; the others say of which codec
            brands = [*brands[1:], brands[0]]
        for brand in brands[:1] if brands[0] not in (b"mif1", b"miaf") else brands:
            for pattern, mime in _BRANDS:
                if pattern.match(brand):
                    return mime
        return "audio/mp4" if _only_sound(content) else "video/mp4"
    if content[4:8] in _TOP_ATOMS:
        length = int.from_bytes(content[:4], "big")
        behind = content[length + 4 : length + 8] if length >= 8 else b""
        if behind in _TOP_ATOMS or content[12:16] == b"mvhd":
            return "video/quicktime"
    return ""


def _only_sound(content: bytes) -> bool:
    handlers = set[bytes]()
    for window in (content[:_WINDOW_BYTES], content[-_WINDOW_BYTES:]):
        handlers.update(re.findall(rb"hdlr.{8}(vide|soun)", window, re.DOTALL))
    return handlers == {b"soun"}


def matroska(content: bytes) -> str:
    """WebM or another Matroska, with a picture or without."""
    if not content.startswith(_MATROSKA):
        return ""
    head = content[:_WINDOW_BYTES]
    kind = "webm" if b"\x42\x82\x84webm" in head[:128] else "x-matroska"
    sound = re.search(rb"\x86.{1,2}A_[A-Z]", head, re.DOTALL) and not re.search(rb"\x86.{1,2}V_[A-Z]", head, re.DOTALL)
    return f"{'audio' if sound else 'video'}/{kind}"


def ogg(content: bytes) -> str:
    """By the codecs that the first pages name."""
    if content[:5] != b"OggS\0":
        return ""
    return "video/ogg" if b"\x80theora" in content[:_WINDOW_BYTES] else "audio/ogg"
