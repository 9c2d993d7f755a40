"""How far our token estimate is off for one model, measured against its upstream's counts.

Rule: the ratio adapts finely while few samples exist and stays quiet afterwards, as each change moves the cuts of
running conversations. A difference too large for a tokenizer is ignored.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

RATIO_STEP: Final = 0.01
"""An estimate that is 1 % too high leaves 1 % of the room unused, a good third of an exchange."""
_UNDER_COUNT: Final = 0.01
"""The whole margin of an exact count: an error this small causes no refusal."""
_SETTLED_SAMPLES: Final = 50
"""From this many on, the ratio is lowered only if it wastes more than _QUIET of the room."""
_EARLY, _QUIET = 0.02, 0.05
_FORGOTTEN: Final = 0.001
"""Subtracted from the highest ratio at each response: fifty turns of one conversation lower nothing for the others."""
MIN_SAMPLES: Final = 3
"""Responses before a ratio is adopted."""
MIN_SAMPLE_TOKENS: Final = 1_000
"""Shorter prompts consist mostly of frames."""
PLAUSIBLE: Final = (0.5, 3.0)
"""Tokenizers differ by less. A ratio outside has another cause: counts without the cached tokens, a prompt that the
upstream has cut, another model behind a router."""
_SMOOTHING: Final = 0.3
"""Weight of the newest sample."""
_SILENT_SHARE: Final = 0.7
"""Of a calibrated estimate: an upstream that counted less than this has cut the prompt itself."""


class Samples(Struct, frozen=True):
    """The measured ratio: the upstream's tokens for one of ours."""

    count: int
    mean: float
    """Smoothed."""
    peak: float = 0.0
    """The highest mean, slowly forgotten."""

    def with_sample(self, ratio: float) -> Samples:
        """After one more response."""
        mean = self.mean + _SMOOTHING * (ratio - self.mean)
        return Samples(self.count + 1, mean, max(mean, self._highest - _FORGOTTEN))

    def news(self, adopted: float | None) -> float | None:
        """The ratio to adopt instead of `adopted` (None: none is adopted yet); None if that may stay.

        Under-counting is worth moving the cuts of running conversations, as it ends in refusals. Over-counting wastes
        context: it is worth it, too, once no conversation has needed the adopted ratio for long.
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
    """Whether tokenizers can differ this much."""
    return PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]


def tells_of_truncation(ratio: float, adopted: float | None) -> bool:
    """Whether an upstream that counts so few tokens has cut the prompt; `adopted` None: nothing was measured yet."""
    return ratio < (PLAUSIBLE[0] if adopted is None else adopted * _SILENT_SHARE)


def _rounded_up(ratio: float) -> float:
    """Up to a whole step; a trillionth above a step is a rounding error.

    >>> _rounded_up(1.0), _rounded_up(1.01), _rounded_up(1.1500000000000001)
    (1.0, 1.01, 1.15)
    """
    return round(math.ceil(round(ratio / RATIO_STEP, 6)) * RATIO_STEP, 2)
