"""The upstream's counts over several rounds of one response: for the client, and for the account that pays.

Rule: as in chat completions, the client gets the size of its own prompt, because Codex decides by it when to compact;
the counts of the model's output are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.wire.chat_completions.usage import added

_OF_THE_PROMPT: Final = ("input_tokens", "input_tokens_details")
_NAMES: Final = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}
"""Names of the totals here → in the record."""


class ResponseUsage:
    """The usage of one response, round by round."""

    def __init__(self) -> None:
        self._first: Mapping[str, Any] = {}
        self._whole: Mapping[str, Any] = {}
        """Of the finished rounds."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; `usage` is what it reported, empty if it reported none."""
        self._first = self._first or usage
        self._whole = added(self._whole, usage)

    def told(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """The usage of a later round as the client gets it."""
        first, whole = self._first or usage, added(self._whole, usage)
        told = {**whole, **{name: first[name] for name in _OF_THE_PROMPT if name in first}}
        prompt, reply = told.get("input_tokens"), told.get("output_tokens")
        if isinstance(prompt, int) and isinstance(reply, int):
            told["total_tokens"] = prompt + reply
        return told

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, including this one; empty if nobody counted."""
        whole = added(self._whole, usage)
        return {told: found for name, told in _NAMES.items() if type(found := whole.get(name)) is int}
