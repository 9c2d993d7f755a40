"""`Search`: the search for a limit that no refusal names."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.models.search import Search

SIZES = st.integers(1_000, 2_000_000)
SHARES = st.floats(0.55, 1.0)
"""Of the guess that a plan uses: it is cut to the low mark, and grows from there."""


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
def test_a_session_that_is_already_long_converges_by_halves(window, over):
    search, refusals = Search.begun(int(window * over) + 1), 1
    while search.guess > window:
        search, refusals = search.after_refusal(search.guess), refusals + 1
    assert refusals <= math.log2(over) + 2
    assert search.guess >= window // 2 - 1


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
def test_after_a_refusal_only_what_was_accepted_or_half_of_it_is_sent(refused, passed):
    search = Search.begun(refused, passed)
    assert search.guess in (passed, refused // 2)
    assert search.guess < refused


def test_a_refusal_above_the_search_says_nothing_new():
    search = Search.begun(10_000, 6_000)
    assert search.after_refusal(10_000) is search
    assert search.after_refusal(12_000, 9_000) is search


def test_a_refusal_of_what_was_accepted_begins_anew():
    search = Search.begun(10_000, 8_000)
    assert search.after_refusal(7_000) == Search(7_000, 3_500)


def test_only_a_prompt_near_the_guess_raises_it_and_only_by_a_step_that_is_worth_it():
    search = Search.begun(32_000)
    assert search.after_pass(14_399) is search
    raised = search.after_pass(14_400)
    assert raised == Search(32_000, 23_200, 14_400)
    settled = Search(32_000, 31_000, 30_500)
    assert settled.after_pass(30_900) is settled


def test_the_reply_beside_what_was_refused_is_that_of_the_latest_refusal():
    search = Search.begun(10_000, reply=4_000)
    assert (search.reply, search.after_refusal(5_000, reply=300).reply) == (4_000, 300)
