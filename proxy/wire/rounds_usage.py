"""The upstream's counts over several rounds of one response: for the client, and for the account that pays.

Rule: the client gets the size of its own prompt, because agents decide by it when to compact: the prompt's counts are
those of the first round, whose prompt was the client's. The counts of the model's output are added up, and so is the
cost. The sum of all rounds is for the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar


class RoundsUsage:
    """The usage of one response, round by round; an API says what its members are called."""

    totals_of: ClassVar[Mapping[str, str]]
    """The API's names of the prompt's, the reply's and all tokens, in this order → those in the record."""
    of_the_prompt: ClassVar[re.Pattern[str]]
    """Matches the names of everything that counts the prompt."""

    def __init__(self) -> None:
        self._first: Mapping[str, Any] = {}
        self._whole: Mapping[str, Any] = {}
        """Of the finished rounds."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; `usage` is its last one, empty if there was none."""
        self._first = self._first or usage
        self._whole = added(self._whole, usage)

    def told(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """The usage of a later round as the client gets it."""
        first, whole = self._first or usage, added(self._whole, usage)
        told = {**whole, **{name: found for name, found in first.items() if self.of_the_prompt.fullmatch(name)}}
        *parts, total = self.totals_of
        counted: list[Any] = [told[name] for name in parts if _is_number(told.get(name))]
        if len(counted) == len(parts) and _is_number(told.get(total)):
            told[total] = sum(counted)
        return told

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, including this one; empty if nobody counted."""
        whole = added(self._whole, usage)
        return {name: found for own, name in self.totals_of.items() if type(found := whole.get(own)) is int}


def added(before: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of two rounds together: numbers are added, anything else is taken from the last one.

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
