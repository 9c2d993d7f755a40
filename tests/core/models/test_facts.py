"""Lessons: whom they bind, for how long, and the search for an unstated limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models import Key, Lesson, Search, facts

NAMES = [facts.WINDOW, facts.CUT_TO, facts.SEARCH, f"{facts.RATIO}bytes", f"{facts.REFUSES}vision"]
VALUES = st.sampled_from([0, 1, 2]) | st.builds(Search, st.sampled_from([9_000, 8_000]), st.sampled_from([2_000]))
KEYS = st.builds(Key, st.sampled_from("mn"), st.sampled_from("ab*"), st.sampled_from(NAMES))
ROWS = st.dictionaries(KEYS, st.builds(Lesson, VALUES, st.sampled_from([5, 9])))


def bound(of, by="a"):
    """The lessons that bind a tenant, of these: (tenant, name) → (value, time)."""
    rows = {Key("m", *whose): Lesson(*lesson) for whose, lesson in of.items()}
    return {name: lesson.value for name, lesson in facts.binding(facts.by_tenant(rows), "m", by).items()}


@pytest.mark.parametrize(
    ("of", "found"),
    [
        ({}, {}),
        ({("a", facts.RATE): (6, 1)}, {facts.RATE: 6}),
        ({("b", facts.RATE): (6, 1)}, {}),
        ({(facts.THE_SERVER, facts.RATE): (6, 1)}, {facts.RATE: 6}),
        ({(facts.THE_SERVER, facts.RATE): (6, 1), ("a", facts.RATE): (7, 2)}, {facts.RATE: 7}),
        ({(facts.THE_SERVER, facts.RATE): (6, 2), ("a", facts.RATE): (7, 1)}, {facts.RATE: 6}),
        ({(facts.THE_SERVER, facts.RATE): (6, 1), ("a", facts.RATE): (0, 2)}, {}),
    ],
)
def test_a_lesson_binds_the_tenant_that_met_it_and_all_if_the_server_said_it_and_the_newest_wins(of, found):
    assert bound(of) == found


@pytest.mark.parametrize(
    ("of", "found"),
    [
        ({facts.WINDOW: (8, 1), facts.INPUT: (6, 2)}, {facts.WINDOW: 8, facts.INPUT: 6}),
        ({facts.WINDOW: (8, 1), facts.SEARCH: (Search(9, 5), 2)}, {facts.SEARCH: Search(9, 5)}),
        ({facts.WINDOW: (8, 3), facts.SEARCH: (Search(9, 5), 2)}, {facts.WINDOW: 8}),
        (
            {facts.WINDOW: (8, 3), facts.SEARCH: (Search(9, 5), 2), facts.CUT_TO: (4, 4), facts.CHARS: (90, 1)},
            {facts.CUT_TO: 4, facts.CHARS: 90},
        ),
        ({facts.WINDOW: (8, 3), facts.CUT_TO: (0, 4)}, {facts.WINDOW: 8}),
        ({facts.WINDOW: (8, 3), facts.LATE: (7, 4)}, {facts.LATE: 7}),
        ({facts.WINDOW: (8, 3), facts.STATED: (16, 4)}, {facts.STATED: 16}),
        ({facts.WINDOW: (8, 5), facts.STATED: (16, 4)}, {facts.WINDOW: 8, facts.STATED: 16}),
        (
            {facts.WINDOW: (32, 3), facts.STATED: (16, 4), facts.RATE: (6, 1)},
            {facts.WINDOW: 32, facts.STATED: 16, facts.RATE: 6},
        ),
    ],
)
def test_of_the_limits_in_tokens_the_newest_word_counts(of, found):
    assert bound({("a", name): lesson for name, lesson in of.items()}) == found


def test_people_are_shown_the_newest_that_holds():
    of = {("a", facts.RATE): (6, 5), ("b", facts.RATE): (7, 9), ("c", facts.RATE): (0, 10), ("c", facts.CHARS): (90, 1)}
    assert bound(of, None) == {facts.RATE: 7, facts.CHARS: 90}


@given(ROWS, ROWS, ROWS)
def test_any_order_of_joining_gives_the_same(one, other, third):
    assert facts.joined(one, one) == one
    assert facts.joined(one, other) == facts.joined(other, one)
    assert facts.joined(facts.joined(one, other), third) == facts.joined(one, facts.joined(other, third))
    assert facts.joined(one, other).keys() == one.keys() | other.keys()


@given(ROWS, ROWS, st.integers(1, 6))
def test_the_number_of_rows_is_bounded_and_the_newest_stay(one, other, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "MAX_ROWS", most)
        found = facts.joined(one, other)
        assert found == facts.joined(other, one)
        assert len(found) <= max(most, len(one))
    gone = facts.joined(one, other).items() - found.items()
    assert all(lesson.at <= min(one.at for one in found.values()) for _, lesson in gone)


@pytest.mark.parametrize(
    "name",
    [facts.WINDOW, facts.INPUT, facts.CHARS, facts.SEARCH, facts.RATE, "at most images", f"{facts.REFUSES}vision"],
)
def test_what_a_refusal_shows_again_lapses_after_a_day(name):
    assert facts.lapses_at(name, Lesson(1, 5)) == 5 + facts.DAY


@pytest.mark.parametrize("name", [facts.CUT_TO, facts.LATE, facts.STATED, f"{facts.RATIO}bytes"])
def test_what_no_refusal_shows_lapses_after_thirty_days(name):
    assert facts.lapses_at(name, Lesson(1, 5)) == facts.lapses_at(facts.WINDOW, Lesson(0, 5)) == 5 + 30 * facts.DAY


def test_what_has_lapsed_is_kept_for_the_next_search_and_forgotten_after_a_month_or_from_a_clock_that_was_ahead():
    rows = {Key("m", "", facts.WINDOW): Lesson(8, 0.0)}
    assert facts.in_force(rows, facts.DAY - 1) == rows
    assert facts.in_force(rows, facts.DAY) == {}
    assert facts.kept(rows, facts.KEPT_SECONDS - 1) == facts.kept(rows, 1 - facts.DAY) == rows
    assert facts.kept(rows, facts.KEPT_SECONDS) == facts.kept(rows, -facts.DAY) == {}


def test_what_is_forgotten_on_purpose_is_forgotten_whoever_tells_of_it_and_later_lessons_count():
    row, other = Key("m", "a", facts.WINDOW), Key("n", "a", facts.WINDOW)
    rows = {row: Lesson(8, 50.0), other: Lesson(9, 50.0)}
    for model, left in (("m", {other}), ("", set())):
        mark = facts.forgetting(rows, 50.0, model)
        for found in (facts.joined(rows, mark), facts.joined(mark, rows)):
            assert facts.in_force(facts.kept(found, 60.0), 60.0).keys() == left
        later = {row: Lesson(7, 50.1)}
        assert facts.in_force(facts.kept(facts.joined(mark, later), 60.0), 60.0) == later


def test_what_a_clock_that_was_ahead_has_dated_is_forgotten_on_purpose_as_well():
    rows = {Key("m", "a", facts.WINDOW): Lesson(8, 90.0)}
    assert facts.in_force(facts.kept({**rows, **facts.forgetting(rows, 50.0, "m")}, 60.0), 60.0) == {}


SIZES = st.integers(1_000, 2_000_000)
SHARES = st.floats(0.55, 1.0)
"""Sizes relative to the guess that a plan uses: it is cut to the low mark, and grows from there."""


@given(window=SIZES, start=SIZES, growth=st.lists(st.integers(0, 60_000), min_size=1, max_size=80), shares=st.data())
def test_it_converges_whatever_the_window_and_however_the_session_grows(window, start, growth, shares):
    search: Search | None = None
    passed, whole, sizes, refusals, last = 0, start, [], 0, 0

    def send(size: int) -> bool:
        nonlocal search, passed, refusals, last
        assert search is None or size < search.refused, "what was refused is not sent again"
        assert size != last, "nor is the same size refused twice in a row"
        if size <= window:
            passed, last = max(passed, size), 0
            search = search and search.after_pass(size)
            return True
        refusals, last = refusals + 1, size
        search = Search.begun(size, passed) if search is None else search.after_refusal(size, passed)
        assert search.guess < size
        return False

    for grown in growth:
        whole += grown
        for _ in range(2):  # a send, and the one that heals it
            size = whole if search is None else min(whole, int(search.guess * shares.draw(SHARES)))
            if send(size):
                break
        sizes.append(size)
    halvings = math.log2(max(1, whole / window))
    assert refusals <= halvings + 1 + 6, sizes


@given(window=SIZES, over=st.floats(1.01, 1_000))
def test_a_session_that_is_already_long_converges_by_six_tenths(window, over):
    search, refusals = Search.begun(int(window * over) + 1), 1
    while search.guess > window:
        search, refusals = search.after_refusal(search.guess), refusals + 1
    assert refusals <= math.log(over, 1 / 0.6) + 2
    assert search.guess >= window * 0.6 - 10


@given(window=SIZES, over=st.floats(1.01, 8))
def test_a_session_that_keeps_growing_comes_near_the_limit(window, over):
    search = Search.begun(int(window * over) + 1)
    for _ in range(40):
        size = int(search.guess * 0.96)
        found = search.after_pass(size) if size <= window else search.after_refusal(size)
        assert found is not None
        search = found
    assert 0.85 * window <= search.guess or search.refused - search.guess <= search.refused / 16


@given(refused=SIZES, passed=SIZES)
def test_after_a_refusal_only_what_was_accepted_or_six_tenths_of_it_are_sent(refused, passed):
    search = Search.begun(refused, passed)
    assert search.guess == (passed if passed < refused else int(refused * 0.6))
    raised = replace(search, guess=(search.guess + refused) // 2)
    for size in (raised.guess, refused, 2 * refused):
        met = min(size, refused)
        assert raised.after_refusal(size, passed).guess == (passed if passed < met else int(met * 0.6))


def test_a_refusal_above_the_search_says_nothing_new():
    search = Search.begun(10_000, 6_000)
    assert search.after_refusal(10_000) == search.after_refusal(12_000) == search


def test_a_refusal_of_what_was_accepted_begins_anew():
    search = Search.begun(10_000, 8_000)
    assert search.after_refusal(7_000) == Search(7_000, 4_200)


def test_only_a_prompt_near_the_guess_raises_it_and_only_by_a_step_that_is_worth_it():
    search = Search.begun(32_000)
    assert search.after_pass(17_279) is search
    raised = search.after_pass(17_280)
    assert raised == Search(32_000, 24_640, 17_280)
    settled = Search(32_000, 31_000, 30_500)
    assert settled.after_pass(30_900) is settled


def test_the_reply_beside_what_was_refused_is_that_of_the_latest_refusal():
    search = Search.begun(10_000, reply=4_000)
    assert (search.reply, search.after_refusal(5_000, reply=300).reply) == (4_000, 300)
