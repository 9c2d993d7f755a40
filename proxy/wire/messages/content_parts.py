"""The blocks of a content: how the core sees them, and how what it makes of them is written.

Rule: a block keeps its bytes until it is replaced; a new text takes over the cache mark of what it replaces.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.conversation.message import Carried, Item, Part, Route, Shown
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.messages.blocks import IMAGE, MARK, kind_of, text_in
from proxy.wire.messages.media_parts import attachment_of, block_of, mark_in, rest_of

_IMAGE: Final = f'"{IMAGE}"'.encode()
_MARK: Final = f'"{MARK}"'.encode()


def read_part(raw: Raw, block: Any) -> Part:
    """A block as the core sees it."""
    kept = bytes(raw)
    if not isinstance(block, dict):
        return Part(kept)
    if (text := text_in(block)) is not None:
        return Part(kept, text)
    attachment = attachment_of(block)
    return Part(kept, attachment=attachment, rest=b"" if attachment is None else rest_of(block))


def is_image(item: Item) -> bool:
    """Whether a block is, or will be, an image."""
    if isinstance(item, Shown):
        return item.route is Route.IMAGE
    return isinstance(item, Carried) and _IMAGE in item.raw and kind_of(jsontext.opened(item.raw)) == IMAGE


def json_of(item: Item) -> bytes:
    """The JSON of a block."""
    if isinstance(item, Carried):
        return item.raw
    if isinstance(item, Shown):
        return block_of(item)
    like = jsontext.opened(item.like) if item.like is not None else None
    if isinstance(like, dict) and text_in(like) is not None:
        return jsontext.dump({**like, "text": item.text})
    return jsontext.dump({"type": "text", "text": item.text, **mark_in(item.instead_of)})


def markable(raw: bytes) -> bytes:
    """A block, without its cache mark if it is an empty text, which may not have one."""
    block = jsontext.opened(raw) if _MARK in raw else None
    if not isinstance(block, dict) or text_in(block) != "":
        return raw
    return jsontext.dump({name: said for name, said in block.items() if name != MARK})
