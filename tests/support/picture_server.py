"""A server of pictures on a real socket, that answers with whatever bytes a test wants."""

from __future__ import annotations

import contextlib
import ssl
from asyncio import StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from support import media_samples
from support.upstream import Connection, SocketServer

CERTIFICATE = Path(__file__).parent / "certificates" / "pictures.example.pem"
"""Of `pictures.example`, signed by itself, with its key: made for these tests, known to all."""

Script = Callable[[StreamWriter], Awaitable[None]]


def png(width: int = 3, height: int = 2, shade: int = 7) -> bytes:
    return media_samples.png(width, height, bytes([shade]))


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An answer; headers with `_` for `-`; `content_length=""` leaves that one out."""
    stated = {"content_type": "image/png", "content_length": str(len(body)), "connection": "close", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in stated.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1") + body


def redirect(target: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, location=target, content_type="text/html")


@dataclass
class PictureServer:
    """Answers by path; what it does not know is a 404."""

    answers: dict[str, bytes | Script] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)
    """The heads that came."""
    connections: int = 0
    names: list[str | None] = field(default_factory=list)
    """Asked for in TLS handshakes."""
    port: int = 0

    @property
    def paths(self) -> list[str]:
        return [head.split(b" ", 2)[1].decode() for head in self.requests]

    async def __call__(self, connection: Connection) -> None:
        self.connections += 1
        found: bytes | Script = b"connection: keep-alive"
        while isinstance(found, bytes) and b"connection: keep-alive" in found:
            self.requests.append(await connection.reader.readuntil(b"\r\n\r\n"))
            found = self.answers.get(self.paths[-1], answer(b"", "404 Not Found"))
            if isinstance(found, bytes):
                await connection.send(found)
            else:
                await found(connection.writer)


@contextlib.asynccontextmanager
async def serving(host: str = "127.0.0.1", *, tls: bool = False) -> AsyncIterator[PictureServer]:
    """A server at an address of this machine; all of 127.0.0.0/8 is, on Linux."""
    found = PictureServer()
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        context.sni_callback = lambda _, name, __: found.names.append(name)
    async with SocketServer(found, tls=context, host=host) as server:
        found.port = server.port
        yield found
