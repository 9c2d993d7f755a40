from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_files import (
    ADTS_FRAME,
    FILES,
    LIES,
    MP3_FRAME,
    ODF,
    PDF,
    box,
    film,
    gzip,
    id3,
    jpeg,
    ole,
    png,
    stated,
    transport_stream,
    zipped,
)

from proxy.core.content_types import ContentKind, media_type

CASES = [pytest.param(mime, content, id=name) for name, (mime, content) in FILES.items()]
SIGNED = [
    pytest.param(mime, content, id=name)
    for name, (mime, content) in FILES.items()
    if media_type(content).kind is not ContentKind.TEXT
    and mime not in ("application/octet-stream", "application/x-ole-storage")
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
        MP3_FRAME + b"\0" * 900,
        ADTS_FRAME + b"\0" * 900,
        MP3_FRAME + b"\0" + MP3_FRAME * 2,
    ],
)
def test_half_a_signature_is_none(content):
    assert media_type(content).mime == "application/octet-stream"


def test_a_short_text_of_utf_16_is_no_sound():
    for text in ("hi", "hello there", "中文", "\u00fb\u00fb"):
        assert media_type(text.encode("utf-16")).mime == "text/plain"


@pytest.mark.parametrize("at", [30, 44, 512 + 4])
@pytest.mark.parametrize("damage", [b"\0\0", b"\xff\xff\xff\x7f"])
def test_a_damaged_ole_container_is_known_by_the_names_in_it(at, damage):
    content = bytearray(ole("WordDocument"))
    content[at : at + len(damage)] = damage
    assert media_type(bytes(content)).mime == "application/msword"
    assert media_type(bytes(content[:60])).mime == "application/x-ole-storage"


def test_an_archive_of_very_many_files_is_one():
    names = [f"{number}.txt" for number in range(1_500)]
    assert media_type(zipped(*names)).mime == "application/zip"
    assert media_type(zipped(*names)[:-50_000]).mime == "application/zip"


def test_a_document_may_say_that_it_is_something_else():
    assert media_type(stated(f"{ODF}text") + bytes(5)).mime == f"{ODF}text"
    assert media_type(stated("application/x-unheard-of")).mime == "application/zip"


def test_a_film_is_known_by_its_tracks_however_many_boxes_it_has():
    endless = box(b"ftyp", b"isom", bytes(4)) + box(b"moov", *(box(b"trak", box(b"mdia")) for _ in range(5_000)))
    assert media_type(endless).mime == "video/mp4"
    assert media_type(film(b"isom", *[b"soun"] * 40)).mime == "audio/mp4"
    assert media_type(box(b"ftyp", b"isom", bytes(4)) + b"\0\0\0\0moov" + film(b"x", b"soun")).mime == "audio/mp4"


@given(st.integers(3, 9))
def test_frames_that_follow_each_other_are_a_sound(count):
    assert media_type(MP3_FRAME * count).mime == "audio/mpeg"
    assert media_type(ADTS_FRAME * count).mime == "audio/aac"


@pytest.mark.parametrize(
    ("behind", "mime"),
    [
        (MP3_FRAME * 3, "audio/mpeg"),
        (b"\0" * 40 + ADTS_FRAME * 3, "audio/aac"),
        (b"fLaC\0\0\0\x22", "audio/flac"),
        (b"", "audio/mpeg"),
    ],
)
def test_bytes_after_a_tag_reveal_the_type_of_sound(behind, mime):
    assert media_type(id3() + behind).mime == mime


def test_a_sound_that_begins_in_the_middle_of_a_frame_is_found_near_its_beginning_only():
    assert media_type(MP3_FRAME[9:] + MP3_FRAME * 3, "audio/mpeg").mime == "audio/mpeg"
    assert media_type(MP3_FRAME[9:] + MP3_FRAME * 3).mime == "application/octet-stream"


@pytest.mark.parametrize("length", [188, 192])
def test_packets_of_one_length_are_a_transport_stream(length):
    content = transport_stream(length)
    assert media_type(content).mime == "video/mp2t"
    assert media_type(content[:length]).mime == "application/octet-stream"
