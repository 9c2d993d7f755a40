"""Sizes of a request that an upstream may have a limit for, by name; read off the JSON of any API.

Rule: a size is what the request really has: pictures are opened for their pixels, base64 counts as the bytes that it
stands for.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Body = Mapping[str, Any]
Items = Sequence[Any]
IMAGES: Final = ("image", "image_url", "input_image", "computer_screenshot")
DOCUMENTS: Final = ("document", "file", "input_file")
SOUNDS: Final = ("input_audio", "audio")
CALLS: Final = ("tool_use", "function_call", "custom_tool_call")
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def _walk(value: Any) -> Iterator[Mapping[str, Any]]:
    """Each object, the outer one first."""
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def media(items: Items, kinds: Sequence[str]) -> list[bytes]:
    """The content of each medium of these types; empty, where it is an address or a file id."""
    found: list[bytes] = []
    for block in _walk(list(items)):
        if block.get("type") in kinds:
            found.append(_content(block))
        elif IMAGES[0] in kinds and isinstance(block.get("images"), list):  # Ollama's member
            found += [_decoded(image) for image in block["images"] if isinstance(image, str)]
    return found


def _content(block: Mapping[str, Any]) -> bytes:
    texts = (one for inner in _walk(dict(block)) for one in inner.values() if isinstance(one, str))
    return max((_decoded(text) for text in texts), key=len)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        return b""


def _pixels(picture: bytes) -> int:
    """The longer side of a PNG."""
    return max(struct.unpack(">II", picture[16:24])) if picture.startswith(_PNG) and len(picture) >= 24 else 0


def _texts(value: Any) -> Iterator[str]:
    """Every text that is no medium."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if value.get("type") not in (*IMAGES, *DOCUMENTS, *SOUNDS):
            for name, inner in value.items():
                if name not in ("type", "id", "images"):
                    yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _most_calls(items: Items) -> int:
    """Of one message, or of items in a row."""
    most = row = 0
    for item in items:
        made = len(item.get("tool_calls") or ()) + sum(block.get("type") in CALLS for block in _walk(item))
        row = row + made if item.get("type") in CALLS else made
        most = max(most, row)
    return most


def _parts(item: Any) -> int:
    content = item.get("content") if isinstance(item, Mapping) else None
    return len(content) if isinstance(content, list) else 1


MEASURES: Final[Mapping[str, Callable[[Body, Items], float]]] = {
    "images": lambda _, items: len(media(items, IMAGES)),
    "documents": lambda _, items: len(media(items, DOCUMENTS)),
    "sounds": lambda _, items: len(media(items, SOUNDS)),
    "media": lambda _, items: len(media(items, (*IMAGES, *DOCUMENTS))),
    "pixels": lambda _, items: max(map(_pixels, media(items, IMAGES)), default=0),
    "image bytes": lambda _, items: max(map(len, media(items, IMAGES)), default=0),
    "media bytes": lambda _, items: sum(map(len, media(items, (*IMAGES, *DOCUMENTS, *SOUNDS)))),
    "messages": lambda _, items: len(items),
    "calls": lambda _, items: _most_calls(items),
    "parts": lambda _, items: max(map(_parts, items), default=0),
    "tools": lambda body, _: len(body.get("tools") or ()),
    "string": lambda _, items: max(map(len, _texts(list(items))), default=0),
    "characters": lambda body, _: sum(map(len, _texts(body))),
    "marks": lambda body, _: json.dumps(body).count('"cache_control"'),
}
