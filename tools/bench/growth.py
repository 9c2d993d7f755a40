"""Cost of a growing conversation beyond forwarding it, computed from the CPU readings of its turns.

A proxy that examines everything again in each turn does work that grows with the square of the turns (exponent 2); one
that examines only what is new does the same work in each (exponent 1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise


def of_each_turn(readings: Sequence[float]) -> list[float]:
    """CPU seconds of each turn from readings before the first, after each, and once more after the last has settled."""
    turns = [after - before for before, after in pairwise(readings)]
    settled = turns.pop()
    turns[-1] += settled
    return turns


def typical(runs: Sequence[Sequence[float]]) -> list[float]:
    """The run whose total is the median of all, the lower one of two.

    Not the median of each turn: each run is another conversation, whose cuts fall on other turns, so that no turn would
    have one.
    """
    return list(sorted(runs, key=sum)[(len(runs) - 1) // 2])


def beyond(turns: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Running totals of the cost of `turns` beyond `floor`, in seconds."""
    return list(accumulate(own - other for own, other in zip(turns, floor, strict=True)))


def exponent(totals: Sequence[float]) -> float | None:
    """The k of total ~ turn**k, by least squares on the logarithms over the second half of the turns.

    The second half, because the first is start-up and fixed costs and would flatter. None if a total there is not
    positive: then there is no growth to measure.

    >>> round(exponent([turn**2 for turn in range(1, 101)]), 3)
    2.0
    >>> round(exponent([5 * turn for turn in range(1, 101)]), 3)
    1.0
    """
    half = len(totals) // 2
    points = [(turn, total) for turn, total in enumerate(totals, start=1) if turn > half]
    if any(total <= 0 for _, total in points):
        return None
    logs_of_turns = [math.log(turn) for turn, _ in points]
    logs_of_totals = [math.log(total) for _, total in points]
    return statistics.linear_regression(logs_of_turns, logs_of_totals).slope
