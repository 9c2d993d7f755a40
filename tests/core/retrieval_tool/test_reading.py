from __future__ import annotations

import pytest
from support.reading_texts import ARTIFACT, answer

from proxy.core.notices.catalogue import MARK
from proxy.core.retrieval_tool.reading import Query
from proxy.core.text.lines import LineRange
from proxy.errors import BadArtifactQuery


def test_a_page_says_what_it_shows_of_how_much_and_how_to_go_on():
    header, rest = answer(lines="400-401")
    assert header == f"{MARK}lines 400-401 of 20000 of {ARTIFACT}, 18 of 208,894 bytes; go on with lines=402-403]"
    assert rest == "line 400\nline 401\n"


def test_a_full_page_says_so_and_the_last_one_names_no_other():
    header, rest = answer(lines="1-")
    assert "; the page is full, go on with lines=" in header
    assert len(header) + len(rest) < 51_200
    assert "go on" not in answer(lines="-5")[0]
    assert answer(text=b"a\nb", lines="1-")[1] == "a\nb"


def test_a_search_says_how_much_it_found_where_and_how_to_go_on():
    header, rest = answer(grep="line 1.*7$", context="0", max="3")
    said = "3 matches in lines 1-117 of 20000 of"
    assert header == f"{MARK}{said} {ARTIFACT}; go on with the same search and lines=118-20000]"
    assert rest == "17:line 17\n--\n107:line 107\n--\n117:line 117\n"


def test_a_search_without_a_match_says_where_it_looked():
    assert answer(grep="zzz", lines="100-200") == (
        f"{MARK}0 matches in lines 100-200 of 20000 of {ARTIFACT}]",
        "",
    )


def test_nothing_asked_for_is_the_whole():
    assert Query.parse({}) is None
    assert Query.parse({"stat": ""}) == Query(stat=True)
    assert Query.parse({"json": "/a", "lines": "-5"}) == Query(LineRange(-5), None, "/a")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"line": "5"}, "line"),
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
def test_what_makes_no_sense_is_refused_and_what_is_allowed_is_said(asked, param):
    with pytest.raises(BadArtifactQuery) as refused:
        Query.parse(asked)
    assert refused.value.param == param


def test_a_page_holds_no_more_bytes_than_are_asked_for():
    header, rest = answer(lines="400-500", bytes="100")
    assert len(rest) <= 100
    assert "; the page is full, go on with lines=" in header
    with pytest.raises(BadArtifactQuery, match="`bytes` must be at least 1"):
        Query.parse({"bytes": "0"})


def test_a_page_in_the_middle_of_a_line_says_where_it_begins():
    assert answer(text=b"x" * 90, lines="1:30-1", bytes="20")[0].startswith(f"{MARK}lines 1:30-1 of 1 of {ARTIFACT}")
