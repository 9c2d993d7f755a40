"""The short way of a body: each piece goes to its taker in the callback in which it arrives.

Rule: the HTTP client parses a response as ever, and what has no room, ends or fails waits for the reader of the body.
Only `exchange.py` and `client.py` use a tap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler


class Taker(Protocol):
    """Takes the pieces of a body, each in the callback in which it arrives."""

    @property
    def is_ready(self) -> bool:
        """Whether there is room for a piece; if not, it waits for its reader."""

    def take(self, piece: bytes) -> None:
        """Take a piece, without waiting for anything."""


class Tap(asyncio.Protocol):
    """Stands between a connection and aiohttp's protocol. What that has parsed of a body goes on in the same callback:
    events come by the thousand, and waking a task for each of them took a quarter of its CPU."""

    def __init__(
        self,
        protocol: ResponseHandler,
        transport: asyncio.Transport,
        content: aiohttp.StreamReader,
        taker: Taker,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when something waits for the reader: the end, an error, or a piece that there was no room for. Fails
        with the error of `take`."""
        self.last = loop.time()
        """When the last piece arrived; loop time."""
        self._now = loop.time
        self._protocol = protocol
        self._transport = transport
        self._content = content
        self._read_bytes = content.total_bytes
        self._taker = taker
        transport.set_protocol(self)

    @property
    def read_bytes(self) -> int:
        """Of the body, with what was taken."""
        return self._read_bytes

    def end(self, error: Exception | None = None) -> None:
        """The reader goes on by itself; calling this again does no harm."""
        if not self.over.done():
            if error is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(error)
        if self._transport.get_protocol() is self:
            self._transport.set_protocol(self._protocol)

    def data_received(self, data: bytes) -> None:
        content, taker = self._content, self._taker
        self._protocol.data_received(data)
        self.last = self._now()
        try:
            # More than once if the library has held something back.
            while content.total_bytes > self._read_bytes and taker.is_ready and content.exception() is None:
                piece = content.read_nowait()
                self._read_bytes += len(piece)
                taker.take(piece)
        except Exception as error:
            self.end(error)
        if content.total_bytes > self._read_bytes or content.is_eof() or content.exception() is not None:
            self.end()

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        self.end()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
