"""The parts of a message or an output that contain media, in the shape of the Responses API: the content is in the part
itself, not inside a member of it.

Rule: anything else that an old part says about its content (`detail`) is copied to the new one.
https://platform.openai.com/docs/api-reference/responses/create, `input_image`, `input_file`; openai-python 3.54.0.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from proxy.core.conversation.message import Attachment, Route, Shape, Shown
from proxy.core.text import jsontext
from proxy.wire.media import attachment_of

_HELD: Final = ("image_url", "file_data", "file_url", "file_id")
"""Members with the content or its address."""
_OTHER_MEMBERS: Final = {Route.AUDIO_ADDRESS: "audio_url", Route.VIDEO: "video_url"}
"""The API has no parts for these; servers that accept them use the parts of chat completions."""
_LONG: Final = 1_000
"""Characters; a name or a word of the API has fewer."""


def content_of(part: Mapping[str, Any]) -> Attachment | None:
    """The content of a media part; None for text, and for a part that cannot be read."""
    if part.get("type") == "input_image" and not isinstance(part.get("image_url"), str):
        named = part.get("file_id")
        return Attachment(Shape.IMAGE, address=named) if isinstance(named, str) and named else None
    return attachment_of(part)


def part_of(shown: Shown) -> dict[str, Any]:
    """A part in this API's shape."""
    kept = _kept(shown)
    encoded = "" if shown.content is None else base64.b64encode(shown.content).decode()
    url = shown.address if shown.content is None else f"data:{shown.found.mime};base64,{encoded}"
    match shown.route:
        case Route.IMAGE:
            return {"type": "input_image", "detail": "auto"} | kept | {"image_url": url}
        case Route.AUDIO:
            return {"type": "input_audio", "input_audio": {"data": encoded, "format": shown.found.suffix}}
        case Route.FILE:
            return {"type": "input_file", "filename": shown.name} | kept | {"file_data": url}
        case route:
            member = _OTHER_MEMBERS[route]
            return {"type": member, member: {"url": url}}


def _kept(shown: Shown) -> dict[str, Any]:
    """The old part's other members about its content, if it was of the same kind."""
    old = jsontext.opened(shown.like) if shown.like is not None else None
    kind = {Route.IMAGE: "input_image", Route.FILE: "input_file"}.get(shown.route)
    if not isinstance(old, dict) or old.get("type") != kind:
        return {}
    return {name: said for name, said in old.items() if name not in _HELD and said is not None}


def rest_of(part: Mapping[str, Any]) -> bytes:
    """A part of media without its content: long strings are emptied, so that the rest keeps its order."""
    return jsontext.dump(
        {name: "" if isinstance(said, str) and len(said) > _LONG else said for name, said in part.items()}
    )
