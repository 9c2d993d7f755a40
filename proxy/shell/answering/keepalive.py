"""Comments for a client that asked for a stream and waits for its first event, so that nothing between gives up.

Rule: until the first comment nothing changes. With it a 200 is on its way, so that an error that comes later is an
event of the stream; this is why `overflow.keepalive_seconds` is off unless it is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from starlette.types import Message, Send

from proxy.core import jsontext
from proxy.shell.upstream.client import Headers

COMMENT: Final = b": keepalive\n\n"
"""Clients skip lines that begin with a colon."""
_DONE: Final = b"data: [DONE]\n\n"
_HEAD: Final[Headers] = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_MAX_BODY_BYTES: Final = 1024 * 1024
"""Of an answer that is no stream and has to become an event; errors are shorter by far."""
_MAX_MESSAGE_CHARS: Final = 2_000


class KeepAlive:
    """`async with KeepAlive(…) as alive:` sends comments while its body waits; after it, answer through `alive.send`,
    which is the server's own `send` as long as there was no comment."""

    def __init__(self, send: Send, seconds: float, wanted: Callable[[], bool], headers: Headers) -> None:
        self._send = send
        self._seconds = seconds
        self._wanted = wanted
        """Asked before each comment: whether the client wants a stream is known once its request has been read."""
        self._headers = headers
        self._committed = False
        self._status = 200
        self._whole: bytearray | None = None
        """An answer that is no stream, as far as it has come."""

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ticking.cancel()

    async def send(self, message: Message) -> None:
        """An ASGI message of the response; once the stream is committed, what does not belong there is translated."""
        if not self._committed:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._status = message["status"]
            self._whole = None if _is_stream(message["headers"]) else bytearray()
        elif self._whole is None:
            await self._send(message)
        else:
            self._whole += message.get("body", b"")[: _MAX_BODY_BYTES - len(self._whole)]
            if not message.get("more_body", False):
                await self._send({"type": "http.response.body", "body": as_events(self._status, bytes(self._whole))})

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            if not self._wanted():
                continue
            if not self._committed:
                await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEAD, *self._headers]})
                self._committed = True
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})


def as_events(status: int, body: bytes) -> bytes:
    """An answer that is no stream as the end of one; what is no OpenAI error becomes one.

    >>> as_events(429, b'{"error": {\\n"message": "slow down"}}')
    b'data: {"error": { "message": "slow down"}}\\n\\ndata: [DONE]\\n\\n'
    >>> as_events(502, b"Bad Gateway")[:35]
    b'data: {"error":{"message":"Bad Gate'
    """
    try:
        is_known = "error" in jsontext.members(body) or status == 200
    except jsontext.NotJson:
        is_known = False
    if not is_known:
        message = body.decode("utf-8", "replace")[:_MAX_MESSAGE_CHARS]
        said = {"message": message or f"HTTP {status}", "type": "upstream_error", "param": None, "code": str(status)}
        body = jsontext.dump({"error": said})
    # Line ends in JSON are white space, and data of several lines is more than most clients read.
    return b"data: " + body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n" + _DONE


def _is_stream(headers: Headers) -> bool:
    return any(name == b"content-type" and b"event-stream" in value.lower() for name, value in headers)
