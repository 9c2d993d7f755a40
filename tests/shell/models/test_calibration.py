from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.models.calibration import (
    MIN_SAMPLES,
    PLAUSIBLE,
    RATIO_STEP,
    Samples,
    is_plausible,
    tells_of_truncation,
)

RATIOS = st.floats(*PLAUSIBLE)


def after(ratios, start=1.0):
    samples = Samples(0, start)
    for ratio in ratios:
        samples = samples.with_sample(ratio)
    return samples


@given(st.lists(RATIOS, min_size=1, max_size=30))
def test_the_mean_lies_among_what_was_seen_and_the_peak_is_never_under_it(ratios):
    samples = after(ratios, ratios[0])
    assert min(ratios) - 1e-9 <= samples.mean <= max(ratios) + 1e-9
    assert samples.peak >= samples.mean
    assert samples.count == len(ratios)


@given(RATIOS)
def test_nothing_is_adopted_before_enough_answers(ratio):
    assert after([ratio] * (MIN_SAMPLES - 1), ratio).news(None) is None
    assert after([ratio] * MIN_SAMPLES, ratio).news(None) is not None


@given(RATIOS)
def test_what_is_adopted_is_at_most_a_step_over_what_was_seen_and_then_stays(ratio):
    samples = after([ratio] * MIN_SAMPLES, ratio)
    adopted = samples.news(None)
    assert ratio - 1e-6 <= adopted < ratio + RATIO_STEP + 1e-6
    assert samples.with_sample(ratio).news(adopted) is None


def test_an_upstream_that_counts_more_is_followed_at_once_and_one_that_counts_less_only_where_much_is_wasted():
    assert after([1.2] * 9).news(1.0) is not None
    early, settled = after([0.97] * 10, 0.97), after([0.97] * 60, 0.97)
    assert early.news(1.0) == 0.97
    assert settled.news(1.0) is None
    assert after([0.9] * 60, 0.9).news(1.0) == 0.9


def test_one_conversation_that_counts_little_lowers_nothing_for_the_others():
    samples = after([1.3] * 40, 1.3)
    for _ in range(15):
        samples = samples.with_sample(1.0)
    assert samples.news(1.3) is None


@pytest.mark.parametrize(("ratio", "plausible"), [(0.49, False), (0.5, True), (3.0, True), (3.01, False)])
def test_tokenizers_differ_only_so_much(ratio, plausible):
    assert is_plausible(ratio) is plausible


@pytest.mark.parametrize(
    ("ratio", "adopted", "tells"), [(0.4, None, True), (0.6, None, False), (0.6, 1.0, True), (0.8, 1.0, False)]
)
def test_an_upstream_that_counts_far_less_than_it_used_to_has_cut_the_prompt(ratio, adopted, tells):
    assert tells_of_truncation(ratio, adopted) is tells
