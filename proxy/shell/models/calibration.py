"""How far our estimate of tokens is off for one model, out of what its upstream counts.

Rule: the ratio is fine while little was seen, and then quiet, as every move of it moves the cuts of running
conversations; what cannot be a tokenizer's doing says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

RATIO_STEP: Final = 0.01
"""An estimate that is a hundredth too high leaves a hundredth of the room unused, a good third of an exchange."""
_UNDER_COUNT: Final = 0.01
"""All of the margin of an exact count: so much too little ends in no refusal."""
_SETTLED_SAMPLES: Final = 50
"""From then on the ratio is lowered only where it wastes more than _QUIET of the room."""
_EARLY, _QUIET = 0.02, 0.05
_FORGOTTEN: Final = 0.001
"""With each answer, of the highest ratio: fifty turns of one conversation lower nothing for the others."""
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
    peak: float = 0.0
    """The highest mean, slowly forgotten."""

    def with_sample(self, ratio: float) -> Samples:
        """After one more answer."""
        mean = self.mean + _SMOOTHING * (ratio - self.mean)
        return Samples(self.count + 1, mean, max(mean, self._highest - _FORGOTTEN))

    def news(self, adopted: float | None) -> float | None:
        """The ratio to adopt in the place of this one (None: none is adopted yet); None when that may stay.

        Under-counting is worth moving the cuts of running conversations, as it ends in refusals. Over-counting wastes
        context: it is, too, when no conversation for long needed what is adopted.
        """
        if self.count < MIN_SAMPLES:
            return None
        highest = self._highest
        if adopted is None or self.mean > adopted + _UNDER_COUNT:
            return _rounded_up(highest)
        unused = _EARLY if self.count < _SETTLED_SAMPLES else _QUIET
        return _rounded_up(highest) if highest < adopted - unused else None

    @property
    def _highest(self) -> float:
        return max(self.mean, self.peak)


def is_plausible(ratio: float) -> bool:
    """Whether tokenizers can differ so much."""
    return PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]


def tells_of_truncation(ratio: float, adopted: float | None) -> bool:
    """Whether an upstream that counts so little has cut the prompt; `adopted` None: nothing was measured yet."""
    return ratio < (PLAUSIBLE[0] if adopted is None else adopted * _SILENT_SHARE)


def _rounded_up(ratio: float) -> float:
    """To a whole step; a trillionth over one is a rounding error.

    >>> _rounded_up(1.0), _rounded_up(1.01), _rounded_up(1.1500000000000001)
    (1.0, 1.01, 1.15)
    """
    return round(math.ceil(round(ratio / RATIO_STEP, 6)) * RATIO_STEP, 2)
