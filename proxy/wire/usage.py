"""What an upstream counted, over several rounds of one answer.

Rule: numbers are added, whatever they are called; anything else is as the last round said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def added(before: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of two rounds together.

    >>> added({"total_tokens": 3, "details": {"cached": 1}}, {"total_tokens": 4, "details": {"cached": 2}, "x": None})
    {'total_tokens': 7, 'details': {'cached': 3}, 'x': None}
    """
    return {**before, **{name: _together(before.get(name), found) for name, found in usage.items()}}


def _together(before: Any, found: Any) -> Any:
    if isinstance(before, dict) and isinstance(found, dict):
        return added(before, found)
    if _is_number(before) and _is_number(found):
        return before + found
    return before if found is None else found


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)
