from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.compaction.cut_pacing import CutPacing


def cuts_up_to(messages: int, is_desperate) -> list[int]:
    """Where a conversation is cut that is over its mark at each message."""
    pacing, found = CutPacing(), []
    for count in range(1, messages + 1):
        if not pacing.rests_at(count):
            found.append(count)
            pacing = pacing.after_cut(count, is_desperate=is_desperate(count))
    return found


def test_the_first_sixteen_desperate_cuts_wait_for_nothing():
    assert cuts_up_to(16, lambda _: True) == list(range(1, 17))


def test_cuts_that_free_room_never_wait():
    assert cuts_up_to(500, lambda _: False) == list(range(1, 501))
    assert cuts_up_to(500, lambda count: count % 15 != 0) == list(range(1, 501))


@given(st.integers(100, 20_000))
def test_desperate_cuts_grow_by_far_less_than_the_messages(messages):
    cuts = cuts_up_to(messages, lambda _: True)
    waits = [after - before for before, after in pairwise(cuts)]
    assert waits == sorted(waits)
    assert len(cuts) < 120


@given(st.integers(1, 10_000), st.integers(0, 1_000))
def test_a_cut_that_frees_room_ends_all_waiting(messages, in_a_row):
    pacing = CutPacing(in_a_row).after_cut(messages, is_desperate=False)
    assert pacing == CutPacing(0, pacing.resting)
    assert not any(pacing.rests_at(count) for count in range(messages, 2 * messages))


@given(st.integers(1, 10_000), st.integers(0, 1_000))
def test_where_a_cut_was_made_nothing_rests(messages, in_a_row):
    """There, the conversation is as settled as it can be."""
    assert not CutPacing(in_a_row).after_cut(messages, is_desperate=True).rests_at(messages)
