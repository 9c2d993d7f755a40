from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.made_files import (
    ADTS_FRAME,
    FILES,
    MP3_FRAME,
    ODF,
    OOXML,
    PDF,
    box,
    film,
    gzip,
    jpeg,
    ole,
    png,
    stated,
    zipped,
)

from proxy.core.content_types import (
    ContentKind,
    MediaType,
    audio_format,
    kind_claimed,
    media_type,
    modality_of,
    plain_mime,
    text_of,
)
from proxy.core.content_types.table import known, mime_by_name
from proxy.core.models.profile import Modality

CASES = [pytest.param(mime, content, id=name) for name, (mime, content) in FILES.items()]
CONTENTS = [content for _, content in FILES.values()]
PICTURES_AND_SOUNDS = {ContentKind.IMAGE, ContentKind.AUDIO, ContentKind.VIDEO}
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
CLAIMS = st.one_of(
    st.sampled_from([*LIES, "png", "IMAGE/JPG; q=1", "", "/", ";", "text/html; charset=utf-8"]), st.text()
)
NAMES = st.one_of(
    st.sampled_from(["a.png", "a.tar.gz", "b.csv", "c.docx", "d", "", ".", "e.svg", "x.mp3?y#z"]), st.text()
)
BYTES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda whole, rest: whole[: len(whole) // 2] + rest, st.sampled_from(CONTENTS), st.binary(max_size=200)),
    st.builds(lambda whole, at: whole[:at], st.sampled_from(CONTENTS), st.integers(0, 600)),
    st.builds(
        lambda whole, at, byte: whole[:at] + bytes([byte]) + whole[at + 1 :],
        st.sampled_from([content for content in CONTENTS if len(content) < 5_000]),
        st.integers(0, 700),
        st.integers(0, 255),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("mime", "content"), CASES)
def test_a_file_is_known_by_its_bytes(mime, content):
    assert media_type(content).mime == mime


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("mime", "content"), SIGNED)
def test_a_signature_beats_any_claim(mime, content, lie):
    assert media_type(content, lie, "x.zip").mime == mime


@given(BYTES, CLAIMS, NAMES)
def test_nothing_raises_and_the_same_is_the_same(content, declared, name):
    found = media_type(content, declared, name)
    assert found == media_type(content, declared, name)
    assert found.suffix.isalnum()
    assert plain_mime(found.mime) == found.mime
    assert modality_of(found.kind) in Modality


@given(st.binary(max_size=200), st.sampled_from(["image/png", "audio/wav", "video/mp4", "application/pdf"]))
def test_a_claim_alone_makes_no_picture_sound_or_document(content, declared):
    assert media_type(content, declared).kind == media_type(content).kind


@given(BYTES, CLAIMS, NAMES)
def test_a_claim_never_makes_a_picture_or_a_sound_but_of_a_cut_stream(content, declared, name):
    found = media_type(content, declared, name)
    if found.kind in PICTURES_AND_SOUNDS:
        assert found == media_type(content) or found.mime == "audio/mpeg"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
@example("BM is a company, and GIF a format")
@example("The free software")
@example("ID3 tags are old")
@example("%PDF-1.4 is the header of a PDF file, startxref stands at its end\nstartxref\n%%EOF")
@example("MZ " * 40)
@example("G" * 4_000)
@example("PK, OggS, RIFF, fLaC, wOFF, FORM")
@example("II * MM")
def test_text_is_text(text):
    found = media_type(text.encode())
    assert (
        found.kind in (ContentKind.TEXT, ContentKind.IMAGE)
        if text.lstrip().startswith("<")
        else not text or found.kind is ContentKind.TEXT
    )


@pytest.mark.parametrize(
    ("content", "declared", "name", "mime"),
    [
        (b"a,b\n1,2\n", "text/csv", "", "text/csv"),
        (b"a,b\n1,2\n", "", "report.CSV", "text/csv"),
        (b"a,b\n1,2\n", "application/octet-stream", "report.csv", "text/csv"),
        (b"a,b\n1,2\n", "text/plain", "report.csv", "text/csv"),
        (b"a,b\n1,2\n", "text/markdown; charset=utf-8", "report.csv", "text/markdown"),
        (b"a,b\n1,2\n", "image/png", "x.png", "text/plain"),
        (b"a,b\n1,2\n", "application/vnd.api+json", "", "application/vnd.api+json"),
        (b"a,b\n1,2\n", "text/x-unheard-of", "", "text/x-unheard-of"),
        (b"hello", "image/svg+xml", "x.svg", "text/plain"),
        (b'{"a": 1}', "text/plain", "", "application/json"),
        (b'{"a": 1', "text/plain", "", "text/plain"),
        (b"[2024-01-01] started [ok]", "", "", "text/plain"),
        (b'{"a": nonsense}', "", "", "text/plain"),
        (b"[" * 3_000 + b"]" * 3_000, "", "", "application/json"),
        (b"[" * 1_500 + b"]" * 1_500, "", "", "text/plain"),  # too deep to be read
        (b"<p>hello</p>", "", "x.html", "text/html"),
        (b"<!-- " * 100, "", "", "text/plain"),
        (b"", "text/csv", "", "text/csv"),
        (b"", "image/png", "x.png", "application/octet-stream"),
        ("Größe;naïve\n".encode("latin-1"), "text/csv", "", "text/csv"),
        ("Größe;naïve\n".encode("latin-1"), "", "", "application/octet-stream"),
        ("读取文件".encode("gb18030"), "text/plain", "", "text/plain"),
        (b"\0\x01\x02\xff", "text/plain", "x.txt", "application/octet-stream"),
        (b"\0\x01\x02\xff", "application/x-unheard-of", "", "application/x-unheard-of"),
        (b"\0\x01\x02\xff", "../../etc/passwd", "", "application/octet-stream"),
        (b"\0\x01\x02\xff", "image/x-unheard-of", "", "image/x-unheard-of"),
        (b"a log line\n" * 20 + b"with a NUL \0\n", "", "", "text/plain"),
        (b"\x12\x34" * 50 + MP3_FRAME * 3, "audio/mp3", "", "audio/mpeg"),
        (b"\x12\x34" * 50 + MP3_FRAME * 3, "", "", "application/octet-stream"),
        (b"\xff\x12" * 50, "audio/mp3", "", "application/octet-stream"),
        (ole("EncryptedPackage"), "", "x.docx", f"{OOXML}wordprocessingml.document"),
        (ole("EncryptedPackage"), "image/png", "x.png", "application/x-ole-storage"),
        (zipped("a"), "", "x.docx", "application/zip"),
    ],
)  # fmt: skip
def test_a_claim_stands_where_the_bytes_allow_it(content, declared, name, mime):
    assert media_type(content, declared, name).mime == mime


def test_an_unknown_type_is_nothing_that_a_model_could_look_at():
    assert media_type(b"\0\x01\x02\xff", "image/x-unheard-of").kind is ContentKind.OTHER
    assert media_type(b"hello", "text/x-unheard-of") == MediaType("text/x-unheard-of", ContentKind.TEXT, "txt")


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


@pytest.mark.parametrize("hostile", ["sectors", "power", "no power", "cut", "far"])
def test_a_broken_ole_container_is_one_all_the_same(hostile):
    content = bytearray(ole("WordDocument"))
    if hostile == "sectors":
        content[512 + 4 : 512 + 8] = b"\x01\0\0\0"  # the directory goes on with itself
    elif hostile == "power":
        content[30:32] = b"\xff\xff"
    elif hostile == "no power":
        content[30:32] = b"\0\0"
    elif hostile == "far":
        content[512 + 4 : 512 + 8] = b"\xff\xff\xff\x7f"
    elif hostile == "cut":
        del content[60:]
    assert media_type(bytes(content)).mime == "application/x-ole-storage"


def test_a_film_of_endless_boxes_is_given_up():
    endless = box(b"ftyp", b"isom", bytes(4)) + box(b"moov", *(box(b"trak", box(b"mdia")) for _ in range(5_000)))
    assert media_type(endless).mime == "video/mp4"
    assert media_type(film(b"isom", *[b"soun"] * 40)).mime == "audio/mp4"
    assert media_type(box(b"ftyp", b"isom", bytes(4)) + b"\0\0\0\0moov" + film(b"x", b"soun")).mime == "video/mp4"


def test_an_archive_of_very_many_files_is_one():
    names = [f"{number}.txt" for number in range(1_500)]
    assert media_type(zipped(*names)).mime == "application/zip"
    assert media_type(zipped(*names)[:-50_000]).mime == "application/zip"


def test_a_text_of_endless_comments_is_one():
    assert media_type(b"<!-- a -->" * 500 + b"<svg/>").kind is ContentKind.TEXT


def test_a_document_may_say_that_it_is_something_else():
    assert media_type(stated(f"{ODF}text") + bytes(5)).mime == f"{ODF}text"
    assert media_type(stated("application/x-unheard-of")).mime == "application/zip"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("before", range(8))
def test_a_long_text_may_be_cut_within_any_character(before, encoding):
    text = "a" * before + "中é🙂" * 30_000
    assert media_type(text.encode(encoding)).mime == "text/plain"


@pytest.mark.parametrize("name", ["utf-16-be", "utf-32-be"])
def test_a_text_may_be_big_endian(name):
    assert media_type("\ufeffnaïve 中文".encode(name)).mime == "text/plain"


def test_a_text_that_ends_in_controls_is_none():
    assert media_type(b"a" * 100_000 + b"\x01\x02" * 5_000).kind is ContentKind.OTHER


@pytest.mark.parametrize("at", [0, 70_000, 139_999])
def test_a_long_text_with_a_byte_that_is_none_is_none_when_it_is_seen(at):
    content = bytearray(b"a" * 140_000)
    content[at] = 0xFF
    assert media_type(bytes(content)).kind is (ContentKind.TEXT if at == 70_000 else ContentKind.OTHER)


@pytest.mark.parametrize("endian", ["utf-8", "utf-16", "utf-32", "utf-8-sig"])
def test_a_text_can_be_had(endian):
    assert text_of("naïve 中文".encode(endian)) == "naïve 中文"
    assert text_of(b"\xff\xfe\xff") is None


@pytest.mark.parametrize(
    ("kind", "modality"),
    [
        (ContentKind.IMAGE, Modality.VISION),
        (ContentKind.AUDIO, Modality.AUDIO),
        (ContentKind.VIDEO, Modality.VIDEO),
        (ContentKind.DOCUMENT, Modality.FILE),
        (ContentKind.OTHER, Modality.FILE),
        (ContentKind.TEXT, Modality.TEXT),
    ],
)
def test_each_kind_has_a_modality(kind, modality):
    assert modality_of(kind) is modality


@pytest.mark.parametrize("modality", Modality)
def test_what_is_claimed_to_be_read_so_is_of_a_kind_that_is_read_so(modality):
    assert modality_of(kind_claimed(modality)) is modality


@pytest.mark.parametrize(
    ("content", "said"), [(MP3_FRAME * 3, "mp3"), (ADTS_FRAME * 4, "aac"), (FILES["wav"][1], "wav")]
)
def test_a_sound_has_a_format(content, said):
    assert audio_format(media_type(content)) == said


def test_every_type_that_is_found_is_in_the_table():
    assert [mime for mime, _ in FILES.values() if known(mime) is None] == []
    for mime, _ in FILES.values():
        line = known(mime)
        assert mime_by_name(f"x.{line.suffix}") == mime
