"""Server-sent events: bytes in any pieces → whole events, and what an event says.

Rule: the events of a stream, joined, are the bytes of the stream; nothing is normalised, so that they can be passed on.
Framing after https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import re
from typing import Final

_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""May stand before the first event of a stream."""


class EventSplitter:
    """Takes pieces of a stream and gives back the events that are whole, each with the blank line that ends it.

    >>> splitter = EventSplitter()
    >>> splitter.feed(b"data: a\\n")
    []
    >>> splitter.feed(b"\\ndata: b\\n\\ndata: c")
    [b'data: a\\n\\n', b'data: b\\n\\n']
    >>> splitter.rest
    b'data: c'
    """

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes."""
        searched = max(0, len(self._kept) - 3)  # the longest blank line, less the byte that is new
        self._kept += piece
        events, start = [], 0
        for blank in _BLANK_LINE.finditer(self._kept, searched):
            if blank.end() == len(self._kept) and self._kept.endswith(b"\r"):
                break  # a line feed may follow that belongs to this line end
            events.append(bytes(self._kept[start : blank.end()]))
            start = blank.end()
        del self._kept[:start]
        return events

    @property
    def rest(self) -> bytes:
        """What has come of an event that is not whole yet; at the end of a stream, its last words."""
        return bytes(self._kept)


def data_of(event: bytes) -> bytes:
    """The data of an event, its lines joined by line feeds; empty for comments.

    >>> data_of(b"event: x\\ndata: 1\\r\\ndata:2\\n\\n")
    b'1\\n2'
    """
    lines = _LINE_END.split(event.removeprefix(_BYTE_ORDER_MARK))
    return b"\n".join(
        line[5:].removeprefix(b" ") if line.startswith(b"data:") else b""
        for line in lines
        if line == b"data" or line.startswith(b"data:")
    )
