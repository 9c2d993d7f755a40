from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.reading_texts import bytes_in, hits, texts
from support.work import bytecodes_of

from proxy.core.artifact_reading import Search, hits_of, part_at
from proxy.core.text import PAGE_BYTES, LineIndex, LineRange, Span
from proxy.errors import BadArtifactQuery, RangeOutside

SHOWN_BYTES = 400


@pytest.mark.parametrize(
    "pattern", ["", "(", "a" * 501, "(?=a)", r"(a)\1", "a{2000}", r"(\pL{100}){9}", "\ud800", "(((a{30}){30}){30})"]
)
def test_a_pattern_that_is_empty_too_long_or_not_regular_is_refused(pattern):
    with pytest.raises(BadArtifactQuery) as refused:
        Search(pattern)
    assert refused.value.param == "grep"


def test_a_refusal_quotes_the_pattern_as_it_was_given():
    with pytest.raises(BadArtifactQuery) as refused:
        Search("caf\u00e9(")
    assert refused.value.message.endswith("backreferences: missing ): caf\u00e9(")


@pytest.mark.parametrize(("context", "most"), [(-1, 5), (51, 5), (0, 0), (0, 1_001)])
def test_more_context_or_matches_than_allowed_are_refused(context, most):
    with pytest.raises(BadArtifactQuery):
        Search("a", context, most)


@pytest.mark.parametrize("lines", ["2-", "1:5-"])
def test_lines_and_bytes_that_are_not_there_are_refused(lines):
    with pytest.raises(RangeOutside):
        hits(b"a\n", "a", lines)


def test_patterns_that_are_catastrophic_elsewhere_are_read_in_linear_time():
    text = b"a" * 200_000 + b"\n" + b"x" * 200_000
    assert hits(text, "(a|aa)+$").count
    assert hits(text, "(x+x+)+y").count == 0
    assert hits(text, "^(([a-z])+.)+[A-Z]([a-z])+$").count == 0


def test_every_window_of_a_long_line_is_a_match_of_its_own():
    line = b"".join(
        b"%06d needle " % number if number % 100 == 0 else b"%06d hay... " % number for number in range(9_000)
    )
    assert len(line) > 100_000
    found = hits(b"first\n" + line * 9 + b"\nlast needle\n", "needle")
    assert found.count == 9 * 90 + 1
    windows = found.text.splitlines()
    assert windows[-1] == b"3:last needle"
    assert all(len(window) < SHOWN_BYTES + 30 and b"needle" in window for window in windows)
    for window in windows[:-1]:
        number, at, shown = window.split(b":", 2)
        assert number == b"2"
        assert (line * 9)[int(at) :].startswith(shown.strip("…".encode()))


def test_a_long_neighbour_is_shortened_and_a_full_page_stops():
    found = hits(b"b" * 2_000 + b"\nneedle\n" + b"c" * 5_000 + b"\nd\n", "needle", context=1)
    assert found.text == b"1-%b\xe2\x80\xa6\n2:needle\n3-%b\xe2\x80\xa6\n" % (b"b" * SHOWN_BYTES, b"c" * SHOWN_BYTES)
    full = hits(b"needle\n" * 20_000, "needle", max_bytes=PAGE_BYTES)
    assert full.count == 1_000
    assert full.following == "1001-20000"
    assert hits(b"needle\n" * 9, "needle", max_bytes=30).following == "4-9"
    early = hits(b"b" * 90 + b"\nneedle\n", "needle", context=1, max_bytes=50)
    assert (early.text, early.count, early.following) == (b"", 0, "2-2")
    behind = hits(b"a\n" + b"b" * 400_000 + b"\nnear\nneedle\n" + b"c" * 400_000 + b"\n", "needle", context=1)
    assert behind.text.splitlines()[:2] == [b"3-near", b"4:needle"]
    assert hits(b"b" * 400_000 + b"needle\n", "needle", context=1).text.startswith(b"1:399800:")


def test_a_window_begins_with_a_whole_character():
    found = hits(("é漢" * 1_000 + "漢needle").encode() + "漢".encode() * 1_000, "needle")
    number, at, shown = found.text.decode().split(":", 2)
    assert (number, shown[0], shown[-2:]) == ("1", "…", "…\n")
    assert "é漢漢needle漢" in shown
    assert int(at) > 4_000


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
def test_context_of_matches_is_shown_once_as_grep_does(text, pattern, context):
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
def test_a_resumed_search_finds_the_same_lines(text, pattern, most, max_bytes):
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


def test_a_search_stays_within_the_requested_lines():
    text = b"".join(b"line %d\n" % number for number in range(1, 100_001))
    found = hits(text, "line .*7$", "50000-50020", context=1)
    assert (
        found.text
        == b"50006-line 50006\n50007:line 50007\n50008-line 50008\n--\n"
        + b"50016-line 50016\n50017:line 50017\n50018-line 50018\n"
    )
    assert (found.first, found.last, found.following) == (50000, 50020, None)


def test_lines_without_a_match_are_passed_over_together_whatever_the_pattern():
    def work(pattern):
        return sum(bytecodes_of(lambda: hits(b"a line\n" * 40_000, pattern)).values())

    assert work("^$") < 2 * work("needle")


def test_a_search_that_runs_out_of_time_says_where_to_continue():
    text = b"no\n" * 400_000
    spans: list[Span] = []
    part = bytes_in(text, spans)

    def for_a_while(span):
        if len(spans) == 3:
            raise TimeoutError
        return part(span)

    found = hits_of(LineIndex.of_text(text), LineRange(1), Search("yes"), for_a_while)
    assert (found.count, found.first, found.following) == (0, 1, f"{found.last + 1}-400000")
    assert 3 * found.last > 2 * 256 * 1024 - 10


NAMES = st.sampled_from(["", "a", "a/b", "~", "~1", "0", "01", "é", "m~n", " ", '"'])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=20,
)


def walks(value, pointer=""):
    yield pointer, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in below:
        yield from walks(inner, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")


@given(VALUES, st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_part_is_found_where_a_walk_finds_it(value, pretty):
    text = json.dumps(value, indent=1 if pretty else None).encode()
    for pointer, part in walks(value):
        found = part_at(text, pointer)
        if isinstance(part, str):
            assert found == part.encode()
        else:
            assert json.loads(found) == part


# https://www.rfc-editor.org/rfc/rfc6901#section-5
RFC = b'{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\\\j":5,"k\\"l":6," ":7,"m~n":8}'


@pytest.mark.parametrize(
    "pointer",
    ["foo", "/foo/2", "/foo/-", "/foo/01", "/foo/+1", "/foo/٠", "/none", "/~2", "/m~", "/foo/0/x", "/" * 1_001],
)
def test_what_is_not_there_or_no_pointer_is_refused_without_showing_content(pointer):
    with pytest.raises(BadArtifactQuery) as refused:
        part_at(RFC, pointer)
    assert refused.value.param == "json"
    assert "bar" not in refused.value.message


def test_a_pointer_leads_into_a_string_that_is_json_and_shows_its_text_in_lines():
    arguments = json.dumps({"path": "a.py", "content": "def a():\n    return 1\n", "edits": [{"new": "é\nb"}]})
    kept = json.dumps({"messages": [{"tool_calls": [{"function": {"arguments": arguments}}]}]}).encode()
    call = "/messages/0/tool_calls/0/function/arguments"
    assert part_at(kept, f"{call}/content") == b"def a():\n    return 1\n"
    assert part_at(kept, f"{call}/edits/0/new") == "é\nb".encode()
    assert part_at(kept, call) == arguments.encode()


@pytest.mark.parametrize("text", ["words", "{broken", "5", '"{}"'])
def test_a_pointer_into_a_string_that_is_no_object_says_which_part_is_none(text):
    with pytest.raises(BadArtifactQuery, match=r"^/arguments is "):
        part_at(json.dumps({"arguments": text}).encode(), "/arguments/content")


@pytest.mark.parametrize(
    ("text", "pointer"), [(b"not json", ""), (b"not json", "/a"), (b"{broken", "/a"), (b"[1,", "/0")]
)
def test_what_is_no_json_is_refused(text, pointer):
    with pytest.raises(BadArtifactQuery, match="not JSON"):
        part_at(text, pointer)


def test_a_deep_pointer_scans_the_text_once_however_many_steps_lead_there():
    def work(depth):
        text = b"[" * depth + b"[" + b"[0]," * 2_000 + b"1]" + b"]" * depth
        return sum(bytecodes_of(lambda: part_at(text, "/0" * depth)).values())

    one, two, four = work(50), work(100), work(200)
    assert four - two < 2.2 * (two - one)
    checks = []
    part_at(b"[" * 101 + b"[]," * 100_000 + b"[]" + b"]" * 101, "/0" * 100, lambda: checks.append(True))
    assert len(checks) < 100 + 100 + 200_000 / 4_096 + 100


def test_the_work_ends_where_its_check_raises():
    def ended():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        part_at(b"[" + b"[]," * 10_000 + b"0]", "/9999", ended)


@pytest.mark.parametrize("text", [b'["' + b'"' * 200_000, b"[" * 100_000, b'{"a":' * 500], ids=["quotes", "[", "{"])
def test_a_text_that_ends_early_is_refused_at_once(text):
    with pytest.raises(BadArtifactQuery, match="not JSON"):
        part_at(text, "/0")


def test_a_surrogate_in_a_string_comes_back_as_it_was_kept():
    assert part_at(b'["\\ud800"]', "/0") == "\ud800".encode("utf-8", "surrogatepass")
