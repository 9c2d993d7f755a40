from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.reading_texts import bytes_in, texts

from proxy.core.text import BLOCK_BYTES, PAGE_BYTES, LineIndex, LineRange, last_bytes, page_of, utf8_length
from proxy.errors import BadArtifactQuery, RangeOutside

thorough = settings(max_examples=150, deadline=None)


def lines_of(text: bytes) -> list[bytes]:
    """Split at line feeds only, each line with its own."""
    found = [line + b"\n" for line in text.split(b"\n")]
    found[-1] = found[-1][:-1]
    return found if found[-1] else found[:-1]


def page(text: bytes, wanted: str, max_bytes: int = PAGE_BYTES, index: LineIndex | None = None):
    return page_of(index or LineIndex.of_text(text), LineRange.parse(wanted), bytes_in(text), max_bytes)


@given(texts())
@thorough
def test_lines_end_at_line_feeds_only(text):
    assert LineIndex.of_text(text).total_lines == len(lines_of(text))


@given(texts(), st.integers(1, 3_000), st.integers(0, 200))
@thorough
def test_a_page_holds_the_requested_lines(text, first, more):
    lines = lines_of(text)
    assume(first <= len(lines))
    found = page(text, f"{first}-{first + more}", 10**9)
    assert found.text == b"".join(lines[first - 1 : first + more])
    assert (found.first, found.last) == (first, min(first + more, len(lines)))
    assert not found.cut
    assert (found.following is None) == (found.last == len(lines))


@given(texts(), st.integers(1, 300), st.sampled_from(["1-", "1-7", "1", "1-3000"]))
@thorough
def test_from_page_to_page_every_byte_is_read_once(text, max_bytes, wanted):
    assume(text and len(text) // max_bytes + text.count(b"\n") < 300)
    following, seen, index = wanted, b"", LineIndex.of_text(text)
    while following is not None:
        found = page(text, following, max_bytes, index)
        assert 0 < len(found.text) <= max_bytes
        assert found.first == seen.count(b"\n") + 1
        seen += found.text
        following = found.following
    assert seen == text


@given(texts(), st.integers(1, 5_000))
@thorough
def test_the_last_lines_are_counted_from_the_end(text, count):
    assume(text)
    assert page(text, f"-{count}", 10**9).text == b"".join(lines_of(text)[-count:])


def test_a_page_of_a_long_text_takes_one_read_of_a_block_and_a_page():
    text = b"".join(b"line %d\n" % number for number in range(300_000))
    spans: list[tuple[int, int]] = []
    found = page_of(LineIndex.of_text(text), LineRange.parse("250000-250009"), bytes_in(text, spans))
    assert found.text.startswith(b"line 249999\n")
    assert [stop - start for start, stop in spans] == [BLOCK_BYTES + PAGE_BYTES]


def test_a_long_line_is_paged_in_whole_characters():
    text = b"short\n" + "é漢🎈".encode() * 20_000 + b"\nend\n"
    found = page(text, "2")
    assert found.cut
    assert PAGE_BYTES - 4 < len(found.text) <= PAGE_BYTES
    assert found.following == f"2:{len(found.text)}-2"
    found.text.decode()
    assert page(text, found.following).text.decode().strip("é漢🎈") == ""


def test_what_is_no_text_is_cut_anywhere():
    assert page(b"\x80" * 100, "1", 10).text == b"\x80" * 10
    assert page(b"a\x80" * 100, "1", 10).text == b"a\x80" * 5
    assert page(b"\xf0\x80\x80" + b"a" * 100, "1", 3).text == b"\xf0\x80\x80"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "0",
        "0-5",
        "5-4",
        "a",
        "1-2-3",
        "--5",
        "-0",
        "1,5",
        "٣",
        "9" * 13,
        "1:",
        ":5",
        "-5:1",
        "1.5",
        "1 - 5",
        "1\n2",
    ],
)
def test_a_range_that_makes_no_sense_is_refused_with_what_is_allowed(wrong):
    with pytest.raises(BadArtifactQuery, match="lines") as refused:
        LineRange.parse(wrong)
    assert refused.value.param == "lines"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(b"", "1"), (b"", "-1"), (b"a\nb", "3-"), (b"a\nb", "9" * 12), (b"ab\nc", "1:3-2"), (b"ab", "1:2")],
)
def test_what_the_text_does_not_have_is_refused(text, wanted):
    with pytest.raises(RangeOutside):
        page(text, wanted)


@given(st.text(st.characters(categories=None), max_size=40), st.integers(-3, 130))
def test_bytes_are_counted_off_at_the_borders_of_characters(text, count):
    end = last_bytes(text, count)
    assert text.endswith(end)
    assert utf8_length(end) <= max(0, count)
    assert len(end) == len(text) or utf8_length(end) > count - 4
