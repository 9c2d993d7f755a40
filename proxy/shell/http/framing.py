"""Cuts the bytes of a connection into requests before the server's parser sees them, so that each head is bounded.

Rule: a head reaches the parser whole or not at all, and both find the same end of its body. What two readers could
frame differently (RFC 9112 11.2) is refused, never guessed: a lone line feed, a length that is not a plain number, both
a length and chunks. No I/O; a test compares every cut with httptools.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.errors import HeadTooLarge, MalformedRequest, UnknownCoding

MAX_HEADERS: Final = 200
"""Twice the limit of Apache (https://httpd.apache.org/docs/2.4/mod/core.html#limitrequestfields) and gunicorn
(https://docs.gunicorn.org/en/stable/settings.html#limit-request-fields): gateways add their own."""
_MAX_CHUNK_LINE_BYTES: Final = 4096
"""A length in hexadecimal, and extensions that nobody sends."""
_MAX_TRAILER_BYTES: Final = 8192
"""Of all lines after the last chunk: one of nginx's header buffers."""
_MANY_CHUNKS: Final = 50_000
"""From here on the average counts: so many take 0.1 s."""
_LEAST_CHUNK_BYTES: Final = 3
"""Even an encoder that sends each JSON token as a chunk, as Python's `iterencode` does, writes more."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_NEEDED: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|upgrade|expect)[ \t]*:[ \t]*([^\r\n]*)(?=\r\n)", re.IGNORECASE
)
"""The headers that state the length of a request, ask for another protocol, or have its body wait."""
_HTTP_2: Final = b"PRI "
"""How a client begins that speaks HTTP/2 without having asked (RFC 9113 3.4). No other method begins like this."""
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]{0,4000})?\r\n")


class Requests:
    """The requests of one connection, one after the other.

    >>> requests = Requests(max_head_bytes=1000)
    >>> requests.take(b"GET / HTTP/1.1\\r\\nhost:"), requests.is_between
    ((b'', b''), False)
    >>> requests.take(b" a\\r\\n\\r\\nGET /next"), requests.is_between
    ((b'GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n', b'GET /next'), True)
    """

    def __init__(self, max_head_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._head = bytearray()
        """An incomplete head, as far as it has arrived."""
        self._left = 0
        """Missing bytes of a body of known length."""
        self._chunks: _Chunks | None = None
        """The state of a chunked body."""
        self._waits = False
        """Whether the client has asked for a `100 Continue`, and nothing of its body has arrived."""

    @property
    def is_held_back(self) -> bool:
        """Whether a body may never arrive, because its client waits for leave to send it (RFC 9110 10.1.1)."""
        return self._waits and self.is_in_body

    @property
    def is_between(self) -> bool:
        """Whether the last request is complete and nothing of the next has arrived."""
        return not (self._head or self._left or self._chunks)

    @property
    def is_in_body(self) -> bool:
        """Whether a head has been passed and its body is incomplete."""
        return bool(self._left or self._chunks)

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Bytes as they arrive → (what the parser may have, what follows the end of this request).

        An incomplete head is kept, and nothing is passed on. Raises HeadTooLarge, MalformedRequest and UnknownCoding;
        after that the connection cannot be read any further.
        """
        if not self.is_in_body:
            return self._take_head(data)
        self._waits = False
        end = self._end_of_body(data, 0)
        return (data, b"") if end == len(data) else (data[:end], data[end:])

    def _take_head(self, data: bytes) -> tuple[bytes, bytes]:
        if not self._head:
            data = data.lstrip(b"\r\n")  # empty lines before a request are ignored: RFC 9112 2.2
            if not data:
                return b"", b""
            if not b"A" <= data[:1] <= b"Z":  # another protocol, such as TLS, whose head would never end
                raise MalformedRequest("this is no HTTP request")
            end = data.find(_END_OF_HEAD)
        else:
            searched = max(0, len(self._head) - len(_END_OF_HEAD) + 1)
            self._head += data
            end = self._head.find(_END_OF_HEAD, searched)
            data = bytes(self._head) if end >= 0 else b""
        if end < 0:
            self._head += data
            self._check(self._head)
            return b"", b""
        self._head.clear()
        end += len(_END_OF_HEAD)
        head = data[:end]
        self._check(head)
        if head.startswith(_HTTP_2):
            raise MalformedRequest("HTTP/2 is not spoken here; HTTP/1.1 is")
        told = self._begin(head)
        self._waits = self._waits and end == len(data)
        stop = self._end_of_body(data, end) if self.is_in_body else end
        if told is head:
            return (data, b"") if stop == len(data) else (data[:stop], data[stop:])
        return told + data[end:stop], data[stop:]

    def _check(self, head: bytes | bytearray) -> None:
        """Check the limits for a head, or for what has arrived of it."""
        if len(head) > self._max_head_bytes:
            raise HeadTooLarge(
                f"the head of the request has more than {self._max_head_bytes:,} bytes (server.max_header_bytes)"
            )
        lines = head.count(b"\r\n")
        if lines > MAX_HEADERS + 2:  # the request line, and the empty one
            raise HeadTooLarge(f"the request has more than {MAX_HEADERS} headers")
        if head.count(b"\n") != lines:
            raise MalformedRequest("a line of the request's head does not end with CR LF")

    def _begin(self, head: bytes) -> bytes:
        """Note the length of the body and return the head for the parser. Upgrades are not offered, so a request for
        one is ignored (RFC 9110 7.8). The parser would take what follows, body included, for the other protocol."""
        lengths, codings, wishes, waits = list[bytes](), list[bytes](), False, False
        for name, value in _NEEDED.findall(head):
            if len(name) == len(b"content-length"):
                lengths.append(value.rstrip(b" \t"))
            elif len(name) == len(b"upgrade"):
                wishes = True
            elif len(name) == len(b"expect"):
                waits = True
            else:
                codings += [coding.strip(b" \t").lower() for coding in value.split(b",")]
        if len(lengths) > 1 or (lengths and codings) or (lengths and not _LENGTH.fullmatch(lengths[0])):
            raise MalformedRequest("the request does not say plainly how long its body is")
        if codings and codings != [b"chunked"]:
            if codings[-1] != b"chunked" or codings.count(b"chunked") > 1:  # its end cannot be known: RFC 9112 6.3
                raise MalformedRequest("the request does not say plainly how long its body is")
            raise UnknownCoding("a request may have no transfer coding but chunked; Content-Encoding can be read")
        self._left = int(lengths[0]) if lengths else 0
        self._chunks = _Chunks() if codings else None
        self._waits = waits
        return _without_upgrade(head) if wishes else head

    def _end_of_body(self, data: bytes, at: int) -> int:
        """Where the body ends in `data`, from `at` on; the end of `data` if more follows."""
        if self._chunks is None:
            end = min(len(data), at + self._left)
            self._left -= end - at
            return end
        stop = self._chunks.end(data, at)
        if stop < 0:
            return len(data)
        self._chunks = None
        return stop


class _Chunks:
    """Finds the end of a chunked body: RFC 9112 7.1."""

    def __init__(self) -> None:
        self._left = 0
        """Missing bytes of a chunk, including its line end."""
        self._line = b""
        """An incomplete line, as far as it has arrived."""
        self._trailer_bytes = 0
        self._is_last = False
        self._count = self._body_bytes = 0

    def end(self, data: bytes, at: int) -> int:
        """Where the body ends in `data`, from `at` on; -1 if more follows. Raises MalformedRequest."""
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            if not self._line and not self._is_last:
                at = self._skip(data, at)
                if self._left or at == len(data):
                    continue
            stop = data.find(b"\n", at) + 1
            self._line += data[at : stop or len(data)]
            if len(self._line) > _MAX_CHUNK_LINE_BYTES:
                raise MalformedRequest("the request has a chunk that cannot be read")
            if not stop:
                return -1
            line, self._line, at = self._line, b"", stop
            if self._is_last and line == b"\r\n":
                return at
            self._read(line)
        return -1

    def _skip(self, data: bytes, at: int) -> int:
        """Where the chunks at `at` end, up to a line that is incomplete, broken or the last. One read may hold 40,000
        of them, during which the loop does nothing else."""
        end, match, count, total = len(data), _CHUNK_SIZE.match, self._count, self._body_bytes
        while at < end and (size := match(data, at)) and (length := int(size[1], 16)):
            if count >= _MANY_CHUNKS and total + length < _LEAST_CHUNK_BYTES * (count + 1):
                break  # it will be refused
            count += 1
            total += length
            at = size.end() + length + len(b"\r\n")
        self._count, self._body_bytes = count, total
        self._left = max(0, at - end)
        return min(at, end)

    def _read(self, line: bytes) -> None:
        """The line before a chunk, or one of the trailer."""
        if self._is_last:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise MalformedRequest(f"the request's trailer has more than {_MAX_TRAILER_BYTES:,} bytes")
            return
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise MalformedRequest("the request has a chunk that cannot be read")
        length = int(size[1], 16)
        self._count += length > 0
        self._body_bytes += length
        if self._count > _MANY_CHUNKS and self._body_bytes < _LEAST_CHUNK_BYTES * self._count:
            raise MalformedRequest(f"the request's chunks have less than {_LEAST_CHUNK_BYTES} bytes each on average")
        self._is_last = length == 0
        self._left = length + len(b"\r\n") if length else 0


def _without_upgrade(head: bytes) -> bytes:
    """A head without its `Upgrade`.

    >>> _without_upgrade(b"GET / HTTP/1.1\\r\\nUpgrade: h2c\\r\\nhost: a\\r\\n\\r\\n")
    b'GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n'
    """
    return b"\r\n".join(line for line in head.split(b"\r\n") if line[:7].lower() != b"upgrade" or line[7:8] != b":")
