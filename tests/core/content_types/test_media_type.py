from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_files import ADTS_FRAME, FILES, LIES, MP3_FRAME, OOXML, ole, zipped

from proxy.core.content_types import (
    ContentKind,
    MediaType,
    kind_claimed,
    known,
    media_type,
    mime_by_name,
    modality_of,
    plain_mime,
)
from proxy.core.models import Modality

CONTENTS = [content for _, content in FILES.values()]
PICTURES_AND_SOUNDS = {ContentKind.IMAGE, ContentKind.AUDIO, ContentKind.VIDEO}
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
)


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
)
def test_a_declared_type_holds_if_the_bytes_allow_it(content, declared, name, mime):
    assert media_type(content, declared, name).mime == mime


def test_json_too_deep_to_be_read_is_a_text_and_how_deep_that_is_depends_on_python():
    depth = 2_000
    try:
        json.loads("[" * depth + "]" * depth)
        mime = "application/json"
    except RecursionError:
        mime = "text/plain"
    assert media_type(b"[" * depth + b"]" * depth).mime == mime


def test_an_unknown_type_is_nothing_that_a_model_could_look_at():
    assert media_type(b"\0\x01\x02\xff", "image/x-unheard-of").kind is ContentKind.OTHER
    assert media_type(b"hello", "text/x-unheard-of") == MediaType("text/x-unheard-of", ContentKind.TEXT, "txt")


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
    ("content", "suffix"), [(MP3_FRAME * 3, "mp3"), (ADTS_FRAME * 4, "aac"), (FILES["wav"][1], "wav")]
)
def test_a_sound_has_a_format(content, suffix):
    assert media_type(content).suffix == suffix


def test_every_type_that_is_found_is_in_the_table():
    assert [mime for mime, _ in FILES.values() if known(mime) is None] == []
    for mime, _ in FILES.values():
        line = known(mime)
        assert mime_by_name(f"x.{line.suffix}") == mime
