"""Answers that are played byte for byte, whatever was asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from support.upstream.replies import Answer
from support.upstream.script import Scene, Sent
from support.upstream.sockets import CHUNKED, LAST_CHUNK, Connection, Request, chunk

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    }
).encode()
DELTA = (
    b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Done."},'
    b'"finish_reason":null}]}\n\n'
)
STREAM = DELTA + b"data: [DONE]\n\n"


def saying(status: int, body: bytes, content_type: str = JSON, *headers: str) -> Scene:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} As Said", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send("\r\n".join([*lines, "", ""]).encode() + body)

    return scene


def streaming(*steps: bytes | asyncio.Event, content_type: bytes = b"text/event-stream") -> Scene:
    """A stream of these pieces; where there is an event, it waits for it."""

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send(CHUNKED.replace(b"text/event-stream", content_type))
        for step in steps:
            if isinstance(step, bytes):
                await connection.send(chunk(step))
            else:
                await step.wait()
        await connection.send(LAST_CHUNK)

    return scene


def after(event: asyncio.Event, scene: Scene) -> Scene:
    """The scene, once the event is set."""

    async def waiting(connection: Connection, request: Request) -> None:
        await event.wait()
        await scene(connection, request)

    return waiting


class Thinking:
    """A scene in which the model never answers."""

    def __init__(self) -> None:
        self.began, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, connection: Connection, _: Request) -> None:
        self.began.set()
        await connection.until_closed()
        self.left.set()


async def accepting(connection: Connection, request: Request) -> None:
    """The answer of a model that accepts the request: a stream if one was requested."""
    streams = json.loads(request.body).get("stream")
    await saying(200, STREAM if streams else COMPLETION, EVENTS if streams else JSON)(connection, request)


FAILURES = ("busy", "down", "refused", "half a body", "an error in a stream", "nothing")
"""What `FailsLater` knows."""
_ERROR = b'{"error": {"message": "Not now.", "type": "overloaded_error"}}'


async def half_a_body(connection: Connection, _: Request) -> None:
    """An answer that ends before its length."""
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n")
    await connection.send(b'{"id": "1", ')
    connection.writer.close()


@dataclass
class FailsLater:
    """A rule that answers one request, and fails in one of these ways from then on."""

    failure: str
    count: int = 0

    def __call__(self, _: Sent) -> Answer | Scene | None:
        self.count += 1
        if self.count == 1:
            return None
        match self.failure:
            case "half a body":
                return half_a_body
            case "an error in a stream":
                return Answer(200, b"data: " + _ERROR + b"\n\n", "text/event-stream")
            case "nothing":
                return Answer(200, b"")
        return Answer({"busy": 429, "down": 503, "refused": 400}[self.failure], _ERROR)
