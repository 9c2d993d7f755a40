"""The part of HTTP/1.1 that both ends of the bench need: messages with a length, or in chunks. No I/O.

`Reader` takes bytes in any pieces and returns a message when it is complete; what follows it belongs to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Message:
    """One request or response, as far as it was read."""

    start_line: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    pieces: list[bytes] = field(default_factory=list)
    """The body without its chunk framing."""

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def status(self) -> int:
        return int(self.start_line.split(" ", 2)[1])


class MalformedMessage(Exception):
    """Bytes that are not an HTTP/1.1 message with a length or in chunks."""


class Reader:
    """Cuts a connection's bytes into messages; a body counts its bytes down, so that large ones are never searched."""

    def __init__(self) -> None:
        self.message = Message()
        self._buffer = b""
        self._left = 0
        self._chunked = False
        self._in_head = True

    def feed(self, received: bytes) -> Message | None:
        """The message that `received` completes, or None; call again with b"" for another one in the same bytes."""
        if self._in_head:
            self._buffer += received
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return None
            self._begin(head)
            self._buffer, received = b"", rest
        return self._chunks(received) if self._chunked else self._counted(received)

    def _begin(self, head: bytes) -> None:
        self._in_head = False
        start_line, *lines = head.decode("latin-1").split("\r\n")
        names_and_values = (line.partition(":") for line in lines)
        self.message = Message(start_line, {name.lower(): value.strip() for name, _, value in names_and_values})
        self._chunked = self.message.headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = 0 if self._chunked else int(self.message.headers.get("content-length", 0))

    def _counted(self, received: bytes) -> Message | None:
        piece, self._buffer = received[: self._left], received[self._left :]
        self._left -= len(piece)
        if piece:
            self.message.pieces.append(piece)
        return self._finish() if self._left == 0 else None

    def _chunks(self, received: bytes) -> Message | None:
        """`_left` counts the chunk including its line end; 0 means that a size line is next."""
        self._buffer += received
        while True:
            if self._left == 0:
                line, separator, rest = self._buffer.partition(b"\r\n")
                if not separator:
                    return None
                size = _chunk_size(line)
                if size == 0:
                    if not rest.startswith(b"\r\n"[: len(rest)]):
                        raise MalformedMessage("trailers after the last chunk")
                    if len(rest) < 2:
                        return None
                    self._buffer = rest[2:]
                    return self._finish()
                self._buffer, self._left = rest, size + 2
            if not self._buffer:
                return None
            taken = self._buffer[: self._left]
            content = taken[: max(0, self._left - 2)]  # the last two bytes are the line end
            if content:
                self.message.pieces.append(content)
            self._buffer = self._buffer[len(taken) :]
            self._left -= len(taken)

    def _finish(self) -> Message:
        self._in_head = True
        return self.message


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise MalformedMessage(f"no chunk size: {line[:40]!r}") from None
