"""Where the chunks of a response begin, found beside the parser that reads it: bytes that are one whole chunk can go on
as they are.

Rule: only the plain form of RFC 9112 7.1 is followed, without extensions and trailers; at anything else the following
ends for good, and the parser alone reads the response.
"""

from __future__ import annotations

import re
from typing import Final

LINE_END: Final = b"\r\n"
LONGEST_CHUNK: Final = 2_048
"""Of those that may go on as they are, with their framing: some are kept until they are noted, and for longer ones it
matters less."""
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LONGEST_SIZE_LINE: Final = 10
_END_OF_HEAD: Final = b"\r\n\r\n"
_HEAD_BYTES: Final = 16 * 1024
"""Limit for what is kept of heads that are incomplete: hardly any is longer."""


class _SizeLines(dict[int, bytes | tuple[()]]):
    """By the length of bytes, the line with which they begin if they are one whole chunk with a body, its size in lower
    case and without leading zeros; if there is none, an empty tuple, with which no bytes begin.

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
    """What a chunk contains whose length has a line in `SIZE_LINES`, with which it begins.

    >>> body_of(b"5\\r\\nhello\\r\\n")
    b'hello'
    """
    return chunk[len(SIZE_LINES[len(chunk)]) : -len(LINE_END)]


class Chunks:
    """Follows the bytes of one response, with its interim heads, from its first byte.

    >>> chunks = Chunks()
    >>> chunks.follow(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nhi\\r\\n")
    >>> chunks.is_at_start, chunks.body_bytes
    (True, 2)
    >>> chunks.follow(b"5\\r\\nwor")
    >>> chunks.is_at_start, chunks.body_bytes
    (False, 5)
    """

    __slots__ = ("_is_in_body", "_is_lost", "_left", "_rest", "body_bytes", "is_at_start")

    def __init__(self) -> None:
        self.is_at_start = False
        """Whether the next byte begins a chunk."""
        self.body_bytes = 0
        """Of the body, without its framing, as far as it was followed."""
        self._is_in_body = False
        self._is_lost = False
        self._left = 0
        """Bytes that are to come of a chunk, with its line end."""
        self._rest = b""
        """The beginning of a head or of a size line."""

    def follow(self, data: bytes) -> None:
        """The next bytes."""
        if self._is_lost:
            return
        data, self._rest = self._rest + data, b""
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
    return head.startswith(b"HTTP/1.1 1") and not head.startswith(b"HTTP/1.1 101") and _has_plain_lines(head)


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
