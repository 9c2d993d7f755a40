"""Models for journeys: what they say follows from the messages that reach them, streamed or not as the client wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Send

from proxy.demo import Call, Completion, Reply
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


FAILURES = ("busy", "down", "refused", "half a body", "an error in a stream", "nothing")
"""What `FailingLater` knows."""


class FailingLater:
    """An upstream that answers one request, and fails in one of these ways from then on."""

    def __init__(self, answer: Any, failure: str) -> None:
        self._answer, self._failure, self._count = answer, failure, 0
        if hasattr(answer, "beside"):
            self.beside = answer.beside

    async def __call__(self, received: Received, send: Send) -> bool:
        self._count += 1
        if self._count == 1:
            return bool(await self._answer(received, send))
        error = b'{"error": {"message": "Not now.", "type": "overloaded_error"}}'
        match self._failure:
            case "half a body":
                headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b'{"id": "1", ', "more_body": True})
            case "an error in a stream":
                await respond(send, b"data: " + error + b"\n\n", b"text/event-stream")
            case "nothing":
                await respond(send, b"")
            case status:
                await respond(send, error, status={"busy": 429, "down": 503, "refused": 400}[status])
        return True


def reads(name: str, text: str = "", **parameters: Any) -> Reply:
    """The model reads an artifact."""
    return Reply(text, (Call("read_artifact", {"id": name, **parameters}),))


def in_turn(*replies: Reply) -> Thought:
    """One reply after the other, and the last one for ever."""
    left = list(replies)

    def thought(_: Sequence[dict[str, Any]]) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return thought
