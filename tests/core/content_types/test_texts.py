from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.content_types import (
    ContentKind,
    media_type,
    text_of,
)


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


def test_a_text_of_endless_comments_is_one():
    assert media_type(b"<!-- a -->" * 500 + b"<svg/>").kind is ContentKind.TEXT


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
