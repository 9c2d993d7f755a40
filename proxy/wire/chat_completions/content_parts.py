"""The parts of a content: how the core sees them, and how what it makes of them is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.conversation.message import Content, Item, Part, Words
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.media_parts import part_of, rest_of
from proxy.wire.media import attachment_of
from proxy.wire.openai_parts import as_one_text, part_from, part_in


def read_part(raw: Raw, part: Any) -> Part:
    """A part as the core sees it."""
    return part_in(raw, part, attachment_of, rest_of)


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
    text = as_one_text(written) if new.as_text and not in_text else None
    return jsontext.join_array(written) if text is None else jsontext.dump(text)


def json_of(item: Item) -> bytes:
    """The JSON of a part."""
    return part_from(item, part_of, _text_part)


def _text_part(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}
