"""The short way of a body: each piece goes to its taker in the callback in which it arrives.

Rule: the HTTP client parses a response as ever, and what has no room, ends or fails waits for the reader of the body.
Only bytes that are certainly one whole chunk pass the parser by, while it stands between two chunks and has nothing
left to give. Only `exchange.py` and `client.py` use a tap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from proxy.shell.upstream.chunks import LINE_END, SIZE_LINES, Chunks, body_of, chunk_at

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

_CHUNKS_AT_ONCE: Final = 16
"""How many are noted together."""


class Taker(Protocol):
    """Takes the pieces of a body, each in the callback in which it arrives."""

    @property
    def is_ready(self) -> bool:
        """Whether there is room for a piece; if not, it waits for its reader."""

    def take(self, piece: bytes) -> None:
        """Take a piece, without waiting for anything."""

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """What takes pieces with their framing as chunks of HTTP/1.1, until it calls `stop`; None: nothing."""

    def note_written(self, pieces: Sequence[bytes]) -> None:
        """These pieces, here without framing, were given to it."""


class Tap(asyncio.Protocol):
    """Stands between a connection and aiohttp's protocol. While there is a taker, what arrives of a body goes on in the
    same callback: events come by the thousand, and waking a task for each of them took a quarter of its CPU. A chunk
    that goes on as it is touches little memory besides: with many streams, each has left the caches when its next event
    comes, and what is done with an event costs five times what it costs when done again at once."""

    __slots__ = (
        "_chunks",
        "_content",
        "_new_future",
        "_now",
        "_protocol",
        "_taker",
        "_transport",
        "_write",
        "_written",
        "last",
        "over",
        "read_bytes",
    )

    def __init__(self, protocol: ResponseHandler, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None]
        """Done when something waits for the reader: the end, an error, or a piece that there was no room for. Fails
        with the error of the taker."""
        self.last = 0.0
        """When the last piece arrived; loop time."""
        self.read_bytes = 0
        """Of the body, with what was taken, without chunks that passed the parser by."""
        self._new_future = loop.create_future
        self._now = loop.time
        self._protocol = protocol
        self._transport = transport
        self._chunks = Chunks()
        self._content: aiohttp.StreamReader
        self._taker: Taker | None = None
        self._write: Callable[[bytes], None] | None = None
        """Takes a chunk, if the next bytes begin one and the taker has everything before them."""
        self._written: list[bytes] = []
        """Chunks that are not noted yet."""
        transport.set_protocol(self)

    @staticmethod
    def of(protocol: ResponseHandler, transport: asyncio.Transport) -> Tap:
        """The tap of a connection, at the beginning of an exchange. It stays when that is over, because a transport
        whose protocol is set stops and starts reading: in uvloop, that takes two system calls."""
        found = transport.get_protocol()
        tap = found if isinstance(found, Tap) else Tap(protocol, transport)
        tap._chunks = Chunks()
        return tap

    def begin(self, content: aiohttp.StreamReader, taker: Taker, read_bytes: int) -> None:
        """From now on, `taker` takes what arrives; nothing may wait for its reader."""
        self.over, self.last, self.read_bytes = self._new_future(), self._now(), read_bytes
        self._content, self._taker = content, taker
        self._open(taker)

    def end(self, error: Exception | None = None) -> None:
        """The reader goes on by itself; calling this again does no harm."""
        self._note_written()
        self._taker = self._write = None
        if not self.over.done():
            if error is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(error)

    def data_received(self, data: bytes) -> None:
        write = self._write
        if write is None:
            self._parse(data)
        elif data.startswith(SIZE_LINES[len(data)]) and data.endswith(LINE_END):
            self._pass(data, write)
        else:
            self._pass_several(data)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        if self._taker is not None:
            self.end()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _open(self, taker: Taker) -> None:
        """Let chunks pass the parser by, if it holds nothing: it has found as many bytes as have arrived, and the last
        chunk ended with them."""
        is_between = self._chunks.is_at_start and self._chunks.body_bytes == self._content.total_bytes
        self._write = taker.chunk_writer(self._shut) if is_between else None

    def _pass(self, chunk: bytes, write: Callable[[bytes], None]) -> None:
        self.last = self._now()
        try:
            write(chunk)
        except Exception as error:
            self.end(error)
            return
        self._written.append(chunk)
        if len(self._written) >= _CHUNKS_AT_ONCE:
            self._note_written()

    def _pass_several(self, data: bytes) -> None:
        """On a busy machine, several chunks arrive at once."""
        at = 0
        while (write := self._write) is not None and (chunk := chunk_at(data, at)):
            self._pass(chunk, write)
            at += len(chunk)
        if rest := data[at:]:
            self._parse(rest)

    def _shut(self) -> None:
        self._write = None

    def _note_written(self) -> None:
        if self._written and self._taker is not None:
            written, self._written = self._written, []
            self._taker.note_written([body_of(chunk) for chunk in written])

    def _parse(self, data: bytes) -> None:
        """The long way, which goes on to the taker, too, if there is one."""
        taker = self._taker
        self._chunks.follow(data)
        self._protocol.data_received(data)
        if taker is None:
            return
        self._note_written()
        content = self._content
        self.last = self._now()
        try:
            # More than once if the library has held something back.
            while content.total_bytes > self.read_bytes and taker.is_ready and content.exception() is None:
                piece = content.read_nowait()
                self.read_bytes += len(piece)
                taker.take(piece)
        except Exception as error:
            self.end(error)
            return
        if content.total_bytes > self.read_bytes or content.is_eof() or content.exception() is not None:
            self.end()
        else:
            self._open(taker)
