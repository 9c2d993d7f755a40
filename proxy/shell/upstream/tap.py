"""Fast path for response bodies: hand each chunk to the client in the same event-loop callback.

Rule: aiohttp still parses every response; if the client is slow, or the body ends or fails, the normal reader takes
over. Only a read that is exactly one chunk bypasses the parser, between two chunks and with nothing buffered; only the
plain form of RFC 9112 7.1 is recognised, without extensions and trailers, and anything else ends the fast path. Only
`exchange.py` and `client.py` use a tap.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

_CHUNKS_AT_ONCE: Final = 16
"""How many chunks are noted together."""


class Consumer(Protocol):
    """Consumes the pieces of a body, each in the callback in which it arrives."""

    @property
    def is_ready(self) -> bool:
        """Whether there is room for a piece; otherwise the piece waits in the reader."""

    def take(self, piece: bytes) -> None:
        """Consume a piece without waiting."""

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """A function that writes chunks of HTTP/1.1 with their framing, until it calls `stop`; None if none can be
        written."""

    def note_written(self, pieces: Sequence[bytes]) -> None:
        """These pieces, here without framing, were given to it."""


class Tap(asyncio.Protocol):
    """Sits between a connection and aiohttp's protocol. While there is a consumer, body bytes are handed over in the
    same callback: events come by the thousand, and waking a task for each of them took a quarter of the CPU. A chunk
    that is forwarded unchanged touches little other memory: with many streams, each has left the caches when its next
    event comes, and work on an event costs five times what it costs when done at once."""

    __slots__ = (
        "_chunks",
        "_consumer",
        "_content",
        "_new_future",
        "_now",
        "_protocol",
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
        """Done when something waits for the reader: the end, an error, or a chunk that there was no room for. Fails
        with the consumer's error."""
        self.last = 0.0
        """When the last piece arrived; loop time."""
        self.read_bytes = 0
        """Body bytes parsed, including those handed over, without chunks that bypassed the parser."""
        self._new_future = loop.create_future
        self._now = loop.time
        self._protocol = protocol
        self._transport = transport
        self._chunks = Chunks()
        self._content: aiohttp.StreamReader
        self._consumer: Consumer | None = None
        self._write: Callable[[bytes], None] | None = None
        """Writes a chunk, if the next bytes begin one and the consumer has everything before them."""
        self._written: list[bytes] = []
        """The contents of chunks that are not noted yet."""
        transport.set_protocol(self)

    @staticmethod
    def of(protocol: ResponseHandler, transport: asyncio.Transport) -> Tap:
        """The tap of a connection, at the beginning of an exchange. It stays when that is over, because a transport
        whose protocol is set stops and starts reading: in uvloop, that takes two system calls."""
        found = transport.get_protocol()
        tap = found if isinstance(found, Tap) else Tap(protocol, transport)
        tap._chunks = Chunks()
        return tap

    def begin(self, content: aiohttp.StreamReader, consumer: Consumer, read_bytes: int) -> None:
        """Hand what arrives from now on to `consumer`; nothing may wait for its reader."""
        self.over, self.last, self.read_bytes = self._new_future(), self._now(), read_bytes
        self._content, self._consumer = content, consumer
        self._open(consumer)

    def end(self, error: Exception | None = None) -> None:
        """Return to the reader; idempotent."""
        self._note_written()
        self._consumer = self._write = None
        if not self.over.done():
            if error is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(error)

    def data_received(self, data: bytes) -> None:
        write = self._write
        if write is None:
            self._parse(data)
            return
        line = SIZE_LINES[len(data)]
        if not (data.startswith(line) and data.endswith(LINE_END)):
            self._pass_several(data)
            return
        self.last = self._now()
        try:
            write(data)
        except Exception as error:
            self.end(error)
            return
        written = self._written
        written.append(data[len(line) : _BEFORE_LINE_END])
        if len(written) >= _CHUNKS_AT_ONCE:
            self._note_written()

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        if self._consumer is not None:
            self.end()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _open(self, consumer: Consumer) -> None:
        """Let chunks pass the parser by, if it holds nothing: it has found as many bytes as have arrived, and the last
        chunk ended with them."""
        is_between = self._chunks.is_at_start and self._chunks.body_bytes == self._content.total_bytes
        self._write = consumer.chunk_writer(self._shut) if is_between else None

    def _pass_several(self, data: bytes) -> None:
        """On a busy machine, several chunks arrive at once."""
        at = 0
        while self._write is not None and (chunk := chunk_at(data, at)):
            self.data_received(chunk)
            at += len(chunk)
        if rest := data[at:]:
            self._parse(rest)

    def _shut(self) -> None:
        self._write = None

    def _note_written(self) -> None:
        if self._written and self._consumer is not None:
            written, self._written = self._written, []
            self._consumer.note_written(written)

    def _parse(self, data: bytes) -> None:
        """Slow path: parse, then hand over whatever was parsed."""
        consumer = self._consumer
        self._chunks.follow(data)
        self._protocol.data_received(data)
        if consumer is None:
            return
        self._note_written()
        content = self._content
        self.last = self._now()
        try:
            # More than once if the library has held something back.
            while content.total_bytes > self.read_bytes and consumer.is_ready and content.exception() is None:
                piece = content.read_nowait()
                self.read_bytes += len(piece)
                consumer.take(piece)
        except Exception as error:
            self.end(error)
            return
        if content.total_bytes > self.read_bytes or content.is_eof() or content.exception() is not None:
            self.end()
        else:
            self._open(consumer)


LINE_END: Final = b"\r\n"
_BEFORE_LINE_END: Final = -len(LINE_END)
LONGEST_CHUNK: Final = 2_048
"""Largest forwarded unparsed, with its framing: some are kept until they are recorded, and longer ones gain less."""
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LONGEST_SIZE_LINE: Final = 10
_END_OF_HEAD: Final = b"\r\n\r\n"
_INTERIM: Final = b"HTTP/1.1 1"
"""How a head begins that another one follows."""
_HEAD_BYTES: Final = 16 * 1024
"""Limit for what is kept of heads that are incomplete: hardly any is longer."""


class _SizeLines(dict[int, bytes | tuple[()]]):
    """Maps the length of a read to the line with which it begins if it is exactly one chunk with a body, its size in
    lower case and without leading zeros; if there is none, to an empty tuple, with which no bytes begin.

    >>> lines = _SizeLines()
    >>> lines[len(b"b\\r\\nhello world\\r\\n")], lines[len(b"0\\r\\n\\r\\n")]
    (b'b\\r\\n', ())
    """

    def __missing__(self, length: int) -> bytes | tuple[()]:
        if length > LONGEST_CHUNK:
            return ()
        found: bytes | tuple[()] = ()
        for digits in range(1, 5):
            size = length - digits - 2 * len(LINE_END)
            line = b"%x\r\n" % max(size, 0)
            if size > 0 and len(line) == digits + len(LINE_END):
                found = line
        self[length] = found
        return found


SIZE_LINES: Final = _SizeLines()
"""Looked up for each event of a stream."""


def chunk_at(data: bytes, at: int) -> bytes:
    """The whole chunk that begins here, if its length has a line in `SIZE_LINES`, with which it begins; else nothing.

    >>> chunk_at(b"2\\r\\nhi\\r\\n3\\r\\nyou\\r\\n", 7)
    b'3\\r\\nyou\\r\\n'
    """
    line = _SIZE_LINE.match(data, at)
    chunk = data[at : line.end() + int(line[1], 16) + len(LINE_END)] if line is not None else b""
    return chunk if chunk.startswith(SIZE_LINES[len(chunk)]) and chunk.endswith(LINE_END) else b""


def body_of(chunk: bytes) -> bytes:
    """The content of a chunk whose length has a line in `SIZE_LINES`, with which it begins.

    >>> body_of(b"5\\r\\nhello\\r\\n")
    b'hello'
    """
    return chunk[len(SIZE_LINES[len(chunk)]) : -len(LINE_END)]


class Chunks(Struct):
    """Follows the bytes of one response, with its interim heads, from its first byte.

    >>> chunks = Chunks()
    >>> chunks.follow(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nhi\\r\\n")
    >>> chunks.is_at_start, chunks.body_bytes
    (True, 2)
    >>> chunks.follow(b"5\\r\\nwor")
    >>> chunks.is_at_start, chunks.body_bytes
    (False, 5)
    """

    is_at_start: bool = False
    """Whether the next byte begins a chunk."""
    body_bytes: int = 0
    """Size of the body followed so far, without its framing."""
    _is_in_body: bool = False
    _is_lost: bool = False
    _left: int = 0
    """Bytes that are to come of a chunk, with its line end."""
    _rest: bytes = b""
    """The beginning of a head or of a size line."""

    def follow(self, data: bytes) -> None:
        """The next bytes."""
        if self._is_lost:
            return
        data, self._rest = self._rest + data, b""
        is_head = not self._is_in_body and data.find(_END_OF_HEAD) >= 0
        if is_head and data.find(b"chunked") < 0 and not data.startswith(_INTERIM):
            self._is_lost = True  # as of each reply that has a length
            return
        at = 0 if self._is_in_body else self._skip_heads(data)
        while at < len(data) and not self._is_lost:
            at = self._skip_chunk(data, at) if self._left else self._read_size(data, at)
        self.is_at_start = self._is_in_body and not (self._left or self._rest or self._is_lost)

    def _skip_heads(self, data: bytes) -> int:
        """Where the body begins; the end of the bytes if they do not reach so far."""
        at = 0
        while not self._is_in_body and not self._is_lost:
            end = data.find(_END_OF_HEAD, at)
            if end < 0:
                self._rest, self._is_lost = data[at:], len(data) - at > _HEAD_BYTES
                return len(data)
            head = data[at:end]
            at = end + len(_END_OF_HEAD)
            if not _is_interim(head):
                self._is_in_body = _is_chunked(head)
                self._is_lost = not self._is_in_body
        return at

    def _skip_chunk(self, data: bytes, at: int) -> int:
        step = min(self._left, len(data) - at)
        before, self._left = self._left, self._left - step
        self.body_bytes += max(before - len(LINE_END), 0) - max(self._left - len(LINE_END), 0)
        return at + step

    def _read_size(self, data: bytes, at: int) -> int:
        line = _SIZE_LINE.match(data, at)
        if line is None:
            self._rest, self._is_lost = data[at:], len(data) - at >= _LONGEST_SIZE_LINE
            return len(data)
        size = int(line[1], 16)
        self._left = size + len(LINE_END)
        self._is_lost = size == 0  # the end, and perhaps trailers
        return line.end()


def _is_interim(head: bytes) -> bool:
    return head.startswith(_INTERIM) and not head.startswith(b"HTTP/1.1 101") and _has_plain_lines(head)


def _is_chunked(head: bytes) -> bool:
    """Whether a head says, in a form that no parser reads in another way, that its body comes in chunks."""
    if b"chunked" not in head or not head.startswith(b"HTTP/1.1 ") or not _has_plain_lines(head):
        return False
    lines = [line.replace(b" ", b"") for line in head.lower().split(LINE_END)]
    about_length = [line for line in lines if line.startswith((b"transfer-encoding", b"content-length"))]
    return about_length == [b"transfer-encoding:chunked"]


def _has_plain_lines(head: bytes) -> bool:
    """Whether no line ends in another way, where some parsers would see the end of the head."""
    return head.count(b"\n") == head.count(b"\r") == head.count(LINE_END)
