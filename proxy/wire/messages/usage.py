"""What an upstream counted, over several rounds of one answer: for the client, and for who pays.

Rule: the client is told of a prompt that it has, as agents decide by it when to compact: what counts the prompt is as
the first round said. What the model wrote is added up. The sum of all rounds is for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.wire.messages.counted import numbers_in, prompt_in

_REPLY: Final = "output_tokens"


class RoundsUsage:
    """The usage of one answer, round by round."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._prompt = self._reply = 0
        """Of the rounds that are over."""
        self._is_over = False
        """Whether any is."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; what it said of its usage."""
        counted = numbers_in(usage)
        if not self._is_over:
            self._first, self._is_over = counted, True
        self._prompt += prompt_in(counted) or 0
        self._reply += counted.get(_REPLY, 0)

    def told(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The usage of a later round, or of a part of it, as the client gets it."""
        told = {name: self._first.get(name, found) if type(found) is int else found for name, found in usage.items()}
        if _REPLY in usage:
            told[_REPLY] = self._reply + numbers_in(usage).get(_REPLY, 0)
        return told

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, with this one, as all wires name them; empty when nobody counted."""
        counted = numbers_in(usage)
        prompt, reply = self._prompt + (prompt_in(counted) or 0), self._reply + counted.get(_REPLY, 0)
        if not prompt and not reply:
            return {}
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
