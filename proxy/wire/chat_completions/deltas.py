"""The deltas of a streamed response: the call that each belongs to, and the message that they form together.

Rule: a delta belongs to the call at its index; another id at the same index is another call, because Ollama used to
number every parallel call 0 (https://github.com/ollama/ollama/issues/15457), or none (…/7881).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.assistant import called

_FIRST_STANDS: Final = frozenset({"id", "type", "index", "role", "name"})
"""Strings that servers repeat whole; other strings arrive in pieces."""


class CallOrder:
    """Numbers the calls of one response in the order in which they begin."""

    def __init__(self) -> None:
        self._standing: dict[int, tuple[int, str]] = {}
        """Index in the stream → number and id of the newest call there."""
        self.count = 0

    def number_of(self, item: Mapping[str, Any], index: int) -> int:
        """The number of the call that an item of `tool_calls` belongs to; a new one if the item begins a call."""
        name, call_id = called(item), item.get("id")
        standing = self._standing.get(index)
        begins = standing is None or (name and isinstance(call_id, str) and call_id and call_id != standing[1])
        if standing is None or begins:
            standing = (self.count, call_id if isinstance(call_id, str) else "")
            self._standing[index] = standing
            self.count += 1
        return standing[0]


def index_of(item: Mapping[str, Any], position: int) -> int:
    """The index of a call according to its delta; an item without an index counts by its position."""
    index = item.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else position


def choice_of(chunk: Any) -> Mapping[str, Any] | None:
    """The one choice of a chunk; None if it has none or several, or is something else."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    found = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return found if isinstance(found, dict) else None


def delta_of(choice: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The delta of a choice; empty if there is none."""
    found = choice.get("delta") if choice is not None else None
    return found if isinstance(found, dict) else {}


def listed_calls(delta: Mapping[str, Any]) -> list[Any]:
    """The `tool_calls` of a delta."""
    found = delta.get("tool_calls")
    return found if isinstance(found, list) else []


def assembled(chunks: Iterable[Any]) -> dict[str, Raw]:
    """The members of the message that these chunks' deltas form, as a response without streaming contains them."""
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    order = CallOrder()
    for chunk in chunks:
        delta = delta_of(choice_of(chunk))
        _merge(message, {name: found for name, found in delta.items() if name != "tool_calls"})
        for position, item in enumerate(listed_calls(delta)):
            if isinstance(item, dict):
                number = order.number_of(item, index_of(item, position))
                if number == len(calls):
                    calls.append({})
                _merge(calls[number], {name: found for name, found in item.items() if name != "index"})
    if calls:
        message["tool_calls"] = calls
    return {name: jsontext.dump(found) for name, found in message.items()}


def _merge(whole: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, found in delta.items():
        before = whole.get(name)
        if before is None:
            whole[name] = dict(found) if isinstance(found, dict) else found
        elif isinstance(before, str) and isinstance(found, str):
            whole[name] = (before or found) if name in _FIRST_STANDS else before + found
        elif isinstance(before, dict) and isinstance(found, dict):
            _merge(before, found)
        elif isinstance(before, list) and isinstance(found, list):
            whole[name] = before + found
        elif found is not None and not isinstance(before, (str, dict)):  # those are merged, never replaced
            whole[name] = found
