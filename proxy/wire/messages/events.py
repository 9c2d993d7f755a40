"""The events of a stream of this API: the content of each, and the blocks that they form together.

Rule: nothing is guessed: a block that contains a delta of an unknown kind is not assembled.
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
"""Kinds of deltas that are appended to a block's text, with the member that contains the text in both."""


def said(event: bytes) -> Mapping[str, Any]:
    """The content of an event; empty if it is no JSON object."""
    found = jsontext.opened(data_of(event))
    return found if isinstance(found, dict) else {}


def kind_of_event(data: bytes) -> str:
    """The `type` in an event's data; empty if there is none."""
    found = jsontext.opened(data)
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else ""


def event_of(name: str, data: bytes) -> bytes:
    """An event of this name."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """An event with changes in its data."""
    return event_of(str(said(event).get("type")), spliced(data_of(event), changes))


def blocks_of(events: Iterable[Mapping[str, Any]]) -> list[bytes] | None:
    """The blocks that a round's events form; None if one of them cannot be assembled."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    for event in events:
        index = event.get("index")
        match event.get("type"):
            case "content_block_start" if isinstance(block := event.get("content_block"), dict):
                if not isinstance(index, int):
                    return None
                blocks[index] = dict(block)
            case "content_block_delta":
                delta = event.get("delta")
                if not isinstance(index, int) or index not in blocks or not isinstance(delta, dict):
                    return None
                if not _add(blocks[index], delta, index, inputs):
                    return None
    for index, parts in inputs.items():
        raw = "".join(parts).encode("utf-8", "surrogatepass")
        blocks[index]["input"] = msgspec.Raw(raw) if isinstance(jsontext.opened(raw), dict) else {}
    return [jsontext.dump(block) for block in blocks.values()]


def _add(block: dict[str, Any], delta: Mapping[str, Any], index: int, inputs: dict[int, list[str]]) -> bool:
    """Add a delta to a block. Returns whether its kind is known."""
    kind = delta.get("type")
    if kind == "input_json_delta" and isinstance(part := delta.get("partial_json"), str):
        inputs.setdefault(index, []).append(part)
    elif kind == "citations_delta" and isinstance(cited := block.get("citations") or [], list):
        block["citations"] = [*cited, delta.get("citation")]
    elif isinstance(kind, str) and (name := _APPENDED.get(kind)) and isinstance(part := delta.get(name), str):
        block[name] = jsontext.string_in(block, name) + part
    else:
        return False
    return True
