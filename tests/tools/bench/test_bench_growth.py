"""The arithmetic of a growing conversation."""

import pytest

from tools.bench import growth


def test_what_settles_after_the_last_answer_belongs_to_the_last_turn():
    assert growth.of_each_turn([1.0, 1.5, 2.5, 2.75]) == [0.5, 1.25]


def test_one_disturbed_run_of_three_changes_nothing():
    assert growth.typical([[1.0, 2.0], [9.0, 2.0], [2.0, 2.0]]) == [2.0, 2.0]


def test_cuts_that_fall_on_other_turns_in_each_run_are_not_lost():
    assert growth.typical([[8.0, 1.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 7.0]]) == [8.0, 1.0, 1.0]


def test_the_run_with_the_lower_total_is_reported():
    assert growth.typical([[9.0, 2.0], [1.0, 8.0]]) == [1.0, 8.0]


def test_only_what_comes_on_top_of_the_floor_is_added_up():
    assert growth.beyond([3.0, 4.0, 5.0], [1.0, 1.0, 6.0]) == [2.0, 5.0, 4.0]


@pytest.mark.parametrize("power", [1.0, 1.35, 2.0])
def test_the_exponent_is_found_whatever_the_first_turns_cost(power):
    start_up = 40
    totals = [1e6 if turn < start_up else 0.003 * turn**power for turn in range(1, 101)]
    assert growth.exponent(totals) == pytest.approx(power)


def test_without_any_cost_there_is_no_exponent():
    assert growth.exponent([0.0] * 10) is None
