"""How far our estimate of tokens is off for one model, out of what its upstream counts.

Rule: the ratio moves in coarse steps, as every step moves the cuts of running conversations; what cannot be a
tokenizer's doing says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

RATIO_STEP: Final = 0.05
MIN_SAMPLES: Final = 3
"""Answers before a ratio is adopted."""
MIN_SAMPLE_TOKENS: Final = 1_000
"""Shorter prompts are mostly frames."""
PLAUSIBLE: Final = (0.5, 3.0)
"""Tokenizers differ by less. What lies outside is something else: counts without what was cached, a prompt that the
upstream has cut, another model behind a router."""
_SMOOTHING: Final = 0.3
"""Weight of the newest sample."""
_SILENT_SHARE: Final = 0.7
"""Of a calibrated estimate: an upstream that counted so little has cut the prompt itself."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The ratio as it is seen, the upstream's tokens for one of ours."""

    count: int
    mean: float
    """Smoothed."""

    def with_sample(self, ratio: float) -> Samples:
        """After one more answer."""
        return Samples(self.count + 1, self.mean + _SMOOTHING * (ratio - self.mean))

    def news(self, adopted: float | None) -> float | None:
        """The ratio to adopt in the place of this one (None: none is adopted yet); None when that may stay.

        Under-counting is worth moving the cuts of running conversations, as it ends in refusals; over-counting by two
        steps is, as it wastes context. In between it may wander.
        """
        if self.count < MIN_SAMPLES:
            return None
        if adopted is not None and adopted - 2 * RATIO_STEP <= self.mean <= adopted:
            return None
        return _rounded_up(self.mean)


def is_plausible(ratio: float) -> bool:
    """Whether tokenizers can differ so much."""
    return PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]


def tells_of_truncation(ratio: float, adopted: float | None) -> bool:
    """Whether an upstream that counts so little has cut the prompt; `adopted` None: nothing was measured yet."""
    return ratio < (PLAUSIBLE[0] if adopted is None else adopted * _SILENT_SHARE)


def _rounded_up(ratio: float) -> float:
    """To a whole step; a trillionth over one is a rounding error.

    >>> _rounded_up(1.0), _rounded_up(1.01), _rounded_up(1.1500000000000001)
    (1.0, 1.05, 1.15)
    """
    return round(math.ceil(round(ratio / RATIO_STEP, 6)) * RATIO_STEP, 2)
