"""Messages of HTTP/1.1 out of a connection's bytes, for both ends of the bench. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from httptools import HttpRequestParser, HttpResponseParser


@dataclass(slots=True)
class Message:
    """One request or response, as far as it was read."""

    method: str = ""
    target: str = ""
    """Both of a request."""
    status: int = 0
    """Of a response."""
    pieces: list[bytes] = field(default_factory=list)
    """The body without its chunk framing."""

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


class Reader:
    """Collects what llhttp finds; `parser`: of requests or of responses."""

    def __init__(self, parser: type[HttpRequestParser | HttpResponseParser] = HttpResponseParser) -> None:
        self.message = Message()
        self._whole: deque[Message] = deque()
        self._parser = parser(self)

    def feed(self, received: bytes) -> Message | None:
        """The message that `received` completes, or None; call again with b"" for another one in the same bytes. Raises
        HttpParserError."""
        if received:
            self._parser.feed_data(received)
        return self._whole.popleft() if self._whole else None

    def on_message_begin(self) -> None:
        self.message = Message()

    def on_url(self, url: bytes) -> None:
        self.message.target += url.decode("latin-1")

    def on_headers_complete(self) -> None:
        if isinstance(self._parser, HttpRequestParser):
            self.message.method = self._parser.get_method().decode()
        else:
            self.message.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.message.pieces.append(body)

    def on_message_complete(self) -> None:
        self._whole.append(self.message)
