"""The parts of a message or an output: how the core sees them, and how what it makes of them is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.conversation.message import Item, Part
from proxy.core.text.jsontext import Raw
from proxy.wire.openai_parts import part_from, part_in
from proxy.wire.responses.media_parts import content_of, part_of, rest_of


def read_part(raw: Raw, part: Any) -> Part:
    """A part as the core sees it."""
    return part_in(raw, part, content_of, rest_of)


def json_of(item: Item, role: str) -> bytes:
    """The JSON of a part. The model's words have parts of their own: `output_text`."""
    return part_from(item, part_of, _said_by_the_model if role == "assistant" else _said_to_the_model)


def _said_by_the_model(text: str) -> Mapping[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _said_to_the_model(text: str) -> Mapping[str, Any]:
    return {"type": "input_text", "text": text}
