from __future__ import annotations

import base64
import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.strategies import TEXTS as ANY_TEXTS

from proxy.core.text import MAX_RESCUED_LINES, Direction, ExcerptLimits, count_lines, excerpt, utf8_length

SIZES = st.one_of(st.integers(0, 300), st.integers(0, 60_000))
LINES = st.one_of(st.integers(0, 60), st.integers(0, 3_000))
LOGS = st.lists(
    st.tuples(
        st.sampled_from(
            ["all is well", "error: é", "  失败 3\r", "错误", "x" * 900 + " Error " + "y" * 900, "", "é漢🎈" * 40]
        ),
        st.sampled_from([1, 1, 2, 50]),
    ),
    max_size=12,
).map(lambda lines: "\n".join(line for line, times in lines for _ in range(times)))
TEXTS = ANY_TEXTS | LOGS
LIMITS = st.builds(ExcerptLimits, LINES, SIZES, st.none() | SIZES, st.sampled_from(Direction), st.floats(0, 1))
BOTH_ENDS = st.builds(ExcerptLimits, st.integers(10, 100), st.integers(500, 5_000), st.none(), st.just(Direction.BOTH))
thorough = settings(max_examples=200, deadline=None)


@given(TEXTS, LIMITS)
@thorough
def test_an_excerpt_is_never_over_its_limits(text, limits):
    shown = excerpt(text, limits)
    parts = [shown.head, *shown.rescued, shown.tail]
    assert sum(map(utf8_length, parts)) <= limits.max_bytes
    assert limits.max_chars is None or sum(map(len, parts)) <= limits.max_chars
    assert sum(map(count_lines, parts)) <= limits.max_lines
    assert len(shown.rescued) <= MAX_RESCUED_LINES


@given(TEXTS, LIMITS)
@thorough
def test_head_gap_and_tail_are_the_text(text, limits):
    shown = excerpt(text, limits)
    assert shown.head + shown.gap + shown.tail == text


@given(TEXTS, LIMITS)
@thorough
@example("x" * 200_000, ExcerptLimits(10, 1_000))
@example("x" * 5_000 + " error " + "x" * 5_000, ExcerptLimits(10, 1_000))
@example("one\nerror\ntwo\n" * 50, ExcerptLimits(20, 200))
def test_an_excerpt_says_how_much_is_shown_of_how_much(text, limits):
    shown = excerpt(text, limits)
    assert (shown.total_lines, shown.total_bytes) == (count_lines(text), utf8_length(text))
    pieces = [shown.head, *shown.rescued, shown.tail]
    assert shown.kept_bytes == sum(map(utf8_length, pieces))
    assert shown.kept_lines <= min(shown.total_lines, limits.max_lines)
    assert (shown.kept_lines > 0) == (shown.kept_bytes > 0)
    if not shown.rescued and shown.gap.count("\n") > 1:
        assert shown.kept_lines == count_lines(shown.head) + count_lines(shown.tail)


@given(LOGS, BOTH_ENDS)
@thorough
def test_each_rescued_line_is_in_the_gap_once_and_reports_a_failure(text, limits):
    shown = excerpt(text, limits)
    assume(shown.rescued)
    assert len(set(shown.rescued)) == len(shown.rescued)
    for line in shown.rescued:
        assert line in shown.gap
        assert "\n" not in line
        assert re.search("error|失败|错误", line, re.IGNORECASE)


@given(TEXTS, LIMITS)
@thorough
def test_each_direction_keeps_its_end_only(text, limits):
    shown = excerpt(text, limits)
    if limits.direction is Direction.HEAD:
        assert (shown.tail, shown.rescued) == ("", ())
    if limits.direction is Direction.TAIL:
        assert (shown.head, shown.rescued) == ("", ())


@given(TEXTS, LIMITS)
@thorough
def test_a_text_is_admitted_exactly_when_it_is_within_all_limits(text, limits):
    within = (
        count_lines(text) <= limits.max_lines
        and utf8_length(text) <= limits.max_bytes
        and (limits.max_chars is None or len(text) <= limits.max_chars)
    )
    assert limits.admit(text) == within


def test_cuts_are_at_line_ends():
    text = "".join(f"line {number:04}\n" for number in range(1_000))
    shown = excerpt(text, ExcerptLimits(2_000, 2_005))
    assert shown.head.endswith("\n")
    assert shown.head == text[: len(shown.head)]
    assert shown.tail.startswith("line ")
    assert len(shown.head) + len(shown.tail) > 1_500


def test_the_end_gets_more_than_the_beginning():
    shown = excerpt("row\n" * 10_000, ExcerptLimits(9_000, 10_000))
    assert 0.6 < len(shown.head) / len(shown.tail) < 0.7
    assert 9_990 <= len(shown.head) + len(shown.tail) <= 10_000


def test_room_that_failure_lines_do_not_need_goes_to_beginning_and_end():
    text = "row\n" * 5_000 + "error: why\n" + "row\n" * 5_000
    shown = excerpt(text, ExcerptLimits(9_000, 10_000))
    assert shown.rescued == ("error: why",)
    assert 9_980 <= shown.kept_bytes <= 10_000


def test_lines_limit_both_ends():
    shown = excerpt("row\n" * 10_000, ExcerptLimits(100, 10**6))
    assert (count_lines(shown.head), count_lines(shown.tail)) == (40, 60)


def test_one_line_of_200_kb_shows_as_much_of_its_beginning_and_its_end_as_may_be_shown():
    shown = excerpt("a" * 100_000 + "b" * 100_000, ExcerptLimits(2_000, 51_200))
    assert (shown.head, shown.tail) == ("a" * 20_480, "b" * 30_720)
    assert (shown.kept_lines, shown.total_lines) == (1, 1)


def test_a_cut_is_inside_a_line_if_a_line_end_would_waste_the_room():
    text = "".join(f"{number} {'x' * 900}\n" for number in range(99))
    shown = excerpt(text, ExcerptLimits(2_000, 4_000))
    assert shown.kept_bytes > 3_900
    assert not shown.head.endswith("\n")
    assert not shown.tail.startswith(("8", "9"))


BASE64 = base64.b64encode(bytes(range(256)) * 300).decode()


@given(st.integers(0, 3_000), st.integers(0, 3_000), st.integers(100, 9_000))
@thorough
def test_base64_is_never_cut_in_its_middle(before, after, max_bytes):
    text = "word " * before + BASE64 + " word" * after
    shown = excerpt(text, ExcerptLimits(2_000, max_bytes))
    assert BASE64 in shown.gap or BASE64 in shown.head or BASE64 in shown.tail


def test_the_cause_in_the_middle_of_a_long_line_is_shown_with_its_context():
    shown = excerpt("x" * 50_000 + " FATAL: disk full " + "y" * 50_000, ExcerptLimits(2_000, 5_000))
    (line,) = shown.rescued
    assert " FATAL: disk full " in line
    assert len(line) <= 300
    assert (shown.kept_lines, shown.total_lines) == (1, 1)


def test_many_failures_on_one_line_are_shown_once():
    shown = excerpt("fine\n" * 900 + "error 12345 " * 900 + "\n" + "fine\n" * 900, ExcerptLimits(2_000, 4_000))
    assert len(shown.rescued) == 1


def test_many_failures_are_bounded_and_the_first_ones_shown():
    text = "fine\n" * 900 + "".join(f"error number {number}\n" for number in range(5_000)) + "fine\n" * 900
    shown = excerpt(text, ExcerptLimits(2_000, 8_000))
    assert shown.rescued == tuple(f"error number {number}" for number in range(40))


def test_rescued_lines_stop_where_their_room_ends():
    text = "fine\n" * 900 + "".join(f"error {number} {'x' * 80}\n" for number in range(30)) + "fine\n" * 900
    shown = excerpt(text, ExcerptLimits(2_000, 2_000))
    assert len(shown.rescued) == 4
    assert shown.kept_bytes > 1_900


@pytest.mark.parametrize(
    "word",
    [
        "Error", "FATAL", "failed", "Traceback", "AssertionError", "ValueError", "java.lang.NullPointerException",
        "npm ERR! code", "Segmentation fault", "错误", "致命", "发生error",
    ],
)  # fmt: skip
def test_words_of_failure_are_known_in_any_case(word):
    text = "fine\n" * 2_000 + f"{word}: 7\n" + "fine\n" * 2_000
    assert excerpt(text, ExcerptLimits(2_000, 2_000)).rescued == (f"{word}: 7",)


@pytest.mark.parametrize("line", ["terrorist errorless", "raise ValueError(name)", "a terror"])
def test_words_inside_words_and_calls_in_source_code_are_no_failures(line):
    text = "fine\n" * 2_000 + f"{line}\n" + "fine\n" * 2_000
    assert excerpt(text, ExcerptLimits(2_000, 2_000)).rescued == ()


def test_characters_are_counted_as_characters():
    shown = excerpt("读取文件\n" * 4_000, ExcerptLimits(10**6, 10**6, 1_000))
    assert 990 <= len(shown.head) + len(shown.tail) <= 1_000


def test_failures_are_found_wherever_a_slice_of_the_search_ends():
    lines = [f"segmentation fault {number}" for number in range(10, 40)]
    for begin in range(0, 8_192, 450):
        text = "." * begin + "".join(f"{line:.>8208}\n".replace(".seg", "\nseg") for line in lines)
        shown = excerpt(text, ExcerptLimits(max_bytes=20_000))
        assert [line for line in lines if line in (shown.head + shown.tail) or line in shown.rescued] == lines
