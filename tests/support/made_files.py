"""The smallest files of each type that a reader of that type would still recognise."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import wave
import zipfile
import zlib

OOXML = "application/vnd.openxmlformats-officedocument."
ODF = "application/vnd.oasis.opendocument."


def png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\x80\xff\x10\x99\xf0\0\x01\xfe" * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg() -> bytes:
    return (
        b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + b"\xff\xdb\0\x43\0" + bytes(range(64)) + b"\xff\xd9"
    )


def bmp(header_bytes: int = 40) -> bytes:
    head = struct.pack("<2sIHHI", b"BM", 62, 0, 0, 14 + header_bytes)
    return head + struct.pack("<IiiHH", header_bytes, 1, 1, 1, 24) + bytes(40)


def icon() -> bytes:
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 40, 22) + bytes(40)


def riff(kind: bytes, first: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 40) + kind + first + bytes(28)


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8_000, 0, "NONE", ""))
        sound.writeframes(bytes(range(256)) * 4)
    return file.getvalue()


def zipped(*names: str, level: int = zipfile.ZIP_DEFLATED, body: bytes = b"<xml/>") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", level) as archive:
        for name in names:
            archive.writestr(name, body)
    return file.getvalue()


class _OneWay(io.RawIOBase):
    """A file that cannot seek: what is written to it has its sizes behind each entry."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, some, /):
        self.written += bytes(some)
        return len(some)


def zipped_as_stream(*names: str, level: int = zipfile.ZIP_DEFLATED, body: bytes = b"<xml/>" * 100) -> bytes:
    file = _OneWay()
    with zipfile.ZipFile(file, "w", level) as archive:
        for name in names:
            archive.writestr(name, body)
    return file.written


def office(folder: str) -> bytes:
    return zipped("[Content_Types].xml", "_rels/.rels", f"{folder}/main.xml")


def stated(mime: str, level: int = zipfile.ZIP_STORED) -> bytes:
    """OpenDocument and EPUB."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", level) as archive:
        archive.writestr("mimetype", mime)
        archive.writestr("META-INF/container.xml" if "epub" in mime else "META-INF/manifest.xml", "<xml/>")
    return file.getvalue()


def ole(*names: str, power: int = 9) -> bytes:
    """A header, a table of sectors, and a directory with three entries a sector: so that it has several."""
    size = 1 << power
    per_sector = size // 128
    entries = ["Root Entry", *(f"Stream {number}" for number in range(per_sector * 2)), *names]
    sectors = -(-len(entries) // per_sector)
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(24, b"\0") + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, power, 6)
    header = header.ljust(44, b"\0") + struct.pack("<II", 1, 1)
    header = (header.ljust(76, b"\0") + struct.pack("<I", 0)).ljust(size, b"\0")
    table = [0xFFFFFFFD, *range(2, sectors + 1), 0xFFFFFFFE]
    body = struct.pack(f"<{len(table)}I", *table).ljust(size, b"\xff")
    for name in entries:
        encoded = name.encode("utf-16-le")
        body += (encoded.ljust(64, b"\0") + struct.pack("<H", len(encoded) + 2)).ljust(128, b"\0")
    return header + body.ljust(size * (sectors + 1), b"\0")


def box(kind: bytes, *inside: bytes, long: bool = False) -> bytes:
    body = b"".join(inside)
    if long:
        return struct.pack(">I4sQ", 1, kind, len(body) + 16) + body
    return struct.pack(">I4s", len(body) + 8, kind) + body


def film(brand: bytes, *handlers: bytes, others: bytes = b"isom", before: int = 0, long: bool = False) -> bytes:
    """ftyp, some content, and a track for each handler."""
    tracks = [
        box(b"trak", box(b"tkhd", bytes(84)), box(b"mdia", box(b"hdlr", bytes(8) + handler + bytes(12))))
        for handler in handlers
    ]
    start = box(b"ftyp", brand + bytes(4) + others)
    content = box(b"mdat", bytes(before), long=long)
    return start + content + box(b"moov", box(b"mvhd", bytes(100)), *tracks, long=long)


def old_quicktime() -> bytes:
    return box(b"wide") + box(b"mdat", bytes(16)) + box(b"moov", box(b"mvhd", bytes(100)))


def matroska(kind: bytes, *codecs: bytes) -> bytes:
    head = b"\x1a\x45\xdf\xa3\x93\x42\x82" + bytes([0x80 | len(kind)]) + kind
    return head + bytes(20) + b"".join(b"\x86" + bytes([0x80 | len(codec)]) + codec for codec in codecs)


def ogg(codec: bytes) -> bytes:
    return b"OggS\0\x02" + bytes(20) + b"\x01\x1e" + codec + bytes(20)


MP3_FRAME = b"\xff\xfb\x90\x00" + bytes(413)
"""MPEG-1, layer III, 128 kbit/s, 44.1 kHz: 144 · 128 000 / 44 100 bytes."""
ADTS_FRAME = b"\xff\xf1\x50\x80\x02\x1f\xfc" + b"\x21" * 9
"""AAC LC, 44.1 kHz, 16 bytes in all."""


def id3(size: int = 300) -> bytes:
    return b"ID3\x03\0\0" + bytes([0, 0, size >> 7, size & 0x7F]) + bytes(size)


def asf(stream: str) -> bytes:
    return bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c") + bytes(40) + bytes.fromhex(stream) + bytes(40)


def tar(layout: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=layout) as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


def oldest_tar() -> bytes:
    """Without the word `ustar`: Unix, version 7."""
    header = b"a.txt".ljust(100, b"\0") + b"0000644\0" * 3 + b"00000000000\0" * 2
    total = sum(header) + 8 * 32
    return (header + b"%06o\0 " % total).ljust(512, b"\0") + bytes(512)


def transport_stream(length: int = 188) -> bytes:
    packet = b"G\x40\0\x10".ljust(188, b"\xff")
    return (bytes(length - 188) + packet) * 5


def windows_program() -> bytes:
    return b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0" + bytes(20)


PDF = (
    b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<</Length 40>>stream\n"
    + bytes(range(128, 255))
    + (b"\nendstream endobj\nxref\ntrailer <<>>\nstartxref\n9\n%%EOF\n")
)
PDF_OF_LETTERS = b"%PDF-1.1\n1 0 obj\n<</Type/Catalog>>\nendobj\nstartxref\n9\n%%EOF\n"

FILES: dict[str, tuple[str, bytes]] = {
    "png": ("image/png", png()),
    "jpg": ("image/jpeg", jpeg()),
    "gif": ("image/gif", b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0;"),
    "gif87": ("image/gif", b"GIF87a\x01\0\x01\0\x80\0\0;"),
    "webp": ("image/webp", riff(b"WEBP", b"VP8L")),
    "bmp": ("image/bmp", bmp()),
    "bmp_os2": ("image/bmp", bmp(16)),
    "svg": ("image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
    "svg_declared": (
        "image/svg+xml",
        b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- <html> -->\n<!DOCTYPE svg [<!ENTITY a ">">]>\n<svg:svg width="1"/>',
    ),
    "avif": ("image/avif", box(b"ftyp", b"avif", bytes(4), b"avifmif1") + bytes(30)),
    "avif_mif1": ("image/avif", box(b"ftyp", b"mif1", bytes(4), b"mif1miafavif") + bytes(30)),
    "heic": ("image/heic", box(b"ftyp", b"heic", bytes(4), b"mif1heic") + bytes(30)),
    "heif": ("image/heic", box(b"ftyp", b"mif1", bytes(4), b"mif1") + bytes(30)),
    "tiff": ("image/tiff", b"II*\0\x08\0\0\0" + bytes(20)),
    "tiff_be": ("image/tiff", b"MM\0*\0\0\0\x08" + bytes(20)),
    "ico": ("image/x-icon", icon()),
    "jp2": ("image/jp2", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20)),
    "psd": ("image/vnd.adobe.photoshop", b"8BPS\0\x01" + bytes(20)),
    "pdf": ("application/pdf", PDF),
    "pdf_letters": ("application/pdf", PDF_OF_LETTERS),
    "pdf_behind_junk": ("application/pdf", b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe\x00" + PDF),
    "doc": ("application/msword", ole("1Table", "WordDocument")),
    "doc_4096": ("application/msword", ole("WordDocument", power=12)),
    "xls": ("application/vnd.ms-excel", ole("Workbook")),
    "xls_95": ("application/vnd.ms-excel", ole("Book")),
    "ppt": ("application/vnd.ms-powerpoint", ole("Current User", "PowerPoint Document")),
    "msg": ("application/vnd.ms-outlook", ole("__properties_version1.0")),
    "ole": ("application/x-ole-storage", ole("EncryptedPackage")),
    "docx": (f"{OOXML}wordprocessingml.document", office("word")),
    "xlsx": (f"{OOXML}spreadsheetml.sheet", office("xl")),
    "pptx": (f"{OOXML}presentationml.presentation", office("ppt")),
    "pptx_with_a_table": (
        f"{OOXML}presentationml.presentation",
        zipped("[Content_Types].xml", "ppt/embedded.xlsx", level=zipfile.ZIP_STORED, body=office("xl")),
    ),
    "pptx_stream_with_a_table": (
        f"{OOXML}presentationml.presentation",
        zipped_as_stream("[Content_Types].xml", "ppt/embedded.xlsx", level=zipfile.ZIP_STORED, body=office("xl")),
    ),
    "docx_cut": (f"{OOXML}wordprocessingml.document", office("word")[:-60]),
    "docx_stream": (
        f"{OOXML}wordprocessingml.document",
        zipped_as_stream("[Content_Types].xml", "a", "word/document.xml")[:-120],
    ),
    "odt": (f"{ODF}text", stated(f"{ODF}text")),
    "ott": (f"{ODF}text", stated(f"{ODF}text-template")),
    "ods": (f"{ODF}spreadsheet", stated(f"{ODF}spreadsheet")),
    "odp": (f"{ODF}presentation", stated(f"{ODF}presentation")),
    "odg": (f"{ODF}graphics", stated(f"{ODF}graphics")),
    "epub": ("application/epub+zip", stated("application/epub+zip")),
    "epub_packed": ("application/epub+zip", stated("application/epub+zip", zipfile.ZIP_DEFLATED)),
    "rtf": ("application/rtf", b"{\\rtf1\\ansi hello}"),
    "ps": ("application/postscript", b"%!PS-Adobe-3.0 EPSF-3.0\n"),
    "mp3": ("audio/mpeg", MP3_FRAME * 3),
    "mp3_short": ("audio/mpeg", MP3_FRAME),
    "mp3_cut": ("audio/mpeg", (MP3_FRAME * 3)[:-10]),
    "mp3_id3": ("audio/mpeg", id3() + MP3_FRAME * 3),
    "mp3_id3_only": ("audio/mpeg", id3()[:100]),
    "mp2": ("audio/mpeg", (b"\xff\xfd\x80\x00" + bytes(413)) * 3),
    "mpeg25": ("audio/mpeg", (b"\xff\xe3\x18\x00" + bytes(68)) * 3),
    "wav": ("audio/wav", wav()),
    "opus": ("audio/ogg", ogg(b"OpusHead\x01")),
    "vorbis": ("audio/ogg", ogg(b"\x01vorbis")),
    "ogv": ("video/ogg", ogg(b"\x80theora")),
    "flac": ("audio/flac", b"fLaC\0\0\0\x22" + bytes(40)),
    "flac_id3": ("audio/flac", id3() + b"fLaC\0\0\0\x22" + bytes(40)),
    "aac": ("audio/aac", ADTS_FRAME * 4),
    "aac_id3": ("audio/aac", id3() + ADTS_FRAME * 4),
    "m4a": ("audio/mp4", film(b"M4A ", b"soun")),
    "m4a_isom": ("audio/mp4", film(b"isom", b"soun", before=200_000)),
    "m4a_long": ("audio/mp4", film(b"isom", b"soun", before=200_000, long=True)),
    "mp4": ("video/mp4", film(b"isom", b"soun", b"vide")),
    "mp4_long": ("video/mp4", film(b"mp42", b"soun", b"vide", long=True)),
    "mp4_cut": ("video/mp4", film(b"mp42", b"soun")[:40]),
    "mov": ("video/quicktime", film(b"qt  ", b"soun")),
    "mov_old": ("video/quicktime", old_quicktime()),
    "mov_moov": ("video/quicktime", box(b"moov", box(b"mvhd", bytes(100)))),
    "3gp": ("video/3gpp", film(b"3gp5", b"vide")),
    "webm": ("video/webm", matroska(b"webm", b"V_VP9", b"A_OPUS")),
    "weba": ("audio/webm", matroska(b"webm", b"A_OPUS")),
    "mkv": ("video/x-matroska", matroska(b"matroska", b"V_MPEG4/ISO/AVC")),
    "avi": ("video/x-msvideo", riff(b"AVI ", b"LIST")),
    "aiff": ("audio/aiff", b"FORM\0\0\0\x20AIFFCOMM" + bytes(20)),
    "wma": ("audio/x-ms-wma", asf("00" * 16)),
    "wmv": ("video/x-ms-wmv", asf("c0ef19bc4d5bcf11a8fd00805f5c442b")),
    "mpg": ("video/mpeg", b"\0\0\x01\xba\x44\0\x04" + bytes(20)),
    "mpg1": ("video/mpeg", b"\0\0\x01\xba\x21\0\x04" + bytes(20)),
    "ts": ("video/mp2t", transport_stream()),
    "m2ts": ("video/mp2t", transport_stream(192)),
    "zip": ("application/zip", zipped("a.txt")),
    "zip_empty": ("application/zip", zipped()),
    "zip_word": ("application/zip", zipped("word/holiday.txt")),
    "zip_types": ("application/zip", zipped("[Content_Types].xml", "a")),
    "zip_stream": ("application/zip", zipped_as_stream("a", "b")),
    "zip_stream_cut": ("application/zip", zipped_as_stream("a", "b")[:-130]),
    "zip_remark": ("application/zip", zipped("a.txt")[:-2] + b"\x40\x00" + b"x" * 64),
    "rar": ("application/vnd.rar", b"Rar!\x1a\x07\0" + bytes(20)),
    "rar5": ("application/vnd.rar", b"Rar!\x1a\x07\x01\0" + bytes(20)),
    "7z": ("application/x-7z-compressed", b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(20)),
    "gz": ("application/gzip", gzip.compress(b"hello", mtime=0)),
    "xz": ("application/x-xz", lzma.compress(b"hello")),
    "bz2": ("application/x-bzip2", bz2.compress(b"hello")),
    "zst": ("application/zstd", b"\x28\xb5\x2f\xfd\x04\x58" + bytes(20)),
    "zst_skip": ("application/zstd", b"\x50\x2a\x4d\x18\x04\0\0\0abcd\x28\xb5\x2f\xfd\x04\x58"),
    "tar": ("application/x-tar", tar()),
    "tar_gnu": ("application/x-tar", tar(tarfile.GNU_FORMAT)),
    "tar_v7": ("application/x-tar", oldest_tar()),
    "elf": ("application/x-executable", b"\x7fELF\x02\x01\x01" + bytes(60)),
    "exe": ("application/vnd.microsoft.portable-executable", windows_program()),
    "sqlite": ("application/vnd.sqlite3", b"SQLite format 3\0\x10\0" + bytes(80)),
    "html": ("text/html", b"\n<!-- a page -->\n<!DOCTYPE HTML>\n<html><svg></svg></html>"),
    "xhtml": ("text/html", b'<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"/>'),
    "xml": ("application/xml", b'<?xml version="1.0"?>\n<a><svg/></a>'),
    "json": ("application/json", b'{"a": [1, 2.5, null]}\n'),
    "json_list": ("application/json", b"[1, 2]"),
    "json_long": ("application/json", b'[{"a": 1}' + b', {"a": 1}' * 2_000 + b"]"),
    "txt": ("text/plain", "naïve 中文 🙂\n".encode()),
    "txt_utf16": ("text/plain", "naïve 中文 🙂\n".encode("utf-16")),
    "txt_utf32": ("text/plain", "naïve 中文 🙂\n".encode("utf-32")),
    "txt_long": ("text/plain", "中文日志，".encode() * 20_000),
    "txt_long_utf16": ("text/plain", ("中文日志，" * 20_000).encode("utf-16")),
    "bin": ("application/octet-stream", bytes(range(256)) * 8),
    "empty": ("application/octet-stream", b""),
}
"""Name of the case → MIME type and content."""

LIES = [
    "image/png", "image/jpeg", "audio/mpeg", "application/pdf", "text/plain", "application/json", "video/mp4", "x/y",
]  # fmt: skip
"""Types that a sender may declare of any file."""
