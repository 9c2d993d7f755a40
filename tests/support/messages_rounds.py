"""Rounds of an answer of the Messages API, as a test writes them: as bodies, and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

START_USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 400, "output_tokens": 1}


def body_of_answer(content: Any, reason: str = "end_turn", **members: Any) -> bytes:
    """A whole answer."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": reason}
    return json.dumps({**message, **members}).encode()


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


START = event("message_start", message={"id": "msg_1", "type": "message", "content": [], "usage": START_USAGE})
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7}) + event("message_stop")


def block(index: int, opening: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    """The events of one block."""
    return b"".join(
        [
            event("content_block_start", index=index, content_block=opening),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ]
    )


def text_block(index: int, *pieces: str) -> bytes:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def call_block(index: int, name: str, given: Mapping[str, Any], number: int = 1) -> bytes:
    opening = {"type": "tool_use", "id": f"toolu_{name}_{number}", "name": name, "input": {}}
    written = json.dumps(given)
    pieces = [written[:4], written[4:]]
    return block(index, opening, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


class Fed(Protocol):
    """What takes a stream in pieces."""

    def feed(self, piece: bytes) -> bytes: ...


def fed(stream: Fed, data: bytes, sizes: Iterable[int]) -> bytes:
    """What the client gets of a stream that comes in pieces of these sizes."""
    reported, at = [], 0
    for size in [*sizes, len(data)]:
        reported.append(stream.feed(data[at : at + size]))
        at += size
    return b"".join(reported)
