"""Facts about a model: precedence of lessons, and the search for an unstated limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models import Fact, Search, facts

NAMES = [facts.CUT_TO, f"{facts.RATIO}bytes", f"{facts.REFUSES}vision"]
OF = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(Fact, st.sampled_from([0, 1, 2]), st.sampled_from([5, 9]), st.sampled_from([0, 7])),
    min_size=1,
)
FACTS = st.dictionaries(st.sampled_from(NAMES), OF)


def binding_value(of: dict[str, float], name: str = f"{facts.RATIO}bytes", by: str | None = "new") -> float | None:
    found = facts.binding({name: {tenant: Fact(value, 5) for tenant, value in of.items()}}, name, by)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ({}, None),
        ({"a": 1.2}, None),
        ({"a": 1.2, "b": 0}, None),
        ({"a": 1.2, "b": 1.1}, 1.1),
        ({"a": 1.2, "b": 1.1, "c": 2.6}, 1.2),
        ({"new": 1.0, "b": 1.1, "c": 2.6}, 1.0),
        ({"new": 0, "b": 1.1, "c": 2.6}, None),
        ({facts.THE_SERVER: 1.5}, 1.5),
        ({facts.THE_SERVER: 0, "a": 1.5}, None),
    ],
)
def test_what_binds_a_tenant_is_its_own_fact_or_the_strongest_in_which_two_agree(of, value):
    assert binding_value(of) == value


def test_of_windows_the_strongest_claim_in_which_two_agree_is_the_second_smallest():
    assert binding_value({"a": 4_096, "b": 8_192, "c": 16_384}, facts.CUT_TO) == 8_192


def test_people_are_shown_the_newest():
    of = {"a": Fact(1.5, 5), "b": Fact(1.2, 9), "c": Fact(0, 10)}
    assert facts.binding({facts.RATIO: of}, facts.RATIO, None) == Fact(1.2, 9)
    assert facts.binding({}, facts.RATIO, None) is None


def test_the_facts_of_one_kind_are_found_by_the_rest_of_their_names():
    found = facts.with_values({}, "a", {f"{facts.IMAGE}9x9": 85, f"{facts.IMAGE}8x8": 70, facts.RATIO: 1.1}, 5)
    assert facts.values(found, facts.IMAGE, "a") == {"9x9": 85, "8x8": 70}
    assert facts.values(found, facts.IMAGE, "b") == {}
    assert facts.has_lessons_of(found, "a")
    assert not facts.has_lessons_of(facts.with_values({}, "a", {facts.RATIO: 1.1}, 5), "a"), "which no profile contains"


@given(FACTS, FACTS, FACTS)
def test_any_order_of_joining_gives_the_same(one, other, third):
    assert facts.joined(one, one) == one
    assert facts.joined(one, other) == facts.joined(other, one)
    assert facts.joined(facts.joined(one, other), third) == facts.joined(one, facts.joined(other, third))


@given(FACTS, st.sampled_from(NAMES), st.sampled_from([0, 1, 2]), st.floats(0, 9))
def test_what_a_tenant_has_just_met_is_its_newest_lesson_whatever_the_clock_says(known, name, value, now):
    found = facts.with_values(known, "a", {name: value}, now)
    assert found[name]["a"].value == value
    assert facts.joined(known, found) == found


def test_what_was_refuted_does_not_come_back_from_another_replica():
    known = facts.with_values({}, "a", {facts.CUT_TO: 4_096}, 5)
    gone = facts.refuted(known, facts.CUT_TO, ["a"], 5)
    assert facts.binding(facts.joined(gone, known), facts.CUT_TO, "a") is None


def test_lessons_are_forgotten_and_counts_are_not():
    known = facts.with_values(
        facts.with_values({}, "a", {facts.CUT_TO: 4_096, f"{facts.IMAGE}8x8": 70}, 5), "b", {facts.CUT_TO: 4_096}, 8
    )
    assert facts.standing(known, 11, 7) is known
    assert facts.standing(known, 12, 7) == {
        facts.CUT_TO: {"b": Fact(4_096, 8)},
        f"{facts.IMAGE}8x8": {"a": Fact(70, 5)},
    }
    assert facts.standing(known, 20, 7).keys() == {f"{facts.IMAGE}8x8"}
    assert facts.until(known, 7) == 12
    assert facts.until(facts.standing(known, 20, 7), 7) == math.inf


def test_a_rate_is_forgotten_after_hours():
    week, hours = 7 * 24 * 3600, 4 * 3600
    known = facts.with_values({}, "a", {facts.RATE: 6_000, facts.CUT_TO: 4_096}, 5)
    assert facts.until(known, week) == 5 + hours
    assert facts.standing(known, 4 + hours, week) is known
    assert facts.standing(known, 5 + hours, week).keys() == {facts.CUT_TO}
    assert facts.binding(facts.with_values(known, "b", {facts.RATE: 8_000}, 5), facts.RATE, "new") == Fact(8_000, 5), (
        "in which two agree"
    )


def test_a_refusal_of_cut_results_is_forgotten_after_a_day():
    known = facts.with_values({}, "a", {facts.CUT_RESULTS_REFUSED: 1}, 5)
    assert facts.until(known, 7 * 24 * 3600) == 5 + 24 * 3600


def test_the_number_of_facts_and_tenants_is_bounded_and_the_newest_stay():
    known: facts.Facts = {}
    for number in range(facts.MAX_NAMES + 5):
        known = facts.with_values(known, "a", {f"{facts.IMAGE}{number}": 70}, number)
    for number in range(facts.MAX_TENANTS + 5):
        known = facts.with_values(known, f"tenant {number}", {facts.CUT_TO: 4_096}, 1_000 + number)
    assert len(known) == facts.MAX_NAMES
    assert f"{facts.IMAGE}5" not in known
    assert f"{facts.IMAGE}{facts.MAX_NAMES + 4}" in known
    assert len(known[facts.CUT_TO]) == facts.MAX_TENANTS
    assert "tenant 4" not in known[facts.CUT_TO]


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
