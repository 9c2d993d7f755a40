from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow.silent_truncation import SMALLEST_WINDOW_TOKENS, Counted, window_of_a_cut

COUNTS = st.integers(0, 300_000)
RATIOS = st.none() | st.floats(0.5, 3.0)


@pytest.mark.parametrize(
    ("estimate", "counted", "ratio", "own", "window"),
    [
        # A conversation in plain words, estimated by a ratio that denser ones taught, lands on 22 * 1 024 by chance.
        (26_140, Counted(22_528, 1), 0.99, False, None),
        (34_000, Counted(22_528, 1), 0.99, False, 22_528),
        # TradingAgents#168: prompt and completion are 4 096 to the token.
        (20_000, Counted(3_400, 696), None, False, 4_096),
        (20_000, Counted(4_096, 300), None, False, 4_096),
        (5_000, Counted(4_000, 96), 1.0, True, 4_096),
        # English prose of 10 000 tokens is estimated at 14 684: no landing makes that a cut.
        (14_684, Counted(9_984, 256), None, True, None),
        (4_400, Counted(4_000, 96), 1.0, True, None),
        # Ollama's runner keeps half of the window and two tokens, or three with a first one of its own: ollama#17889,
        # #3839. Half of the window is not the window.
        (20_000, Counted(2_050, 99), None, False, 4_096),
        (20_000, Counted(4_099, 99), None, False, 8_192),
        (160_689, Counted(16_387, 500), None, False, 32_768),
        (30_000, Counted(9_218, 20), 1.0, False, 18_432),
        (6_500, Counted(4_098, 99), None, False, None),
        # Ollama leaves out whole messages, so that the count is anything under its window.
        (45_000, Counted(3_210, 99), None, True, 4_096),
        (45_000, Counted(9_001, 99), None, True, 16_384),
        (45_000, Counted(3_210, 99), None, False, None),
        (45_000, Counted(12_000, 99), None, True, None),
        (45_000, Counted(12_000, 99), 1.0, True, 16_384),
        # A ratio that JSON taught: the same estimator expects twice as many tokens of Arabic, and thrice of Hindi.
        (45_000, Counted(16_000, 99), 0.99, True, None),
        (45_000, Counted(9_001, 99), 0.99, True, 16_384),
        # What was cached is counted apart by some.
        (45_000, Counted(1_000, 99, cached=43_000), 1.0, True, None),
        (45_000, Counted(10_000, 99, cached=15_000), 1.0, True, None),
        (45_000, Counted(0, 99), 1.0, True, None),
        (4_000, Counted(500, 99), 1.0, True, None),
    ],
)
def test_a_cut_is_told_by_what_was_counted(
    estimate: int, counted: Counted, ratio: float | None, own: bool, window: int | None
) -> None:
    assert window_of_a_cut(estimate, counted, ratio, is_exact=ratio == 1.0, may_be_far=own) == window


@given(COUNTS, st.builds(Counted, COUNTS, COUNTS, COUNTS), RATIOS, st.booleans(), st.booleans())
def test_a_window_that_is_concluded_holds_what_was_counted_and_not_what_was_sent(estimate, counted, ratio, exact, own):
    window = window_of_a_cut(estimate, counted, ratio, is_exact=exact, may_be_far=own)
    if window is not None:
        assert counted.prompt <= window < estimate * (ratio or 1.0)
        assert window % 1_024 == 0
        assert window >= SMALLEST_WINDOW_TOKENS or window in (counted.prompt, counted.prompt + counted.reply)


@given(COUNTS, st.floats(0.9, 3.0), RATIOS, st.booleans(), st.booleans())
def test_an_upstream_that_counts_what_was_expected_has_cut_nothing(estimate, share, ratio, exact, own):
    prompt = int(estimate * (ratio or 1.0) * share) + 1
    assert window_of_a_cut(estimate, Counted(prompt), ratio, is_exact=exact, may_be_far=own) is None
