"""A line over time as an SVG, which a page of Markdown shows.

Rule: the axis of values begins at nought, so that a slope is as steep as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 720, 240, 64, 40, 12
_STEPS: Final = (1, 2, 5)


def graph(points: Sequence[tuple[float, float]], across: str, up: str) -> str:
    """Points in the order of their first number; `across` and `up` name the axes."""
    right, top = max(x for x, _ in points) or 1.0, max(y for _, y in points) * 1.1 or 1.0
    wide, high = _WIDTH - _LEFT - _ABOVE, _HEIGHT - _BELOW - _ABOVE

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + x / right * wide, _ABOVE + high - y / top * high

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    rows = [
        f'<path d="M{_LEFT} {place(0, value)[1]:.1f}h{wide}" stroke="#8884"/>'
        f'<text x="{_LEFT - 8}" y="{place(0, value)[1] + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in _marks(top)
    ]
    columns = [
        f'<text x="{place(value, 0)[0]:.1f}" y="{_HEIGHT - _BELOW + 18}" text-anchor="middle">{value:g}</text>'
        for value in _marks(right)
    ]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">
<title>{up} over {across}</title>
<g font-family="sans-serif" font-size="12" fill="#777">
{chr(10).join([*rows, *columns])}
<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{across}</text>
<text transform="translate(14 {_ABOVE + high / 2:.0f}) rotate(-90)" text-anchor="middle">{up}</text>
</g>
<polyline fill="none" stroke="#2a7ae2" stroke-width="2" points="{line}"/>
</svg>
"""


def _marks(most: float) -> list[float]:
    """At most six round numbers from zero up to `most`.

    >>> _marks(19), _marks(230)
    ([0.0, 5.0, 10.0, 15.0], [0.0, 50.0, 100.0, 150.0, 200.0])
    """
    step = next(s * 10.0**p for p in range(-3, 9) for s in _STEPS if most / (s * 10.0**p) < 6)
    return [step * number for number in range(int(most / step) + 1)]
