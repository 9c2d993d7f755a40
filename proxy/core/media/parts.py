"""The parts of a message that hold media, in OpenAI's shape.

Rule: what else an old part says of its content (`detail`) goes with it into the new one.
"""

from __future__ import annotations

import base64
from typing import Any

from proxy.core.content_types import MediaType, audio_format
from proxy.core.conversation.references import ADDRESSED
from proxy.core.media.descriptions import default_name
from proxy.core.media.routes import Route


def without_addresses(inside: Any) -> dict[str, Any]:
    """What a part says besides where its content is."""
    return {name: said for name, said in inside.items() if name not in ADDRESSED} if isinstance(inside, dict) else {}


def part_of(route: Route, content: bytes, found: MediaType, name: str, old: dict[str, Any]) -> dict[str, Any]:
    """A part in OpenAI's shape; what else the old one says of its content (`detail`) goes with it."""
    encoded = base64.b64encode(content).decode()
    url = f"data:{found.mime};base64,{encoded}"
    inside = old.get(route.value)
    kept = inside if isinstance(inside, dict) else {}
    match route:
        case Route.AUDIO:
            inner = kept | {"data": encoded, "format": audio_format(found)}
        case Route.FILE:
            inner = {"filename": name or default_name(found)} | kept | {"file_data": url}
        case _:
            inner = kept | {"url": url}
    return {"type": route.value, route.value: inner}
