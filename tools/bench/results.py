"""The results: samples by row and contender, and why a figure is missing."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Results:
    """Filled by the session, read by the report."""

    samples: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Samples by row and contender, in the row's unit; one per round."""
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    """Faults in the responses, by row and contender."""

    def add(self, row: str, contender: str, sample: float) -> None:
        self.samples[row, contender].append(sample)

    def median(self, row: str, contender: str) -> float | None:
        taken = self.samples.get((row, contender))
        return statistics.median(taken) if taken else None

    def spread(self, row: str, contender: str) -> tuple[float, float] | None:
        """The least and the largest sample."""
        taken = self.samples.get((row, contender))
        return (min(taken), max(taken)) if taken else None
