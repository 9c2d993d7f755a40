"""The events of a stream of this API: what one says, and the blocks that many of them make.

Rule: nothing is guessed: a block with a part of a kind that is not known is not put together.
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.sse import data_of

_APPENDED: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}
"""Kinds of parts that go behind what a block has so far, by the member that holds them in both."""


def said(event: bytes) -> Mapping[str, Any]:
    """What an event says; nothing when that is no JSON object."""
    found = jsontext.opened(data_of(event))
    return found if isinstance(found, dict) else {}


def kind_of_event(data: bytes) -> str:
    """The `type` of what an event says; empty when it says none."""
    found = jsontext.opened(data)
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else ""


def event_of(name: str, data: bytes) -> bytes:
    """An event of that name."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """An event with changes in what it says."""
    return event_of(str(said(event).get("type")), spliced(data_of(event), changes))


def blocks_of(events: Iterable[Mapping[str, Any]]) -> list[bytes] | None:
    """The blocks that the events of a round make; None when one of them cannot be told."""
    blocks: dict[Any, dict[str, Any]] = {}
    inputs: dict[Any, list[str]] = {}
    for event in events:
        index = event.get("index")
        match event.get("type"):
            case "content_block_start" if isinstance(block := event.get("content_block"), dict):
                blocks[index] = dict(block)
            case "content_block_delta":
                delta = event.get("delta")
                if index not in blocks or not isinstance(delta, dict) or not _add(blocks[index], delta, index, inputs):
                    return None
    for index, parts in inputs.items():
        raw = "".join(parts).encode("utf-8", "surrogatepass")
        blocks[index]["input"] = msgspec.Raw(raw) if isinstance(jsontext.opened(raw), dict) else {}
    return [jsontext.dump(block) for block in blocks.values()]


def _add(block: dict[str, Any], delta: Mapping[str, Any], index: Any, inputs: dict[Any, list[str]]) -> bool:
    """Add a part to a block; whether its kind is known."""
    kind = delta.get("type")
    if kind == "input_json_delta" and isinstance(part := delta.get("partial_json"), str):
        inputs.setdefault(index, []).append(part)
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
    elif isinstance(kind, str) and (name := _APPENDED.get(kind)) and isinstance(part := delta.get(name), str):
        block[name] = (block.get(name) or "") + part
    else:
        return False
    return True
