"""Decides when measurements change what is known about a model: how far our token estimate is off.

Rule: the median of the latest samples raises a ratio, so that a few odd requests change nothing; only all of many lower
it, as each change moves the cuts of running conversations. A difference too large for a tokenizer is ignored.
"""

from __future__ import annotations

import math
import statistics
from typing import Final

from msgspec import Struct

RATIO_STEP: Final = 0.01
"""An estimate that is 1 % too high leaves 1 % of the room unused, a good third of an exchange."""
_UNDER_COUNT: Final = 0.01
"""The whole margin of an exact count: an error this small causes no refusal."""
_WASTED: Final = 0.05
"""Share of the room: a ratio that is too high is lowered only if it wastes more."""
_CONTRADICTS: Final = 0.8
"""Share of a ratio: samples below it prove that it was learned from something else. One is enough if
the ratio is above 1 and no refusal has confirmed it."""
MIN_SAMPLES: Final = 3
"""Responses before a ratio is adopted."""
LATEST: Final = 9
"""The samples that may raise a ratio: four odd ones do not move the middle, and five of another kind of content do."""
MAX_SAMPLES: Final = 50
"""Samples that are remembered. All of them must be lower before a ratio is lowered, also in a process that has just
started: for one conversation, it would soon be raised again for the next, and each change moves the cuts of both. With
nine, 58 cuts instead of 51 in the replay at 32 000 (docs/decisions/0003-what-to-give-up.md)."""
MIN_SAMPLE_TOKENS: Final = 1_000
"""Shorter prompts consist mostly of frames."""
PLAUSIBLE: Final = (0.5, 3.0)
"""Tokenizers differ by less. A ratio outside has another cause: counts without the cached tokens, a prompt that the
upstream has cut, another model behind a router."""
_SILENT_SHARE: Final = 0.7
"""Share of a calibrated estimate: an upstream that may cut prompts and counted less has cut this one."""


class Samples(Struct, frozen=True):
    """Measured ratios: the upstream's tokens for one of ours."""

    ratios: tuple[float, ...] = ()
    """The latest, the oldest first."""
    may_be_dense: bool = False
    """Whether a refusal has shown content of which the upstream counts more; then the largest sample counts."""

    def with_sample(self, ratio: float, *, is_refused: bool = False) -> Samples:
        """The samples after one more response, or refusal."""
        return Samples((*self.ratios, ratio)[-MAX_SAMPLES:], self.may_be_dense or is_refused)

    def news(self, adopted: float | None, needed: int = MIN_SAMPLES) -> float | None:
        """The ratio to adopt instead of `adopted` (None: none is adopted yet); None if that may stay.

        Under-counting is worth moving the cuts of running conversations, as it ends in refusals. Over-counting wastes
        context: it is worth it only if it wastes much.
        """
        if len(self.ratios) < needed:
            return None
        latest = self.ratios[-LATEST:]
        found = max(latest) if self.may_be_dense else statistics.median_high(latest)
        if adopted is None or found > adopted + _UNDER_COUNT:
            return rounded_up(found)
        highest = max(latest)
        if highest >= adopted * _CONTRADICTS:
            highest = max(self.ratios) if len(self.ratios) == MAX_SAMPLES else adopted
        return rounded_up(highest) if highest < adopted - _WASTED else None


def is_plausible(ratio: float) -> bool:
    """Whether tokenizers can differ this much."""
    return PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]


def contradicts(ratio: float, adopted: float) -> bool:
    """Whether one accepted prompt disproves a ratio that makes prompts look longer than they are."""
    return adopted > 1 and ratio < adopted * _CONTRADICTS


def indicates_truncation(ratio: float, adopted: float | None) -> bool:
    """Whether an upstream that counts so few tokens has cut the prompt; `adopted` None: nothing was measured yet, or it
    cuts none."""
    return ratio < (PLAUSIBLE[0] if adopted is None else adopted * _SILENT_SHARE)


def rounded_up(ratio: float) -> float:
    """Up to a whole step; a trillionth above a step is a rounding error.

    >>> rounded_up(1.0), rounded_up(1.01), rounded_up(1.1500000000000001)
    (1.0, 1.01, 1.15)
    """
    return round(math.ceil(round(ratio / RATIO_STEP, 6)) * RATIO_STEP, 2)
