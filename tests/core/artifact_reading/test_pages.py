from __future__ import annotations

import pytest
from support.reading_texts import ARTIFACT, answer

from proxy.core.artifact_reading import Query
from proxy.core.notices import MARK
from proxy.core.text import LineRange
from proxy.errors import BadArtifactQuery


def test_a_page_says_what_part_it_shows_and_how_to_continue():
    header, rest = answer(lines="400-401")
    assert header == f"Text: {MARK}lines 400-401 of 20000 of {ARTIFACT}, 18 of 208,894 bytes; go on with lines=402-403]"
    assert rest == "line 400\nline 401\n"


def test_a_full_page_says_so_and_the_last_one_names_no_other():
    header, rest = answer(lines="1-")
    assert "; the page is full, go on with lines=" in header
    assert len(header) + len(rest) < 51_200
    assert "go on" not in answer(lines="-5")[0]
    assert answer(text=b"a\nb", lines="1-")[1] == "a\nb"


def test_a_search_reports_counts_places_and_how_to_continue():
    header, rest = answer(grep="line 1.*7$", context="0", max="3")
    counts = "3 matches in lines 1-117 of 20000 of"
    assert header == f"Text: {MARK}{counts} {ARTIFACT}; go on with the same search and lines=118-20000]"
    assert rest == "17:line 17\n--\n107:line 107\n--\n117:line 117\n"
    nothing = f"Text: {MARK}0 matches in lines 100-200 of 20000 of {ARTIFACT}]"
    assert answer(grep="zzz", lines="100-200") == (nothing, "")


def test_an_empty_query_returns_the_whole():
    assert Query.parse({}) is None
    assert Query.parse({"stat": ""}) == Query(stat=True)
    assert Query.parse({"json": "/a", "lines": "-5"}) == Query(LineRange(-5), None, "/a")


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"line": "5"}, "line"),
        ({"": "5"}, ""),
        ({"x" * 500: ""}, "x" * 100),
        ({"context": "5"}, "context"),
        ({"lines": "1-", "max": "5"}, "max"),
        ({"stat": "", "lines": "5"}, "stat"),
        ({"grep": "a", "context": "-1"}, "context"),
        ({"grep": "a", "context": "٣"}, "context"),
        ({"grep": "a", "max": "9999999"}, "max"),
        ({"grep": "a", "max": "1e3"}, "max"),
        ({"grep": ""}, "grep"),
        ({"lines": "x"}, "lines"),
        ({"json": "/" * 1_001}, "json"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_the_allowed_ones(parameters, param):
    with pytest.raises(BadArtifactQuery) as refused:
        Query.parse(parameters)
    assert refused.value.param == param


def test_a_page_holds_no_more_bytes_than_requested():
    header, rest = answer(lines="400-500", bytes="100")
    assert len(rest) <= 100
    assert "; the page is full, go on with lines=" in header
    with pytest.raises(BadArtifactQuery, match="`bytes` must be at least 1"):
        Query.parse({"bytes": "0"})


def test_a_page_in_the_middle_of_a_line_says_where_it_begins():
    assert answer(text=b"x" * 90, lines="1:30-1", bytes="20")[0].startswith(
        f"Text: {MARK}lines 1:30-1 of 1 of {ARTIFACT}"
    )
