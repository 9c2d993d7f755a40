"""Calls in a message of chat completions: of functions, and of custom tools.

Rule: nothing here raises, whatever a call contains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.core.conversation.message import ToolCall
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

MAX_CALLS: Final = 1_000
"""In one message that is compared with what a client sends back."""


def calls_in(raw: Raw) -> tuple[ToolCall, ...]:
    """The calls in a list of calls."""
    found = jsontext.opened(raw)
    listed = found if isinstance(found, list) else []
    return tuple(
        ToolCall(id=str(call.get("id") or ""), name=name_of(call)) for call in listed if isinstance(call, dict)
    )


def name_of(tool: Mapping[str, Any]) -> str:
    """The name in a tool, or in a call of one: of a function, a custom tool, or of itself. Empty if there is none.

    >>> name_of({"function": {"name": "ls"}}), name_of({"custom": {"name": "sh"}}), name_of({"name": "cat"})
    ('ls', 'sh', 'cat')
    """
    inner = tool.get("function") or tool.get("custom")
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    return name if isinstance(name, str) else ""


def meant_by(calls: Sequence[Raw]) -> list[list[Any]]:
    """Id, name and arguments of each call, opened, so that their spelling does not matter."""
    return [_meant(jsontext.opened(raw)) for raw in calls[:MAX_CALLS]]


def _meant(call: Any) -> list[Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return [call]
    arguments = function.get("arguments")
    opened = jsontext.opened(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else None
    return [call.get("id"), function.get("name"), arguments if opened is None else opened]


def texts_of_call(call: Any) -> Iterator[str]:
    """Name and arguments of a call to a function, or to a custom tool, whose `input` is free text. Mistral's API takes
    arguments as an object, too (https://docs.mistral.ai/api); a model reads them as JSON.

    >>> list(texts_of_call({"function": {"name": "ls", "arguments": {"path": "."}}}))
    ['ls', '{"path":"."}']
    """
    for kind in ("function", "custom") if isinstance(call, dict) else ():
        called = call.get(kind)
        for name in ("name", "arguments", "input"):
            text = called.get(name) if isinstance(called, dict) else None
            if isinstance(text, str):
                yield text
            elif isinstance(text, dict):
                yield jsontext.dump(text).decode()
