"""Blocks of images and documents: how their content is read and written.

Rule: the other members of an old block (`cache_control`, `title`, `citations`) are copied to the new one.
https://platform.claude.com/docs/en/build-with-claude/vision,
https://platform.claude.com/docs/en/build-with-claude/pdf-support
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from proxy.core.content_types.texts import is_address, last_of
from proxy.core.conversation.message import Attachment, Route, Shape, Shown
from proxy.core.text import jsontext
from proxy.wire.media import attachment_of as attachment_of_any
from proxy.wire.media import name_in
from proxy.wire.messages.blocks import DOCUMENT, IMAGE, MARK, kind_of

_SHAPES: Final = {IMAGE: Shape.IMAGE, DOCUMENT: Shape.FILE}
_NOT_KEPT: Final = frozenset({"type", "source", "text"})
_LONG: Final = 1_000
"""Characters; a name or a word of the API has fewer."""


def attachment_of(block: Mapping[str, Any]) -> Attachment | None:
    """The content of a media block; None for text, and for a block that cannot be read."""
    kind, source = kind_of(block), block.get("source")
    shape = _SHAPES.get(kind)
    if shape is None or not isinstance(source, Mapping):
        return attachment_of_any(block)
    name = name_in(source, block)
    declared = source.get("media_type")
    declared = declared if isinstance(declared, str) else ""
    match source.get("type"):
        case "base64" if isinstance(data := source.get("data"), str):
            return Attachment(shape, data, declared, name, is_data_url=True)
        case "url" if isinstance(url := source.get("url"), str) and is_address(url):
            return Attachment(shape, address=url, declared=f"{kind}/*", name=name or last_of(url))
        case "file" if isinstance(file_id := source.get("file_id"), str):
            return Attachment(shape, address=file_id, declared=f"{kind}/*", name=name)
    return None


def rest_of(block: Mapping[str, Any]) -> bytes:
    """The members of a media block that are copied to the block that replaces it."""
    kept = {name: said for name, said in block.items() if name not in _NOT_KEPT}
    short = {name: said for name, said in kept.items() if not (isinstance(said, str) and len(said) > _LONG)}
    return jsontext.dump(short)


def block_of(shown: Shown) -> bytes:
    """A block in this API's shape. There are two kinds of media: anything that is not an image is a document."""
    kind = IMAGE if shown.route is Route.IMAGE else DOCUMENT
    if shown.content is None:
        source: dict[str, Any] = {"type": "url", "url": shown.address}
    else:
        data = base64.b64encode(shown.content).decode()
        source = {"type": "base64", "media_type": shown.found.mime, "data": data}
    return jsontext.dump({"type": kind, "source": source, **_members(shown.like)})


def mark_in(like: bytes | None) -> dict[str, Any]:
    """The cache mark among the other members of an old block."""
    found = _members(like)
    return {MARK: found[MARK]} if found.get(MARK) is not None else {}


def _members(like: bytes | None) -> dict[str, Any]:
    found = jsontext.opened(like) if like is not None else None
    return {name: said for name, said in found.items() if name not in _NOT_KEPT} if isinstance(found, dict) else {}
