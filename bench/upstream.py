"""The model's stand-in: `python -m bench.upstream PORT` answers requests with canned text, for very little CPU.

It reads the whole body before it responds, and lets a millisecond pass between the events of a stream, as a model does:
each is written on its own, and a proxy has to handle each on its own. A request's `max_tokens` is their number.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys

from bench.answers import json_answer, stream_events
from bench.apis import APIS, Api
from bench.http1 import Message, Reader

_GAP_SECONDS = 0.001
"""The shortest that epoll supports; in reality the gap is 1.1 to 1.2 ms."""

_STREAM = re.compile(rb'"stream":\s*true')
_EVENTS = re.compile(rb'"max_(?:completion_|output_)?tokens":\s*(\d+)')  # some proxies rename it

_MODELS = b'{"object":"list","data":[{"id":"gpt-4o","object":"model"},{"id":"gpt-4.1","object":"model"}]}'


class Answering(asyncio.Protocol):
    """One connection: requests in, responses out, one after another."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._transport = None

    def data_received(self, data: bytes) -> None:
        message = self._reader.feed(data)
        while message is not None:
            self._answer(message)
            message = self._reader.feed(b"")

    def _answer(self, request: Message) -> None:
        method, path, _ = request.start_line.split(" ", 2)
        if method == "POST" and path in APIS:
            self._complete(request.body, APIS[path])
        elif (method, path) == ("GET", "/v1/models"):
            self._write(_whole(200, _MODELS))
        else:
            self._write(_whole(404, b'{"error":{"message":"no such path"}}'))

    def _complete(self, body: bytes, api: Api) -> None:
        if not _STREAM.search(body):
            self._write(_whole(200, json_answer(body, api)))
            return
        count = _EVENTS.search(body)
        events = stream_events(body, int(count[1]) if count else 1, api)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writes = [
            head + _chunk(events[0]),
            *(_chunk(event) for event in events[1:-1]),
            _chunk(events[-1]) + b"0\r\n\r\n",
        ]
        self._pace(writes, 0)

    def _pace(self, writes: list[bytes], index: int) -> None:
        self._write(writes[index])
        if index + 1 < len(writes) and self._transport is not None:
            asyncio.get_running_loop().call_later(_GAP_SECONDS, self._pace, writes, index + 1)

    def _write(self, content: bytes) -> None:
        if self._transport is not None:  # a client that left needs no response
            self._transport.write(content)


def _whole(status: int, body: bytes) -> bytes:
    reason = {200: "OK", 404: "Not Found"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port, backlog=256)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
