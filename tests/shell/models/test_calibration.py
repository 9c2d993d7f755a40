from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.models import MIN_SAMPLES, RATIO_STEP
from proxy.shell.models.calibration import LATEST, MAX_SAMPLES, PLAUSIBLE, Samples, contradicts

RATIOS = st.floats(*PLAUSIBLE)


def after(ratios, *, may_be_dense=False):
    samples = Samples(may_be_dense=may_be_dense)
    for ratio in ratios:
        samples = samples.with_sample(ratio)
    return samples


@given(RATIOS)
def test_nothing_is_adopted_before_enough_answers(ratio):
    assert after([ratio] * (MIN_SAMPLES - 1)).news(None) is None
    assert after([ratio] * MIN_SAMPLES).news(None) is not None
    assert after([ratio]).news(None, needed=1) is not None


@given(RATIOS)
def test_what_is_adopted_is_a_whole_step_at_most_one_over_what_was_seen_and_then_stays(ratio):
    samples = after([ratio] * MIN_SAMPLES)
    adopted = samples.news(None)
    assert ratio - 1e-6 <= adopted < ratio + RATIO_STEP + 1e-6
    assert round(adopted / RATIO_STEP, 6) == round(adopted / RATIO_STEP)
    assert samples.with_sample(ratio).news(adopted) is None


@given(RATIOS, st.lists(RATIOS, max_size=LATEST // 2))
def test_a_few_odd_requests_move_nothing(ratio, odd):
    steady = after([ratio] * MAX_SAMPLES)
    adopted = steady.news(None)
    assert after([*steady.ratios, *odd]).news(adopted) is None


@given(st.lists(RATIOS, min_size=1, max_size=MAX_SAMPLES + 10))
def test_only_the_latest_samples_count(ratios):
    assert after(ratios).ratios == tuple(ratios[-MAX_SAMPLES:])


def test_an_upstream_that_counts_more_is_followed_and_one_that_counts_less_only_where_much_is_wasted():
    assert after([1.2] * 9).news(1.0) == 1.2
    assert after([0.97] * MAX_SAMPLES).news(1.0) is None
    assert after([0.9] * MAX_SAMPLES).news(1.0) == 0.9


@given(st.integers(1, MAX_SAMPLES - 1))
def test_a_process_that_has_just_started_does_not_lower_a_ratio_for_its_few_samples(answers):
    assert after([0.9] * answers).news(1.0) is None


@pytest.mark.parametrize("may_be_dense", [False, True])
def test_a_ratio_is_lowered_only_when_many_samples_are_lower_or_the_latest_prove_it_wrong(may_be_dense):
    samples = after([1.3] + [1.1] * (MAX_SAMPLES - 1), may_be_dense=may_be_dense)
    assert samples.news(1.3) is None
    assert samples.with_sample(1.1).news(1.3) == 1.1
    samples = after([1.3] + [1.0] * (LATEST - 1), may_be_dense=may_be_dense)
    assert samples.news(1.3) is None
    assert samples.with_sample(1.0).news(1.3) == 1.0


@given(st.lists(st.sampled_from([0.84, 0.94, 0.99]), min_size=1, max_size=8), st.integers(1, MAX_SAMPLES - 1))
def test_conversations_that_count_less_take_turns_with_one_that_does_not_and_move_nothing(ratios, turns):
    samples = after([0.99] * MAX_SAMPLES)
    for ratio in ratios:
        for one in [*[ratio] * turns, 0.99]:
            samples = samples.with_sample(one)
            assert samples.news(0.99) is None


@pytest.mark.parametrize(
    ("ratio", "adopted", "found"), [(1.0, 1.3, True), (1.05, 1.3, False), (0.7, 1.0, False), (0.6, 0.9, False)]
)
def test_one_count_disproves_a_ratio_only_if_that_made_prompts_look_much_longer(ratio, adopted, found):
    assert contradicts(ratio, adopted) is found
