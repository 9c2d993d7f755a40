"""Rounds of the proxy's own tool in a stream, and what a stream says that breaks off."""

from __future__ import annotations

import json
from typing import Any

from proxy.demo import Call, Reply
from support.overflow_words import conversation
from support.upstream import Scene
from support.upstream.chat_answers import Completion
from support.upstream.scenes import streaming

FETCH = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
_CUT = b"Look at the log [context-proxy: 9 messages are kept in tool_messages_0123456789abcdef.json]"
WITH_TOOLS = conversation(2_000, stream=True, tools=[FETCH]).replace(b"Look at the log", _CUT)
"""Its agent is offered the proxy's own tool, because a notice is in its history."""


def reading() -> Scene:
    """The model says a word and calls the proxy's own tool."""
    call = Call("read_artifact", {"id": "tool_fetch_0123456789abcdef.txt"})
    completion = Completion.make(b"", "m", Reply("Let me look.", (call,)), 1_000, 1_000)
    return streaming(*completion.events(False))


def error_of(body: bytes) -> dict[str, Any]:
    """The error of a stream that holds nothing else, and ends."""
    event, end = body.split(b"\n\n", 1)
    assert end == b"data: [DONE]\n\n"
    error: dict[str, Any] = json.loads(event.removeprefix(b"data: "))["error"]
    return error
