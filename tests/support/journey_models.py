"""Models for journeys: what they say follows from the messages that reach them, streamed or not as the client wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Send

from proxy.demo.incident import Call, Reply
from proxy.demo.model_server import Completion
from support.journey import Answer, Received

Thought = Callable[[Sequence[dict[str, Any]]], Reply]


def thinking(thought: Thought) -> Answer:
    """An upstream whose model answers so; it counts a thousand tokens for every prompt."""

    async def answer(received: Received, send: Send) -> bool:
        wanted = json.loads(received.body)
        reply = thought(wanted["messages"])
        completion = Completion.make(received.body, "m", reply, 1_000, 100_000)
        if wanted.get("stream"):
            options = wanted.get("stream_options") or {}
            await respond(send, b"".join(completion.events(options.get("include_usage", False))), b"text/event-stream")
        else:
            await respond(send, json.dumps(completion.whole()).encode())
        return True

    return answer


async def respond(send: Send, body: bytes, content_type: bytes = b"application/json", status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]})
    await send({"type": "http.response.body", "body": body})


def reads(name: str, text: str = "", **parameters: Any) -> Reply:
    """The model reads an artifact."""
    return Reply(text, (Call("read_artifact", {"id": name, **parameters}),))


def in_turn(*replies: Reply) -> Thought:
    """One reply after the other, and the last one for ever."""
    left = list(replies)

    def thought(_: Sequence[dict[str, Any]]) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return thought
