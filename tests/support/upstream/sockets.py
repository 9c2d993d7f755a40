"""A server on a real socket that does what a script says, byte for byte; no sleeps, no timing.

Rule: whatever a script raises fails the test, at the end of the block at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Self

from support.waiting import PATIENCE_SECONDS

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def chunk(content: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


@dataclass(frozen=True)
class Request:
    """What came in."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, values as they came."""
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.headers if found == name]


class Connection:
    """One connection as the script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> Request:
        """A request without its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *rest = head[:-4].split(b"\r\n")
        pairs = [header.split(b": ", 1) for header in rest]
        return Request(line, [(name.lower(), value) for name, value in pairs], b"")

    async def request(self) -> Request:
        """A whole request."""
        request = await self.head()
        body = b""
        if request.values(b"transfer-encoding") == [b"chunked"]:
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif lengths := request.values(b"content-length"):
            body = await self.reader.readexactly(int(lengths[0]))
        return Request(request.line, request.headers, body)

    async def asked(self) -> Request:
        """The next request of a client; what the proxy itself asks is not found."""
        while (request := await self.request()).line.startswith(b"GET "):
            await self.send(NOT_FOUND)
        return request

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Until the other side has closed."""
        try:
            while await self.reader.read(1 << 20):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """RST instead of FIN, which is what a socket does that may not linger."""
        own = self.writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Connection], Awaitable[None]]


class SocketServer:
    """Runs the script for every connection: `async with SocketServer(script) as upstream:`."""

    def __init__(
        self, script: Script, port: int = 0, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._script = script
        self._tls = tls
        self._host = host
        self._port = port
        self._running: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._failures: list[BaseException] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()
        if kind is None and self._failures:
            raise self._failures[0]

    async def open(self) -> Self:
        """Begin to listen."""
        self._server = await asyncio.start_server(
            self._connected, self._host, self._port, limit=1 << 22, reuse_address=True, backlog=512, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def close(self) -> None:
        """End with all connections."""
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await asyncio.sleep(0)  # one that was just accepted is attached: a server that closes first leaves it open
        self._server.close()
        for _ in range(3):  # turns of the loop: one that was just taken begins, and one that was closed is gone
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            for writer in self._writers:
                # Nobody reads the rest, and closing waits for that: with TLS, for the other side's farewell, too.
                if self._tls is not None or writer.transport.get_write_buffer_size():
                    writer.transport.abort()
            await asyncio.sleep(0)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._run(Connection(reader, writer)))
        self._running.add(task)
        self._writers.append(writer)
        task.add_done_callback(self._running.discard)
        # Also of one that ended before it began. Only here: a TLS transport that is closed twice cannot be aborted.
        task.add_done_callback(lambda _: writer.close())

    async def _run(self, connection: Connection) -> None:
        self.connections += 1
        try:
            await self._script(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side has gone; a script that minds waits for it
        except Exception as failure:
            self._failures.append(failure)


@contextlib.contextmanager
def listening(script: Script) -> Iterator[str]:
    """The same on a thread, for tests without a loop; yields `http://127.0.0.1:PORT/v1`."""
    began, ends = threading.Event(), asyncio.Event()
    found: list[SocketServer] = []
    failures: list[BaseException] = []

    async def serve() -> None:
        async with SocketServer(script) as server:
            found.append(server)
            loops.append(asyncio.get_running_loop())
            began.set()
            await ends.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as failure:
            failures.append(failure)
        finally:
            began.set()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=run, name="scripted upstream", daemon=True)
    thread.start()
    began.wait(PATIENCE_SECONDS)
    try:
        if failures:
            raise failures[0]
        yield found[0].base_url
    finally:
        loops[0].call_soon_threadsafe(ends.set)
        thread.join(PATIENCE_SECONDS)
    if failures:
        raise failures[0]


def answering(*answers: bytes, seen: list[Request] | None = None) -> Script:
    """Answers each request on a connection, with the last answer for ever."""

    async def script(connection: Connection) -> None:
        for number in range(1_000_000):
            request = await connection.request()
            if seen is not None:
                seen.append(request)
            await connection.send(answers[min(number, len(answers) - 1)])

    return script


def posted(seen: list[Request]) -> list[Request]:
    """Without the proxy's own questions."""
    return [request for request in seen if request.line.startswith(b"POST ")]


async def soon(awaited: Awaitable[object]) -> None:
    """Fail instead of hanging."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await awaited
