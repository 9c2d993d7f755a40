from __future__ import annotations

import pytest
from support.made_files import (
    FILES,
    PDF,
    box,
    gzip,
    jpeg,
    png,
    zipped,
)

from proxy.core.content_types import (
    ContentKind,
    media_type,
)

CASES = [pytest.param(mime, content, id=name) for name, (mime, content) in FILES.items()]
SIGNED = [
    pytest.param(mime, content, id=name)
    for name, (mime, content) in FILES.items()
    if media_type(content).kind is not ContentKind.TEXT
    and mime not in ("application/octet-stream", "application/x-ole-storage")
]
LIES = [
    "image/png",
    "image/jpeg",
    "audio/mpeg",
    "application/pdf",
    "text/plain",
    "application/json",
    "video/mp4",
    "x/y",
]


@pytest.mark.parametrize(("mime", "content"), CASES)
def test_a_file_is_known_by_its_bytes(mime, content):
    assert media_type(content).mime == mime


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("mime", "content"), SIGNED)
def test_a_signature_beats_any_claim(mime, content, lie):
    assert media_type(content, lie, "x.zip").mime == mime


@pytest.mark.parametrize(
    ("content", "mime"),
    [
        (png() + zipped("a.txt"), "image/png"),
        (jpeg() + PDF, "image/jpeg"),
        (b"GIF89a" + b"/*" + bytes(20) + b"*/=1;<script>alert(1)</script>", "image/gif"),
        (PDF + zipped("word/document.xml"), "application/pdf"),
        (PDF.replace(b"1 0 obj", b"<html><script></script></html>"), "application/pdf"),
        (gzip.compress(png(), mtime=0), "application/gzip"),
        (zipped("a.pdf", level=0, body=PDF), "application/zip"),
        (b"\xef\xbb\xbf" + b'<svg onload="alert(1)"/>', "image/svg+xml"),
    ],
)
def test_of_two_types_at_once_the_one_at_the_head_counts(content, mime):
    assert media_type(content, "text/plain", "x.txt").mime == mime


@pytest.mark.parametrize(
    "content",
    [
        b"BM" + bytes(40),
        b"BM" + bytes(12) + b"\x28" + bytes(40),
        b"\0\0\x01\0\0\0" + bytes(40),
        b"\0\0\x01\xba\0",
        b"MZ" + bytes(80),
        b"RIFF\0\0\0\0PAL " + bytes(20),
        b"FORM\0\0\0\0ILBM" + bytes(20),
        b"\xff\xfb\x90\x00" + bytes(600),
        b"\xff\xfb\x00\x00" + bytes(600),
        b"\xff\xf1\x50\x80\x00\x1f\xfc" + bytes(30),
        b"\xff\xf1\x7f" + bytes(30),
        b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + bytes(8),
        b"GGGG\x80\0" * 200,
        b"G\x80\0\x10".ljust(188, b"\xff") * 5,
        b"a.txt".ljust(148, b"\0") + b"0000001\0" + bytes(512),
        box(b"free", b"\xff") + b"\xff" * 40,
        b"\0\0\0\x03free" + b"\xff" * 40,
        b"\xff\xff\xff\xff\x00mdat",
    ],
)
def test_half_a_signature_is_none(content):
    assert media_type(content).mime == "application/octet-stream"


def test_a_short_text_of_utf_16_is_no_sound():
    for text in ("hi", "hello there", "中文", "\u00fb\u00fb"):
        assert media_type(text.encode("utf-16")).mime == "text/plain"
