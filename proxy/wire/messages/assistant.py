"""A model's message in a response of this API, whole or assembled from a stream.

Rule: a call with anything odd about it is the client's; every block keeps its bytes, because thinking and its
signatures go back upstream unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import jsontext
from proxy.wire.messages.blocks import CALL, RESULT, kind_of, meant_by, text_in


def is_own(block: Any) -> bool:
    """Whether a block calls the proxy's own tool."""
    return kind_of(block) == CALL and block.get("name") == RETRIEVAL_TOOL


def said_in(blocks: Sequence[bytes]) -> AssistantMessage:
    """Read the blocks of a response."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    meant: list[Any] = []
    texts: list[str] = []
    calls = 0
    for raw in blocks:
        block = jsontext.opened(raw)
        if (text := text_in(block)) is not None:
            texts.append(text)
        if kind_of(block) != CALL:
            continue
        if is_own(block):
            arguments = jsontext.dump(block.get("input")).decode("utf-8", "replace")
            own.append(OwnCall(calls, str(block.get("id") or ""), arguments, raw))
        else:
            others.append(raw)
            meant.append(block)
        calls += 1
    message = jsontext.join_object({"role": b'"assistant"', "content": jsontext.join_array(_sent_back(blocks))})
    return AssistantMessage(message, tuple(own), tuple(others), meant_by(meant), {"text": "\n".join(texts)})


def _sent_back(blocks: Sequence[bytes]) -> list[bytes]:
    """The blocks that a client would send back: without empty texts, with which some models begin, because the API
    refuses them: "messages: text content blocks must be non-empty"."""
    return [raw for raw in blocks if text_in(jsontext.opened(raw)) != ""]


def result_of(call_id: str, text: str) -> bytes:
    """The message that answers a call."""
    result = {"type": RESULT, "tool_use_id": call_id, "content": text}
    return jsontext.dump({"role": "user", "content": [result]})
