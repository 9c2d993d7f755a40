"""Small files of many types, and the messages that bring them."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
import zlib
from typing import Any


def png(width: int = 3, height: int = 2, filling: bytes = b"\0") -> bytes:
    """A whole PNG; with a size of its own in its header alone when that is asked to be large."""
    rows = filling * (height * (width * 3 + 1)) if width * height < 10_000 else filling

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav(samples: int = 200) -> bytes:
    form = struct.pack("<HHIIHH", 1, 1, 8_000, 8_000, 1, 8)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", samples) + b"\x80" * samples
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def docx() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("[Content_Types].xml"), "<Types/>")
        archive.writestr(zipfile.ZipInfo("word/document.xml"), "<w:document/>")
    return packed.getvalue()


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "some text " * 9)
    return packed.getvalue()


PNG = png()
JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x11\x08\0\x02\0\x03\x03\x01\x22\0\x02\x11\x01"
    + b"\x01" * 60
)
WAV = wav()
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\nstartxref\n9\n%%EOF\n"
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0\0\0\x08moov" + b"\0" * 80
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><rect width="9"/></svg>'
ZIP = zipped()
DOCX = docx()
CSV = b"name,count\nfirst,1\nsecond,2\n"


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def data_url(content: bytes, declared: str) -> str:
    return f"data:{declared};base64,{base64_of(content)}"


def image_part(content: bytes = PNG, declared: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(content, declared), **more}}


def file_part(content: bytes, declared: str = "application/pdf", name: str = "report.pdf") -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": data_url(content, declared)}}


def audio_part(content: bytes = WAV, form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64_of(content), "format": form}}


def mcp_block(content: bytes = PNG, declared: str = "image/png", kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "data": base64_of(content), "mimeType": declared}


def resource_block(content: bytes, declared: str, uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": declared, "blob": base64_of(content)}}


def anthropic_block(content: bytes = PNG, declared: str = "image/png", kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": declared, "data": base64_of(content)}}


def routing_result(content: bytes = PNG, declared: str = "image/png") -> str:
    """A structured result that asks for its image to be shown."""
    return json.dumps({"routing": "image_url", "imageUrl": image_part(content, declared), "metadata": {"name": "a"}})
