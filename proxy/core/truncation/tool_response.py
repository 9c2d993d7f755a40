"""The common shape of tool results: `{"status": …, "data": …, "text"?, "stats"?, "context"?, "error"?}`.

Rule: such a result stays JSON in that shape, whatever is written into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

_MEMBERS: Final = frozenset({"status", "data"})
"""These distinguish the shape from other JSON."""


def tool_response(text: str) -> Mapping[str, Raw] | None:
    """The members of a result in this shape; None if the text is something else."""
    found = json_object(text)
    return found if found is not None and found.keys() >= _MEMBERS else None


def json_object(text: str) -> Mapping[str, Raw] | None:
    """The members of a result that is a JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return jsontext.members(text.encode("utf-8", "surrogatepass"))
    except jsontext.NotJson:
        return None


def asks_to_stay(found: Mapping[str, Raw]) -> bool:
    """Whether a JSON object itself asks to be left alone: `{"context": {"truncation_skip": true}}`."""
    context = jsontext.opened(found.get("context"))
    return isinstance(context, dict) and context.get("truncation_skip") is True


def with_note(response: Mapping[str, Raw], note: str) -> str:
    """The result with a note before its `text`.

    >>> with_note(tool_response('{"status": "ok", "data": 1, "text": "done"}'), "Mind this. ")
    '{"status":"ok","data":1,"text":"Mind this. done"}'
    """
    said = jsontext.value(response.get("text", b"null"))
    text = jsontext.dump(note + said if isinstance(said, str) else note)
    return jsontext.join_object(dict(response) | {"text": text}).decode("utf-8", "surrogatepass")
