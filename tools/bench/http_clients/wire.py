"""The upstream of the checks, on a real socket: it follows a script for each connection and remembers what it saw."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

from tools.bench.http_clients.clients import Answer, Client


class Wire:
    """A scripted upstream. It runs the script for each connection, and remembers what came in and what was closed."""

    def __init__(self, script: Callable[[Wire, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._script = script
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self.received = asyncio.Event()

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 22, backlog=512)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._script(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()
        finally:
            writer.close()

    async def request(self, reader: asyncio.StreamReader) -> None:
        """Read one whole request."""
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        body = b""
        if b"transfer-encoding: chunked" in lowered:
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        elif b"content-length:" in lowered:
            body = await reader.readexactly(int(lowered.split(b"content-length:")[1].split(b"\r\n")[0]))
        self.heads.append(head)
        self.bodies.append(body)
        self.received.set()

    async def until_closed(self, reader: asyncio.StreamReader) -> None:
        """Wait for the other side to close."""
        while await reader.read(65536):
            pass
        self.closed.set()


Open = Callable[[str], Client]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def answering(*answers: bytes, then: str = "keep") -> Wire:
    """Answers each request, repeating the last answer for ever; `then` says what follows: keep, close, reset or
    wait."""

    async def script(wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(1_000_000):
            await wire.request(reader)
            writer.write(answers[min(number, len(answers) - 1)])
            await writer.drain()
            if then == "reset":
                await asyncio.sleep(0.05)
                # RST instead of FIN, which a socket sends that may not linger
                no_linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
                writer.transport.abort()
            if then in ("close", "reset"):
                return
            if then == "wait":
                await wire.until_closed(reader)
                return

    return Wire(script)


async def whole(answer: Answer) -> bytes:
    body = b"".join([chunk async for chunk in answer.chunks()])
    await answer.aclose()
    return body


async def fails(client: Client) -> bool:
    try:
        await whole(await client.send("POST", b"/x", [], b"{}"))
    except Exception:
        return True
    return False
