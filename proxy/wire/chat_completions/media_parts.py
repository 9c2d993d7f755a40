"""The parts of a message that contain media, in OpenAI's shape.

Rule: anything else that an old part says about its content (`detail`) is copied to the new one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from proxy.core.conversation.message import Route, Shown
from proxy.core.text import jsontext
from proxy.wire.media import ADDRESSED

_MEMBERS: Final = {
    Route.IMAGE: "image_url",
    Route.AUDIO: "input_audio",
    Route.AUDIO_ADDRESS: "audio_url",
    Route.VIDEO: "video_url",
    Route.FILE: "file",
}
_LONG: Final = 1_000
"""Characters; a name or a word of the API has fewer."""


def part_of(shown: Shown) -> dict[str, Any]:
    """A part in OpenAI's shape."""
    member = _MEMBERS[shown.route]
    if shown.content is None:
        return {"type": member, member: {"url": shown.address}}
    encoded = base64.b64encode(shown.content).decode()
    url = f"data:{shown.found.mime};base64,{encoded}"
    kept = _kept(shown, member)
    match shown.route:
        case Route.AUDIO:
            inner = kept | {"data": encoded, "format": shown.found.suffix}
        case Route.FILE:
            inner = {"filename": shown.name} | kept | {"file_data": url}
        case _:
            inner = kept | {"url": url}
    return {"type": member, member: inner}


def _kept(shown: Shown, member: str) -> dict[str, Any]:
    """The old part's other members about its content."""
    old = jsontext.opened(shown.like) if shown.like is not None else None
    inside = old.get(member) if isinstance(old, dict) else None
    if not isinstance(inside, dict):
        return {}
    return {name: said for name, said in inside.items() if not (shown.is_fetched and name in ADDRESSED)}


def rest_of(part: Mapping[str, Any]) -> bytes:
    """A part of media without its content: long strings are emptied, so that the rest keeps its order."""
    return jsontext.dump({name: _emptied(inside) for name, inside in part.items()})


def _emptied(inside: Any) -> Any:
    if isinstance(inside, dict):
        return {name: "" if isinstance(said, str) and len(said) > _LONG else said for name, said in inside.items()}
    return "" if isinstance(inside, str) and len(inside) > _LONG else inside
