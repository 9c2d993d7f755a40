"""A running proxy between a client and an upstream that do whatever a trial asks.

Rule: real sockets and a real process; everything that a trial starts ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import h11
from support.upstream import Connection, Request, Scene, SocketServer

PATIENCE_SECONDS: Final = 300.0
"""For anything that must happen: machines are shared."""
_SENT_AT_ONCE: Final = 1024 * 1024
SOURCE: Final = Path(__file__).parents[2]
"""Checkout of the proxy under test."""
KEY: Final = "sk-faults-canary-key"
CANARY: Final = "content-canary-7f3a"
"""In every message that is sent; neither may appear anywhere."""

COMPLETION: Final = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    }
).encode()
EVENTS: Final = (
    b"".join(
        b"data: " + json.dumps({"id": "1", "object": "chat.completion.chunk", "choices": choices}).encode() + b"\n\n"
        for choices in (
            [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
            [{"index": 0, "delta": {"content": "Done."}, "finish_reason": None}],
            [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        )
    )
    + b"data: [DONE]\n\n"
)

TOO_LONG: Final = json.dumps(
    {
        "error": {
            "message": "This model's maximum context length is 100000 tokens. However, your messages resulted in "
            "400000 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
).encode()
"""A refusal for length."""

_LISTENING: Final = re.compile(rb'^(?=[^\n]*"event":"listening")[^\n]*"port":(\d+)', re.MULTILINE)
"""In the log: the system chooses the port, as one that is free now may be another process's a moment later."""


@dataclass(frozen=True)
class Heard:
    """The response that a client got."""

    status: int
    """0: none."""
    body: bytes
    is_whole: bool
    """Whether it ended as HTTP requires."""

    @property
    def reports_an_error(self) -> bool:
        """Whether the client can see that something went wrong."""
        return not self.is_whole or self.status >= 400 or b'"error"' in self.body


def whole(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    """A whole response."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def streamed(body: bytes, *, media_type: bytes = b"text/event-stream", end: bytes = b"\n\n") -> bytes:
    """The body as a stream, one chunk for each event that ends so."""
    events = [event + end for event in body.split(end) if event]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)
    head = b"HTTP/1.1 200 X\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % media_type
    return head + chunks + b"0\r\n\r\n"


async def accept(connection: Connection, request: Request) -> None:
    """Respond as a model does."""
    is_stream = b'"stream":true' in request.body or b'"stream": true' in request.body
    await connection.send(streamed(EVENTS) if is_stream else whole(200, COMPLETION))


@dataclass
class Upstream:
    """Answers chat requests as instructed; lists no models."""

    answer: Scene = accept
    bodies: list[bytes] = field(default_factory=list)
    heads: list[Request] = field(default_factory=list)
    """Requests that are not posted."""
    in_work: int = 0

    async def __call__(self, connection: Connection) -> None:
        """One connection."""
        while True:
            request = await connection.request()
            if not request.line.startswith(b"POST"):
                self.heads.append(request)
                await connection.send(whole(404, b"{}"))
                continue
            self.bodies.append(request.body)
            self.in_work += 1
            try:
                await self.answer(connection, request)
            finally:
                self.in_work -= 1


@dataclass
class Stage:
    """The proxy, its upstream, and its folder."""

    port: int
    upstream: Upstream
    folder: Path
    process: asyncio.subprocess.Process

    async def ask(self, *body: bytes, key: str = KEY, path: str = "/v1/chat/completions", **headers: str) -> Heard:
        """Post a body, which may come in pieces, and read the whole response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        head = {"host": "x", "content-type": "application/json", "content-length": str(sum(map(len, body))), **named}
        if key:
            head["authorization"] = f"Bearer {key}"
        return await self.say(b"POST", path, head, *body)

    async def get(self, path: str, *, key: str = KEY) -> Heard:
        """Get a page."""
        return await self.say(b"GET", path, {"host": "localhost", "authorization": f"Bearer {key}"})

    async def say(self, method: bytes, path: str, headers: Mapping[str, str], *body: bytes) -> Heard:
        """One request on a connection of its own."""
        lines = [b"%s %s HTTP/1.1" % (method, path.encode()), *(f"{n}: {v}".encode() for n, v in headers.items())]
        return await self.send(b"\r\n".join([*lines, b"", b""]), *body)

    async def send(self, *pieces: bytes) -> Heard:
        """Send these bytes on a new connection; the response."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                with contextlib.suppress(ConnectionError):
                    for raw in pieces:
                        for start in range(0, len(raw), _SENT_AT_ONCE):  # a connection copies what it cannot send yet
                            writer.write(raw[start : start + _SENT_AT_ONCE])
                            await writer.drain()
                return await _heard(reader)
            finally:
                writer.close()

    async def is_well(self) -> bool:
        """Whether the proxy still responds."""
        return (await self.get("/healthz")).status == 200

    def log(self) -> bytes:
        """Everything that the process has printed."""
        return (self.folder / "log").read_bytes()

    def memory_megabytes(self) -> int:
        """The most that the process has held so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    def kept(self) -> dict[str, bytes]:
        """The content of the store, by name; files that are still being written are renamed at any moment."""
        stored = self.folder / "data" / "tool-output"
        files = [path for path in stored.rglob("*") if path.suffix != ".unfinished" and path.is_file()]
        return {path.name: path.read_bytes() for path in files}


@contextlib.asynccontextmanager
async def staged(**settings: Any) -> AsyncIterator[Stage]:
    """A proxy with these settings, each a section as in YAML, in a folder of its own."""
    upstream = Upstream()
    async with SocketServer(upstream) as server:
        address = server.base_url
        with tempfile.TemporaryDirectory(prefix="faults-") as name:
            folder = Path(name)
            stage = await started(folder, upstream, address, **settings)
            try:
                yield stage
            finally:
                await ended(stage)


async def started(
    folder: Path, upstream: Upstream, address: str, /, *, source: Path = SOURCE, **settings: Any
) -> Stage:
    """Start a process, and wait until it listens."""
    made = {
        "data_dir": str(folder / "data"),
        "log": {"format": "json", "level": "debug"},
        **settings,
        "upstream": {"base_url": address, **settings.get("upstream", {})},
    }
    (folder / "config.json").write_text(json.dumps(made))  # JSON is YAML
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(folder / "config.json"), "--port", "0"]
    with (folder / "log").open("ab") as log:
        already_logged = log.tell()
        process = await asyncio.create_subprocess_exec(
            *command, cwd=source, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    stage = Stage(0, upstream, folder, process)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"the proxy did not start: {stage.log().decode(errors='replace')[-2_000:]}")
            if (found := _LISTENING.search(stage.log(), already_logged)) is not None:
                stage.port = int(found[1])
                with contextlib.suppress(OSError):
                    if await stage.is_well():
                        return stage
            await asyncio.sleep(0.02)


async def ended(stage: Stage) -> None:
    """Wait until the process has ended."""
    if stage.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stage.process.pid, signal.SIGKILL)
        await stage.process.wait()


async def restart(stage: Stage, source: Path = SOURCE, **changed: Any) -> None:
    """Kill the process and start one in the same folder, with the same settings but for those that are `changed`."""
    await ended(stage)
    settings = json.loads((stage.folder / "config.json").read_text())
    address = settings.pop("upstream")["base_url"]
    again = await started(stage.folder, stage.upstream, address, source=source, **settings | changed)
    stage.port, stage.process = again.port, again.process


def chat(*messages: dict[str, Any], **members: Any) -> bytes:
    """A request with the canary in its first message."""
    first = {"role": "user", "content": f"Look. {CANARY}"}
    return json.dumps({"model": "gpt-4o", "messages": [first, *messages], **members}).encode()


def with_result(text: str, call: str = "call_1", tool: str = "bash", **members: Any) -> bytes:
    """A request with one tool result."""
    called = {"id": call, "type": "function", "function": {"name": tool, "arguments": "{}"}}
    return chat(
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call, "content": text},
        **members,
    )


def long_text(seed: int, lines: int = 6_000) -> str:
    """A result that is cut on arrival, a different one for each seed."""
    return "\n".join(f"{CANARY} {seed} line {n}: value {n * 7_919 % 9_973}" for n in range(lines))


async def _heard(reader: asyncio.StreamReader) -> Heard:
    connection, status, body = h11.Connection(h11.CLIENT), 0, bytearray()
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    while True:
        try:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
                continue
        except (h11.RemoteProtocolError, ConnectionError):
            return Heard(status, bytes(body), is_whole=False)
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            return Heard(status, bytes(body), is_whole=isinstance(event, h11.EndOfMessage))
