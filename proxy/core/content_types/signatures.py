"""The type that the bytes of a file state, inside a container, too.

Rule: a signature is so long or structured that no text and no other format begins like it; a short one (`BM`, an MPEG
frame) counts only with the fields that must follow. Nothing is unpacked, and no step depends on what the bytes claim.
"""

from __future__ import annotations

import re
import struct
from typing import Final

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_HEIF: Final = rb".{4}ftyp(?:mif1|mif2|msf1|miaf)"
"""An image of any codec, which the compatible brands state: ISO 23008-12, section 10.2."""
_PACKET: Final = rb"G[\0-\x7f].[\x10-\x3f\x50-\x7f\x90-\xbf\xd0-\xff].{184}"
"""A transport stream's packet: sync byte, no error, and a payload or an adaptation field. ISO 13818-1, section
2.4.3."""
_STATED: Final = rb"PK\x03\x04.{22}\x08\0..mimetype"
_STATED_TYPES: Final = (
    b"application/epub+zip",
    b"application/vnd.oasis.opendocument.text",
    b"application/vnd.oasis.opendocument.spreadsheet",
    b"application/vnd.oasis.opendocument.presentation",
    b"application/vnd.oasis.opendocument.graphics",
)

# How a file begins · its type. The first that matches counts.
_BEGINNINGS: Final = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"II\*\0|MM\0\*|II\+\0\x08\0\0\0|MM\0\+\0\x08\0\0", "image/tiff"),  # the last two: BigTIFF
    (rb"RIFF.{4}WEBP", "image/webp"),
    # The header after the file header has one of a few lengths: the versions of BITMAPINFOHEADER, and OS/2's.
    (rb"BM.{8}(?!\0{4}).{4}[\x0c\x10(48@l|]\0{3}.{8}", "image/bmp"),
    # A directory of images: it is not empty, and the byte after the number of colours is zero.
    (rb"\0\0[\x01\x02]\0[^\0]\0.{3}\0.{4}(?!\0{4}).{8}", "image/x-icon"),
    (rb"8BPS\0[\x01\x02]", "image/vnd.adobe.photoshop"),
    (rb"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51\0", "image/jp2"),
    # ISO base media, by brand: https://mp4ra.org/registered-types/brands. `_film` knows the others.
    (rb".{4}ftypavi[fs]|" + _HEIF + rb".{4}(?:.{4}){0,60}?avi[fs]", "image/avif"),
    (rb".{4}ftyphe[iv][cxms]|" + _HEIF, "image/heic"),
    (rb".{4}ftypM4[ABP] ", "audio/mp4"),
    (rb".{4}ftyp(?:3g[2efghprst].|kddi)", "video/3gpp"),
    # QuickTime from before `ftyp` begins with one of these boxes.
    (rb".{4}ftypqt  |\0.{3}(?:moov|mdat|pnot)|\0{3}\x08(?:wide|free|skip).{4}(?:moov|mdat)", "video/quicktime"),
    (rb"(?:RIFF|RF64).{4}WAVE", "audio/wav"),
    (rb"fLaC[\0\x80]\0\0", "audio/flac"),
    (rb"OggS\0(?!.{0,65536}?\x80theora)", "audio/ogg"),  # the first pages name the codecs
    (rb"OggS\0", "video/ogg"),
    (rb"FORM.{4}AIF[FC]", "audio/aiff"),
    (rb"#!AMR(?:-WB)?\n", "audio/amr"),
    (rb"MThd\0\0\0\x06", "audio/midi"),
    (rb"\.snd\0{3}", "audio/basic"),
    (rb"RIFF.{4}AVI ", "video/x-msvideo"),
    (rb"FLV\x01", "video/x-flv"),
    # A pack header of MPEG-2 or MPEG-1: ISO 13818-1, section 2.5.3, and 11172-1, section 2.4.3.
    (rb"\0\0\x01\xba[\x20-\x2f\x40-\x7f]", "video/mpeg"),
    (b"(?:%b){5}|(?:.{4}%b){5}" % (_PACKET, _PACKET), "video/mp2t"),  # the latter with timestamps, as in M2TS
    # Windows Media with the stream type of a video: Advanced Systems Format specification, section 10.4.
    (rb"0&\xb2u\x8ef\xcf\x11.{0,16384}?\xc0\xef\x19\xbcM\x5b\xcf\x11\xa8\xfd\0\x80\x5f\x5cD\x2b", "video/x-ms-wmv"),
    (rb"0&\xb2u\x8ef\xcf\x11", "audio/x-ms-wma"),
    (rb"%PDF-\d\.\d(?! ?[A-Za-z])", "application/pdf"),  # a sentence may also begin with a header, but it continues
    (rb"\{\\rtf", "application/rtf"),
    (rb"%!PS-Adobe-|\xc5\xd0\xd3\xc6", "application/postscript"),  # or with a preview for DOS
    (rb"Rar!\x1a\x07", "application/vnd.rar"),
    (rb"7z\xbc\xaf'\x1c", "application/x-7z-compressed"),
    (rb"\x1f\x8b\x08", "application/gzip"),
    (rb"\xfd7zXZ\0", "application/x-xz"),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "application/x-bzip2"),
    # A skippable frame may come first: RFC 8878, section 3.1.2.
    (rb"(?:[\x50-\x5f]\x2aM\x18.{4,1024}?)?\x28\xb5\x2f\xfd", "application/zstd"),
    # Mode, owner, group and size of the first file: the oldest have no `ustar`.
    (rb".{257}ustar[\0 ]|[^\0].{98}\0(?:[0-7 ]{7}[\0 ]){3}[0-7 ]{11}[\0 ].{376}", "application/x-tar"),
    (rb"\x7fELF", "application/x-executable"),
    (rb"MZ.{58}..\0\0.{0,1024}?PE\0\0", "application/vnd.microsoft.portable-executable"),
    (rb"SQLite format 3\0", "application/vnd.sqlite3"),
    (rb"\0asm\x01\0{3}", "application/wasm"),
    (rb"\0\x01\0{3}", "font/ttf"),
    (rb"OTTO\0", "font/otf"),
    (rb"wOFF(?:\0\x01\0\0|OTTO)", "font/woff"),
    (rb"wOF2(?:\0\x01\0\0|OTTO)", "font/woff2"),
    # OpenDocument and EPUB: the first entry is called `mimetype`, is stored uncompressed and contains the type.
    # Templates add `-template`: ODF 1.3, part 2, section 3.3, and EPUB OCF 3.3, section 4.3.
    *((_STATED + re.escape(mime), mime.decode()) for mime in _STATED_TYPES),
)
_BEGINNING: Final = re.compile(b"|".join(b"(%b)" % pattern for pattern, _ in _BEGINNINGS), re.DOTALL)

_LATE_PDF: Final = re.compile(rb"%PDF-\d\.\d(?! ?[A-Za-z])")
_PDF_SEARCH_BYTES: Final = 1_024
"""Readers accept a header that begins within this many bytes: PDF 1.7 (ISO 32000-1), annex H, note 13."""
_PDF_END_BYTES: Final = 2_048

_MAX_ZIP_END_BYTES: Final = 22 + 65_535
"""The end record of a ZIP with the longest comment: APPNOTE 6.3.10, section 4.3.16."""
_ZIP_SEARCH_BYTES: Final = 1_048_576
"""Limit of a directory, or of a ZIP without one: an entry takes about a hundred bytes."""
_ZIP_ENTRY: Final = re.compile(
    rb"PK(?:\x01\x02.{42}|\x03\x04.{26})(word/|xl/|ppt/|\[Content_Types\]\.xml|mimetype|META-INF/container\.xml)",
    re.DOTALL,
)
"""In the directory, or before its content: APPNOTE, sections 4.3.12 and 4.3.7."""
_OPEN_XML: Final = {
    b"word/": f"{_OOXML}wordprocessingml.document",
    b"xl/": f"{_OOXML}spreadsheetml.sheet",
    b"ppt/": f"{_OOXML}presentationml.presentation",
}

_OLE_STREAMS: Final = {
    "WordDocument": "application/msword",
    "Workbook": "application/vnd.ms-excel",
    "Book": "application/vnd.ms-excel",
    "PowerPoint Document": "application/vnd.ms-powerpoint",
    "__properties_version1.0": "application/vnd.ms-outlook",
}
OLE_STORAGE: Final = "application/x-ole-storage"
KEPT_IN_OLE: Final = frozenset({*_OLE_STREAMS.values(), *_OPEN_XML.values()})
"""Types that an OLE container without such a stream may have: an encrypted document of Office 2007 and later."""

_TRACK: Final = re.compile(rb"hdlr.{8}(soun|vide)", re.DOTALL)
"""The kind of a track in a film: ISO 14496-12, section 8.4.3."""
_CODEC: Final = re.compile(rb"\x86[\x83-\xa0]([AV])_[A-Z]")
"""The Matroska element CodecID with its length: RFC 9559, section 5.1."""
_CODEC_SEARCH_BYTES: Final = 65_536

_KBIT: Final = {
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 0),
    (True, 1): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
    (False, 1): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
"""Bit rates, by whether it is MPEG-1, and by layer (2 is II, 1 is III, which is MP3): ISO 11172-3 and 13818-3."""
_HERTZ: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""Sample rates by version: 3 is MPEG-1, 2 is MPEG-2, and 0 is MPEG-2.5."""
_FRAMES: Final = 3
"""One frame is a coincidence; this many must follow each other."""
_ID3_SEARCH_BYTES: Final = 4_096
"""After an ID3 tag, and before the first frame: encoders pad with zeros."""
_JUNK_BYTES: Final = 16_384
"""Before the first whole frame; the longest frame has less than 3 KB."""


def mime_by_signature(content: bytes) -> str:
    """The type that the bytes state; empty if they state none."""
    if beginning := _BEGINNING.match(content):
        return _BEGINNINGS[(beginning.lastindex or 0) - 1][1]
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(content)
    if content.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _ole(content)
    if content.startswith(b"\x1a\x45\xdf\xa3"):
        return _matroska(content[:_CODEC_SEARCH_BYTES])
    if content[4:8] == b"ftyp":
        return "audio/mp4" if set(_TRACK.findall(content)) == {b"soun"} else "video/mp4"
    return _sound(content)


def mime_behind_junk(content: bytes, *, is_mp3: bool) -> str:
    """The type of a content that begins with something else. Not for texts: a text may mention PDF. `is_mp3`: whether
    it is declared as one; cut out of a stream, it begins in the middle of a frame."""
    if _LATE_PDF.search(content, 0, _PDF_SEARCH_BYTES) and b"startxref" in content[-_PDF_END_BYTES:]:
        return "application/pdf"
    found = re.finditer(b"\xff[\xe2-\xff]", content[:_JUNK_BYTES]) if is_mp3 else ()
    return "audio/mpeg" if any(_frames(content, start.start()) == "audio/mpeg" for start in found) else ""


def _zip(content: bytes) -> str:
    """A ZIP, or the document that it is, by the names in it."""
    found = _ZIP_ENTRY.findall(_zip_directory(content) or content[:_ZIP_SEARCH_BYTES])
    if b"[Content_Types].xml" in found:
        return next((_OPEN_XML[name] for name in found if name in _OPEN_XML), "application/zip")
    return "application/epub+zip" if {b"mimetype", b"META-INF/container.xml"} <= set(found) else "application/zip"


def _zip_directory(content: bytes) -> bytes:
    """The directory at the end, which leaves out archives within the archive; empty if it was cut off."""
    end = content.rfind(b"PK\x05\x06", -_MAX_ZIP_END_BYTES)
    if end < 0 or end + 22 > len(content):
        return b""
    at = end - struct.unpack_from("<I", content, end + 12)[0]
    return content[max(at, 0) : end][:_ZIP_SEARCH_BYTES]


def _ole(content: bytes) -> str:
    """Office before 2007, by the names in the container's directory: [MS-CFB], section 2.6.1."""
    for name, mime in _OLE_STREAMS.items():
        encoded = name.encode("utf-16-le")
        if encoded.ljust(64, b"\0") + struct.pack("<H", len(encoded) + 2) in content:
            return mime
    return OLE_STORAGE


def _matroska(head: bytes) -> str:
    """WebM or another Matroska, with or without video: by the codecs."""
    kind = "audio" if set(_CODEC.findall(head)) == {b"A"} else "video"
    return f"{kind}/webm" if b"\x42\x82\x84webm" in head[:128] else f"{kind}/x-matroska"


def _sound(content: bytes) -> str:
    """MP3 and AAC. An ID3 tag may also come before FLAC."""
    if content[:3] != b"ID3" or len(content) < 10 or content[3] > 4 or max(content[6:10]) > 0x7F:
        return _frames(content)
    at = 10 + sum(byte << shift for byte, shift in zip(content[6:10], (21, 14, 7, 0), strict=True))
    behind = content[at : at + _ID3_SEARCH_BYTES].lstrip(b"\0")
    return "audio/flac" if behind.startswith(b"fLaC") else _frames(behind) or "audio/mpeg"


def _frames(content: bytes, at: int = 0) -> str:
    """The type of frames of which each begins where the one before it ends."""
    mime = "audio/mpeg" if content[at + 1 : at + 2] and content[at + 1] & 6 else "audio/aac"
    for number in range(_FRAMES):
        length = _frame_bytes(content[at : at + 6])
        if not length:
            is_whole = (at == len(content) and number > 0) or (at > len(content) and number > 1)  # or the last one cut
            return mime if is_whole else ""
        at += length
    return mime


def _frame_bytes(header: bytes) -> int:
    """Length of the frame of MPEG audio, or of AAC in ADTS, that begins with this header; 0 if there is none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] < 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    if layer == 0:
        length = int.from_bytes(header[3:6], "big") >> 5 & 0x1FFF
        return length if version & 2 and header[2] >> 2 & 15 < 13 and length > 7 else 0
    rate, padding = header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer == 3 or rate == 3:
        return 0
    bits_per_second = _KBIT[version == 3, layer][header[2] >> 4] * 1_000
    slots = 72 if layer == 1 and version != 3 else 144
    return slots * bits_per_second // _HERTZ[version][rate] + padding if bits_per_second else 0
