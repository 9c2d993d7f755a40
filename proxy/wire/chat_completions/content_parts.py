"""The parts of a content: how the core sees them, and how what it makes of them is written.

Rule: a part keeps its bytes until it is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.core.conversation.message import Carried, Content, Item, Part, Shown, Words
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.media_parts import part_of, rest_of
from proxy.wire.media_shapes.parts import attachment_of

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
    attachment = attachment_of(part)
    return Part(kept, attachment=attachment, rest=b"" if attachment is None else rest_of(part))


def replacement(new: Content, *, in_text: bool) -> bytes | None:
    """The JSON of a new content. `in_text`: whether it replaces a plain text, and stays one if it can."""
    if new is None:
        return None
    if isinstance(new, str):
        return jsontext.dump(new)
    first = new.items[0]
    if in_text and len(new.items) == 1 and isinstance(first, Words):
        return jsontext.dump(first.text)
    written = [json_of(item) for item in new.items]
    text = _as_one_text(written) if new.as_text and not in_text else None
    return jsontext.join_array(written) if text is None else jsontext.dump(text)


def json_of(item: Item) -> bytes:
    """The JSON of a part."""
    if isinstance(item, Carried):
        return item.raw
    if isinstance(item, Shown):
        return jsontext.dump(part_of(item))
    like = jsontext.opened(item.like) if item.like is not None else None
    if isinstance(like, dict):
        return jsontext.dump({**like, "text": item.text})
    return jsontext.dump({"type": "text", "text": item.text})


def _as_one_text(items: Sequence[bytes]) -> str | None:
    """The text that parts form together; None if one is not plain text."""
    parts = [jsontext.value(item) for item in items]
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == _PLAIN_PART]
    return "\n".join(texts) if len(texts) == len(parts) and all(isinstance(text, str) for text in texts) else None
