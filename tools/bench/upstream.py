"""The model's stand-in: `python -m tools.bench.upstream PORT` answers requests with canned text, for very little CPU.

It is no script of tests/support/upstream, which parses, counts and keeps every body, on a thread: its CPU would be most
of what a request costs here, and would hide the proxy's.

It reads the whole body before it responds, and lets a millisecond pass between the events of a stream, as a model does:
each is written on its own, and a proxy has to handle each on its own. A request's `max_tokens` is their number.

A stream with `pace_ms` and `together`, which no API has, stops after its first event until as many others have; then
each continues in that rhythm, and their events are spread evenly over it.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys

from httptools import HttpRequestParser

from tools.bench.answers import json_answer, stream_events
from tools.bench.apis import APIS, Api
from tools.bench.http1 import Message, Reader

_GAP_SECONDS = 0.001
"""The shortest that epoll supports; in reality the gap is 1.1 to 1.2 ms."""

_STREAM = re.compile(rb'"stream":\s*true')
_EVENTS = re.compile(rb'"max_(?:completion_|output_)?tokens":\s*(\d+)')  # some proxies rename it

_PACE = re.compile(rb'"pace_ms":\s*(\d+),"together":\s*(\d+)')

_MODELS = b'{"object":"list","data":[{"id":"gpt-4o","object":"model"},{"id":"gpt-4.1","object":"model"}]}'


class Standing:
    """Streams that wait after their first event until enough of them do."""

    def __init__(self) -> None:
        self._streams: list[tuple[Answering, list[bytes]]] = []

    def join(self, stream: Answering, writes: list[bytes], *, together: int, rhythm_seconds: float) -> None:
        """Add a stream; with the last one, all may continue, each at its own point of the rhythm."""
        self._streams = [one for one in self._streams if one[0].is_open]  # those of a run that was given up are gone
        self._streams.append((stream, writes))
        if len(self._streams) < together:
            return
        loop = asyncio.get_running_loop()
        start = loop.time() + rhythm_seconds  # until then, every first event has come to its client
        for position, (one, left) in enumerate(self._streams):
            due = start + rhythm_seconds * position / together
            loop.call_at(due, one.go_on, left, 1, due, rhythm_seconds)
        self._streams.clear()


class Answering(asyncio.Protocol):
    """One connection: requests in, responses out, one after another."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._reader = Reader(HttpRequestParser)
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
        method, path = request.method, request.target
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
        pace = _PACE.search(body)
        if pace is None:
            self._pace(writes, 0)
        else:
            self._write(writes[0])
            self._standing.join(self, writes, together=int(pace[2]), rhythm_seconds=int(pace[1]) / 1e3)

    def _pace(self, writes: list[bytes], index: int) -> None:
        self._write(writes[index])
        if index + 1 < len(writes) and self.is_open:
            asyncio.get_running_loop().call_later(_GAP_SECONDS, self._pace, writes, index + 1)

    def go_on(self, writes: list[bytes], index: int, due: float, rhythm_seconds: float) -> None:
        """Write what is due at `due`, and all that follows in this rhythm, however late one of them is."""
        self._write(writes[index])
        if index + 1 < len(writes) and self.is_open:
            due += rhythm_seconds
            asyncio.get_running_loop().call_at(due, self.go_on, writes, index + 1, due, rhythm_seconds)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

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
    standing = Standing()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(standing), "127.0.0.1", port, backlog=256)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
