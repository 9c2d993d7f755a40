"""What the parts of a content have in common in OpenAI's two APIs, which name them differently.

Rule: a part keeps its bytes until it is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxy.core.conversation.message import Attachment, Carried, Item, Part, Shown
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

_PLAIN_PART: Final = frozenset({"type", "text"})


def part_in(
    raw: Raw,
    part: Any,
    attachment_of: Callable[[Mapping[str, Any]], Attachment | None],
    rest_of: Callable[[Mapping[str, Any]], bytes],
) -> Part:
    """A part as the core sees it. `attachment_of`: the media in a part; `rest_of`: the part without them."""
    kept = bytes(raw)
    if isinstance(part, str):
        return Part(kept, part)
    if not isinstance(part, dict):
        return Part(kept)
    if isinstance(text := part.get("text"), str):
        return Part(kept, text)
    attachment = attachment_of(part)
    return Part(kept, attachment=attachment, rest=b"" if attachment is None else rest_of(part))


def part_from(
    item: Item, media_part: Callable[[Shown], Mapping[str, Any]], text_part: Callable[[str], Mapping[str, Any]]
) -> bytes:
    """The JSON of a part. A text keeps the members of the one that it replaces."""
    if isinstance(item, Carried):
        return item.raw
    if isinstance(item, Shown):
        return jsontext.dump(media_part(item))
    like = jsontext.opened(item.like) if item.like is not None else None
    return jsontext.dump({**like, "text": item.text} if isinstance(like, dict) else text_part(item.text))


def as_one_text(items: Sequence[bytes]) -> str | None:
    """The text that parts form together; None if one is not plain text."""
    parts = [jsontext.value(item) for item in items]
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == _PLAIN_PART]
    return "\n".join(texts) if len(texts) == len(parts) and all(isinstance(text, str) for text in texts) else None
