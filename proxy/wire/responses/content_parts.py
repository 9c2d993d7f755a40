"""The parts of a message or an output: how the core sees them, and how what it makes of them is written.

Rule: a part keeps its bytes until it is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.core.conversation.message import Carried, Item, Part, Shown
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.responses.media_parts import content_of, part_of, rest_of

_PLAIN_PART: Final = frozenset({"type", "text"})


def read_part(raw: Raw, part: Any) -> Part:
    """A part as the core sees it."""
    kept = bytes(raw)
    if isinstance(part, str):
        return Part(kept, part)
    if not isinstance(part, dict):
        return Part(kept)
    if isinstance(text := part.get("text"), str):
        return Part(kept, text)
    attachment = content_of(part)
    return Part(kept, attachment=attachment, rest=b"" if attachment is None else rest_of(part))


def json_of(item: Item, role: str) -> bytes:
    """The JSON of a part. The model's words have parts of their own: `output_text`."""
    if isinstance(item, Carried):
        return item.raw
    if isinstance(item, Shown):
        return jsontext.dump(part_of(item))
    like = jsontext.opened(item.like) if item.like is not None else None
    if isinstance(like, dict):
        return jsontext.dump({**like, "text": item.text})
    if role == "assistant":
        return jsontext.dump({"type": "output_text", "text": item.text, "annotations": []})
    return jsontext.dump({"type": "input_text", "text": item.text})


def as_one_text(items: Sequence[bytes]) -> str | None:
    """The text that parts form together; None if one is not plain text."""
    parts = [jsontext.value(item) for item in items]
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == _PLAIN_PART]
    return "\n".join(texts) if len(texts) == len(parts) and all(isinstance(text, str) for text in texts) else None
