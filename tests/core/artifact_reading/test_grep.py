from __future__ import annotations

import re
import string

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.reading_texts import hits, texts

from proxy.core.artifact_reading.grep import hits_of
from proxy.core.artifact_reading.patterns import Search
from proxy.core.text.lines import LineIndex, LineRange
from proxy.errors import RangeOutside

thorough = settings(max_examples=200, deadline=None)
ATOMS = st.sampled_from(["a", "b", "x", "e", "error", ".", "[a-f]", "[^a]", "(a|b)", "(?:er|x)", r"\w", r"\d", " "])
PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "", "*", "+", "?", "{2}"])), min_size=1, max_size=4).map(
    lambda parts: "".join(atom + times for atom, times in parts)
)
ANCHORED = st.tuples(st.sampled_from(["", "^"]), PATTERNS, st.sampled_from(["", "$"])).map("".join)
ASCII_LINES = st.text(string.ascii_lowercase[:8] + "rox 19:\r\t", max_size=20)
ASCII_TEXTS = st.tuples(st.lists(ASCII_LINES, max_size=40), st.sampled_from(["", "\n"])).map(
    lambda made: "\n".join(made[0]) + made[1]
)


@given(ASCII_TEXTS, ANCHORED)
@example("a\n", "^")
@example("\n\n", "$")
@thorough
def test_a_search_finds_the_lines_that_python_finds(text, pattern):
    assume(text)
    lines = text.removesuffix("\n").split("\n")
    expected = [f"{number}:{line}" for number, line in enumerate(lines, 1) if re.search(pattern, line, re.ASCII)]
    found = hits(text.encode(), pattern)
    printed = [line for line in found.text.decode().removesuffix("\n").split("\n") if line != "--"]
    assert (printed if found.text else []) == expected
    assert (found.count, found.following) == (len(expected), None)


@given(ASCII_TEXTS, PATTERNS, st.integers(0, 4))
@thorough
def test_what_stands_around_a_match_is_shown_once_as_grep_shows_it(text, pattern, context):
    assume(text)
    lines = text.removesuffix("\n").split("\n")
    matching = {row for row, line in enumerate(lines) if re.search(pattern, line, re.ASCII)}
    shown = sorted(
        {near for row in matching for near in range(row - context, row + context + 1)} & {*range(len(lines))}
    )
    expected = []
    for row in shown:
        if expected and row - 1 not in shown:
            expected.append("--")
        expected.append(f"{row + 1}{':' if row in matching else '-'}{lines[row]}")
    found = hits(text.encode(), pattern, context=context)
    assert found.text.decode() == "".join(f"{line}\n" for line in expected)


@given(
    texts(), st.sampled_from(["a", "error", "x+", "^", "b$", "é", "zzz"]), st.integers(1, 9), st.integers(1_300, 9_000)
)
@thorough
def test_a_search_that_goes_on_where_it_stopped_finds_the_same_lines(text, pattern, most, max_bytes):
    assume(text)
    index = LineIndex.of_text(text)
    whole = hits(text, pattern, most=1_000, index=index)
    assume(whole.following is None and whole.count < 200)
    following, seen, count = "1-", [], 0
    while following is not None:
        part = hits(text, pattern, following, most=most, max_bytes=max_bytes, index=index)
        assert len(part.text) <= max_bytes
        assert part.count <= most
        assert part.count or part.following is None
        seen += [line for line in part.text.splitlines(keepends=True) if line != b"--\n"]
        following, count = part.following, count + part.count
    assert count == whole.count
    assert seen == [line for line in whole.text.splitlines(keepends=True) if line != b"--\n"]


def test_a_match_across_two_reads_of_a_long_line_is_found_once():
    for before in range(256 * 1024 - 8, 256 * 1024 + 2):
        found = hits(b"a" * before + b"needle" + b"b" * 300_000, "needle")
        assert found.count == 1


def test_a_line_begins_and_ends_only_where_it_does():
    long = b"ab" * 300_000
    assert hits(b"x\n" + long + b"\ny\n", "^b").count == 0
    assert hits(b"x\n" + long + b"\ny\n", "^ab").count == 1
    assert hits(b"x\n" + long + b"\ny\n", "a$").count == 0
    assert hits(b"x\n" + long + b"\ny\n", "^b", "2:7-").count == 0
    assert hits(b"x\nabab\ny\n", "^b", "2:1-").count == 0
    assert hits(b"x\nabab\ny\n", "b", "2:1-").count == 1


def test_a_search_stays_within_the_lines_that_were_asked_for():
    text = b"".join(b"line %d\n" % number for number in range(1, 100_001))
    found = hits(text, "line .*7$", "50000-50020", context=1)
    assert (
        found.text
        == b"50006-line 50006\n50007:line 50007\n50008-line 50008\n--\n"
        + b"50016-line 50016\n50017:line 50017\n50018-line 50018\n"
    )
    assert (found.first, found.last, found.following) == (50000, 50020, None)


def test_a_search_that_runs_out_of_time_says_where_to_go_on():
    text = b"no\n" * 400_000
    reader = hits_of(LineIndex.of_text(text), LineRange(1), Search("yes"))
    span = next(reader)
    for _ in range(3):
        span = reader.send(text[span[0] : span[1]])
    with pytest.raises(StopIteration) as done:
        reader.throw(TimeoutError())
    found = done.value.value
    assert (found.count, found.first, found.following) == (0, 1, f"{found.last + 1}-400000")
    assert 3 * found.last > 2 * 256 * 1024 - 10


def test_lines_that_are_not_there_are_refused():
    with pytest.raises(RangeOutside):
        hits(b"a\n", "a", "2-")
    with pytest.raises(RangeOutside):
        hits(b"a\nb\n", "a", "2:5-")
