"""The upstream's counts over several rounds of one response: for the client, and for the account that pays.

Rule: the client gets the size of its own prompt, because agents decide by it when to compact: the prompt's counts are
those of the first round. The counts of the model's output are added up. The sum of all rounds is for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.wire.messages.counted import numbers_in, prompt_in

_REPLY: Final = "output_tokens"


class RoundsUsage:
    """The usage of one response, round by round."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._prompt = self._reply = 0
        """Of the finished rounds."""
        self._is_over = False
        """Whether any round is finished."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; `usage` is all that it reported."""
        counted = numbers_in(usage)
        if not self._is_over:
            self._first, self._is_over = counted, True
        self._prompt += prompt_in(counted) or 0
        self._reply += counted.get(_REPLY, 0)

    def told(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The usage of a later round, or a part of that usage, as the client gets it."""
        told = {name: self._first.get(name, found) if type(found) is int else found for name, found in usage.items()}
        if _REPLY in usage:
            told[_REPLY] = self._reply + numbers_in(usage).get(_REPLY, 0)
        return told

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, including this one, under the names of all wires; empty if nobody counted."""
        counted = numbers_in(usage)
        prompt, reply = self._prompt + (prompt_in(counted) or 0), self._reply + counted.get(_REPLY, 0)
        if not prompt and not reply:
            return {}
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
