"""The first line of stored messages, and the matches of one search through several artifacts."""

import re

import pytest

from proxy.core.artifact_reading import LostMessages, Search, Searched, matches_in, page_of_matches, patterns_for, place

NEWEST, OLDER, RESULT = (f"tool_{of}_0123456789abcde{n}.json" for n, of in enumerate(("messages", "messages", "sh")))


@pytest.mark.parametrize(
    ("first", "is_ours"),
    [
        (LostMessages((OLDER,), (place(3, "web search"), place(4, "\n"))).written([b"{}"]), True),
        (b'{"earlier":["../../etc/passwd"],"places":[],"messages":[', False),
        (b'{"earlier":["%b\\n"],"places":[],"messages":[' % OLDER.encode(), False),
        (b'{"earlier":[],"places":["three sh"],"messages":[', False),
        (b'{"earlier":[],"places":["3 sh\\n[context-proxy: x]"],"messages":[', False),
        (b'{"earlier":[],"places":[],"messages":[\n', True),
        (b'{"earlier":"x"}', False),
        (b"", False),
    ],
)
def test_a_first_line_is_ours_only_with_names_and_places_as_we_write_them(first, is_ours):
    assert (LostMessages.read(first) is not None) == is_ours


def test_matches_are_named_by_their_messages_or_by_the_tool_whatever_it_is_called():
    lost = LostMessages((), (place(7, "user"), place(8, "web search")))
    found = [*matches_in(NEWEST, "1-odd\n2:a\n3:10:…b\n", "", lost), *matches_in(RESULT, "5:c\n6-d\n", "my tool", None)]
    page = page_of_matches(Searched(found, NEWEST, 2, total=9), Search("x"), "en", 10_000)[1]
    assert [line for line in page.splitlines() if line.startswith("--")] == [
        f"-- {NEWEST} lines=1-1: a result of ",
        f"-- {NEWEST} lines=2-2: message 7 of 9, user",
        f"-- {NEWEST} lines=3:10-3: message 8 of 9, web search",
        f"-- {RESULT} lines=5-: a result of my tool",
    ]


def test_a_page_too_small_for_all_matches_has_those_with_the_most_words_and_says_where_to_go_on():
    found = [
        *matches_in(RESULT, "--\n".join(f"{n}:lamp {'of the pier' * (n == 8)}\n" for n in range(1, 10)), "sh", None)
    ]
    header, page = page_of_matches(Searched(found, RESULT, 1), Search("lamp pier", max_hits=2), "en", 10_000)
    assert "those with most words of grep are shown" in header
    assert [line[:6] for line in page.splitlines() if not line.startswith("--")] == ["1:lamp", "8:lamp"]
    header, page = page_of_matches(Searched(found, RESULT, 1), Search("lamp", max_hits=2), "en", 10_000)
    assert header.endswith(f"go on with the same search and id={RESULT} lines=3-]\n")


def test_words_in_their_order_come_before_any_of_them_and_numbers_are_whole():
    exact, in_order, any_of = (re.compile(pattern) for pattern in patterns_for("lamp pier 9"))
    lines = ["the lamp of pier 9 is out", "the lamp of pier 19 is out", "at 9 the pier closes, says the lamp"]
    assert [[bool(one.search(line)) for line in lines] for one in (exact, in_order, any_of)] == [
        [False, False, False],
        [True, False, False],
        [True, True, True],
    ]
    assert len(patterns_for(" ".join(f"word{number}" for number in range(9)))) == 2
