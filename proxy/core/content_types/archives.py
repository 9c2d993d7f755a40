"""The contents of an archive: ZIP and OLE, and the document formats that are one of them.

Rule: names are read in place, in a bounded number of bounded steps; nothing is ever unpacked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

_WINDOW_BYTES: Final = 65_536
"""Searched for a name where the position of the next one is not stated."""

_OPEN_XML: Final = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
)
_MAX_ENTRIES: Final = 1_000
_MAX_ZIP_END_BYTES: Final = 22 + 65_535
"""The end record of a ZIP with the longest comment: APPNOTE 6.3.10, section 4.3.16."""
_SIZES_FOLLOW: Final = 0x08
"""Flag of an entry that was written as a stream: its sizes come after its content."""
_STATED: Final = re.compile(
    rb"PK\x03\x04.{22}\x08\0..mimetype(application/(?:epub\+zip|vnd\.oasis\.opendocument\.(?:text|spreadsheet|presentation|"
    rb"graphics)))",
    re.DOTALL,
)
"""OpenDocument and EPUB: the first entry is called `mimetype`, is stored uncompressed and contains the type. Templates
add `-template`: ODF 1.3, part 2, section 3.3, and EPUB OCF 3.3, section 4.3."""

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_STREAMS: Final = (
    ("WordDocument", "application/msword"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("__properties_version1.0", "application/vnd.ms-outlook"),
)
OLE_STORAGE: Final = "application/x-ole-storage"
KEPT_IN_OLE: Final = frozenset(mime for _, mime in (*_OLE_STREAMS, *_OPEN_XML))
"""Types that an OLE container without such a stream may have: an encrypted document of Office 2007 and later."""
_SECTOR_POWERS: Final = frozenset({9, 12})
_MAX_DIRECTORY_SECTORS: Final = 256
_FAT_SECTORS_IN_HEADER: Final = 109


def zip_archive(content: bytes) -> str:
    """The type of a ZIP, or of the document that it is."""
    if content[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        return ""
    if stated := _STATED.match(content):
        return stated[1].decode()
    names = set(_zip_directory(content)) or set(_zip_heads(content))
    if b"[Content_Types].xml" in names:
        for folder, mime in _OPEN_XML:
            if any(name.startswith(folder) for name in names):
                return mime
    return "application/epub+zip" if {b"mimetype", b"META-INF/container.xml"} <= names else "application/zip"


def _zip_directory(content: bytes) -> Iterator[bytes]:
    """The names in the directory at the end. Only the directory reliably skips archives within the archive."""
    end = content.rfind(b"PK\x05\x06", -_MAX_ZIP_END_BYTES)
    if end < 0 or end + 22 > len(content):
        return
    at = end - struct.unpack_from("<I", content, end + 12)[0]
    for _ in range(_MAX_ENTRIES):
        if at < 0 or content[at : at + 4] != b"PK\x01\x02" or at + 46 > len(content):
            return
        name, extra, comment = struct.unpack_from("<HHH", content, at + 28)
        yield content[at + 46 : at + 46 + name]
        at += 46 + name + extra + comment


def _zip_heads(content: bytes) -> Iterator[bytes]:
    """The names before the contents, for a truncated ZIP."""
    at = 0
    for _ in range(_MAX_ENTRIES):
        if content[at : at + 4] != b"PK\x03\x04" or at + 30 > len(content):
            return
        flags, packed, name, extra = struct.unpack_from("<6xH10xI4xHH", content, at)
        behind = at + 30 + name
        yield content[at + 30 : behind]
        sizes_follow = flags & _SIZES_FOLLOW and not packed
        at = content.find(b"PK\x03\x04", behind, _WINDOW_BYTES) if sizes_follow else behind + extra + packed
        if at < 0:
            return


def ole(content: bytes) -> str:
    """Office before 2007, by the names in the container's directory: [MS-CFB], sections 2.2 and 2.6."""
    if not content.startswith(_OLE):
        return ""
    try:
        names = _ole_names(content)
    except struct.error:  # truncated
        names = set()
    return next((mime for name, mime in _OLE_STREAMS if name in names), OLE_STORAGE)


def _ole_names(content: bytes) -> set[str]:
    power, sector = struct.unpack_from("<30xH", content)[0], struct.unpack_from("<I", content, 48)[0]
    names: set[str] = set()
    if power not in _SECTOR_POWERS:
        return names
    size = 1 << power
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
