"""A stream of a reply: pieces of bytes → whole events, in the framing of an API.

Rule: the events of a stream, joined, are the bytes of the stream; nothing is normalised, so they can be passed on.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, Final


class Splitter(ABC):
    """Takes pieces of a stream and returns the events that are complete."""

    stays_bytes: ClassVar[int] = 0
    """The last bytes of an incomplete event are never passed on: its end, or what is sought in it, may begin there."""

    def __init__(self) -> None:
        self._kept = bytearray()

    @abstractmethod
    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes, each with what ends it."""

    @property
    def held_bytes(self) -> int:
        """The number of bytes of an incomplete event so far."""
        return len(self._kept)

    def holds(self, sought: bytes) -> bool:
        """Whether the incomplete event contains these bytes so far."""
        return sought in self._kept

    def release(self) -> bytes:
        """Takes out what there is of an incomplete event; once it is complete, `feed` returns the rest of it."""
        count = max(0, len(self._kept) - self.stays_bytes)
        released = bytes(memoryview(self._kept)[:count])
        del self._kept[:count]
        return released

    @property
    def rest(self) -> bytes:
        """The incomplete event at the end of the input."""
        return bytes(self._kept)


class Framing(ABC):
    """How the replies of an API are streamed."""

    content_type: ClassVar[bytes]
    """Type of a stream."""
    sign: ClassVar[bytes]
    """The part of the content-type by which a stream is recognised."""
    comment: ClassVar[bytes] = b""
    """Keep-alive bytes that clients skip; empty if they skip nothing."""
    splitter: ClassVar[type[Splitter]]

    @staticmethod
    @abstractmethod
    def data_of(event: bytes, /) -> bytes:
        """The content of an event; empty if it has none."""

    def is_stream(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a response is a stream, by its headers with names in lower case."""
        return dict(headers).get(b"content-type", b"").lower().find(self.sign) >= 0

    def begins_stream(self, _: bytes) -> bool:
        """Whether a body that begins like this is a stream, whatever its headers say."""
        return False

    def quiet_bytes(self, _: bytes) -> int:
        """How many bytes at the beginning of a stream have no content and may be passed on before the rest; 0 if
        content has begun."""
        return 0


# Server-sent events

_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_QUIET_LINES: Final = re.compile(rb"(?:\n+|(?:\r\n)+|(?::[^\r\n]*)?(?:\r\n|\n|\r(?=[^\n])))*+")
"""Whole lines of a stream without content: `: OPENROUTER PROCESSING`, `: keep-alive`, blank ones. A carriage return at
the end waits for the line feed that may follow. https://openrouter.ai/docs/api-reference/streaming"""
_BEGIN_QUIET_LINES: Final = (b":", b"\n", b"\r")
_SIGNS_OF_A_BLANK_LINE: Final = (b"\n\n", b"\n\r", b"\r\r")
"""Every blank line contains one of these, at its first or second byte."""
_LONGEST_BLANK_LINE: Final = len(b"\r\n\r\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""May precede the first event of a stream."""
_EVENT_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
"""A body that begins with one of these is a stream of events, whatever its content-type: some servers send none, or
`application/json` as for their other errors."""


class EventSplitter(Splitter):
    """Takes pieces of a stream and returns the events that are complete, each with the blank line that ends it; the
    blank lines and comments before one are an event of their own, all together: a server may send millions.

    >>> splitter = EventSplitter()
    >>> splitter.feed(b"data: a\\n")
    []
    >>> splitter.feed(b"\\ndata: b\\n\\ndata: c")
    [b'data: a\\n\\n', b'data: b\\n\\n']
    >>> splitter.rest
    b'data: c'

    >>> splitter = EventSplitter()
    >>> splitter.feed(b"data: a very long event\\n"), splitter.release(), splitter.feed(b"\\n")
    ([], b'data: a ', [b'very long event\\n\\n'])
    """

    stays_bytes = 16

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes."""
        searched = max(0, len(self._kept) - _LONGEST_BLANK_LINE + 1)  # at least one byte of it is new
        self._kept += piece
        sign = self._sign(searched)
        if sign < 0:
            return []
        events: list[bytes] = []
        start, at, kept = 0, max(searched, sign - 1), self._kept
        while (blank := _BLANK_LINE.search(kept, at)) is not None:
            at = blank.end()
            if at == len(kept) and kept.endswith(b"\r"):
                break  # a line feed that belongs to this line end may follow
            if bytes(kept[start : start + 1]) in _BEGIN_QUIET_LINES:
                quiet = _end_of_quiet_lines(kept, start)
                events.append(bytes(kept[start:quiet]))
                start, at = quiet, max(at, quiet)
            if start < at:
                events.append(bytes(kept[start:at]))
                start = at
        del kept[:start]
        return events

    def _sign(self, at: int) -> int:
        """Where a blank line may be, from `at` on; -1: nowhere. The pattern alone takes 60 ns per byte."""
        if self._kept.find(b"\n", at) < 0 and self._kept.find(b"\r", at) < 0:
            return -1
        found = [place for sign in _SIGNS_OF_A_BLANK_LINE if (place := self._kept.find(sign, at)) >= 0]
        return min(found, default=-1)


def _end_of_quiet_lines(stream: bytes | bytearray, start: int) -> int:
    found = _QUIET_LINES.match(stream, start)
    return start if found is None else found.end()


def data_of(event: bytes) -> bytes:
    """The data of an event, its lines joined by line feeds; empty for comments.

    >>> data_of(b"event: x\\ndata: 1\\r\\ndata:2\\n\\n")
    b'1\\n2'
    """
    if event.find(b"data") < 0:
        return b""
    if event[:1] in _BEGIN_QUIET_LINES:  # perhaps a million of them
        event = event[_end_of_quiet_lines(event, 0) :]
    lines = event.removeprefix(_BYTE_ORDER_MARK).splitlines()
    return b"\n".join(
        line[5:].removeprefix(b" ") if line.startswith(b"data:") else b""
        for line in lines
        if line == b"data" or line.startswith(b"data:")
    )


class ServerSentEvents(Framing):
    """https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream"""

    content_type = b"text/event-stream"
    sign = b"event-stream"
    comment = b": keepalive\n\n"
    splitter = EventSplitter
    data_of = staticmethod(data_of)

    def begins_stream(self, body: bytes) -> bool:
        """Recognise a stream by the name of a field, or a comment."""
        return body.lstrip().startswith(_EVENT_FIELDS)

    def quiet_bytes(self, begun: bytes) -> int:
        """Blank lines and comments. A comment that is incomplete waits, as does a carriage return at the end."""
        count = _end_of_quiet_lines(begun, 0)
        return count if begun[count : count + 1] in (b"", b":") or begun[count:] == b"\r" else 0


SSE: Final[Framing] = ServerSentEvents()


# Any framing

TAIL_BYTES: Final = 16 * 1024
"""The last bytes of a stream, which contain its end; final events are short, except for thought signatures."""


class Tail:
    """The end of a stream of pieces: at least this many bytes and fewer than three times as many, or this many pieces.

    >>> tail = Tail(4, 3)
    >>> for piece in (b"0123456789", b"ab", b"c"):
    ...     tail.add(piece)
    >>> tail.joined, tail.joined_of(1)
    (b'6789abc', b'c')
    """

    def __init__(self, most_bytes: int, most_pieces: int) -> None:
        self._most_bytes = most_bytes
        self._small_bytes = 2 * most_bytes // most_pieces
        self._pieces: deque[bytes] = deque(maxlen=most_pieces)

    def add(self, piece: bytes) -> None:
        """Add the next piece. Its end does not keep a large piece alive."""
        pieces = self._pieces
        if len(piece) <= self._small_bytes:
            pieces.append(piece)  # like nearly all events: however many are held, they are not too long
            return
        pieces.append(piece if len(piece) <= self._most_bytes else piece[-self._most_bytes :])
        held_bytes = sum(map(len, pieces))
        while held_bytes - len(pieces[0]) >= self._most_bytes:
            held_bytes -= len(pieces.popleft())

    @property
    def joined(self) -> bytes:
        """The end."""
        return b"".join(self._pieces)

    def joined_of(self, pieces: int) -> bytes:
        """The end, of at most so many pieces."""
        return b"".join(list(self._pieces)[-pieces:])
