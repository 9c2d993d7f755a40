"""The body of a request: read up to a limit, or streamed on unread.

Rule: memory is bounded by `server.max_body_bytes`; `unpacking.py` applies the same limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.types import Receive

from proxy.errors import BodyTooLarge, ClientLeft, RequestTimeout
from proxy.shell.resources.workload import Share

_DISCARDED_BYTES: Final = 1024 * 1024
_DISCARD_SECONDS: Final = 5.0
"""As nginx's lingering_timeout: https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_timeout"""


async def read_body(
    receive: Receive, announced_bytes: int, limit_bytes: int, pause_seconds: float | None, share: Share | None = None
) -> bytes:
    """The whole body; each piece of it waits for room in the `share`. Raises BodyTooLarge, before reading if the length
    is announced; ClientLeft; and RequestTimeout if the client pauses for this long, not counting the time for which it
    is held up. `pause_seconds` None: all of it has arrived."""
    if announced_bytes > limit_bytes:
        raise too_large(f"{announced_bytes:,} bytes", limit_bytes)
    pieces: list[bytes] = []
    length, more = 0, True
    while more:
        piece, more = await _next_piece(receive, pause_seconds, share)
        length += len(piece)
        if length > limit_bytes:
            raise too_large(f"more than {limit_bytes:,} bytes", limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


class Received:
    """The body of a request as it came. It is passed on like this, so that nobody holds a body that may go."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.held_bytes = len(body)

    def become(self, body: bytes) -> None:
        """What is held elsewhere, too, need not be held twice."""
        self.body, self.held_bytes = body, 0

    def set_aside(self) -> object:
        """Take out the body."""
        body, self.body = self.body, b""
        return body

    def put_back(self, content: object) -> None:
        """What `set_aside` returned, or a copy of it."""
        assert isinstance(content, bytes), "what was taken out"
        self.body = content


class BodyStream:
    """The body in the pieces that arrive."""

    def __init__(self, receive: Receive, pause_seconds: float) -> None:
        self._receive = receive
        self._pause_seconds = pause_seconds
        self.finished = asyncio.Event()
        """Set once the whole body has been taken."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces. Raises ClientLeft if the body breaks off, and RequestTimeout if the client pauses for too long;
        the time that the reader takes does not count."""
        while not self.finished.is_set():
            piece, more = await _next_piece(self._receive, self._pause_seconds)
            if not more:
                self.finished.set()
            if piece:
                yield piece

    async def discard(self) -> None:
        """Read the rest and throw it away, if it is short: the system resets a connection that is closed with bytes
        unread, and the client then loses the response that says why nobody read them."""
        left = _DISCARDED_BYTES
        with contextlib.suppress(ClientLeft, RequestTimeout, TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for piece in self:
                    left -= len(piece)
                    if left <= 0:
                        return


async def _next_piece(receive: Receive, pause_seconds: float | None, share: Share | None = None) -> tuple[bytes, bool]:
    """The next piece of a body, and whether more will follow. Raises ClientLeft and RequestTimeout."""
    try:
        if share is not None:
            message = await share.next_message(receive, pause_seconds)
        else:
            async with asyncio.timeout(pause_seconds):
                message = await receive()
    except TimeoutError:
        said = f"nothing of the request's body arrived for {pause_seconds:g} s (server.body_timeout_seconds)"
        also = "" if share is None else ", or too little while others waited"
        raise RequestTimeout(said + also) from None
    if message["type"] == "http.disconnect":
        raise ClientLeft("the client closed its connection before its request was complete")
    return message.get("body", b""), message.get("more_body", False)


def too_large(found: str, limit_bytes: int) -> BodyTooLarge:
    """The error for a client whose body has `found`."""
    return BodyTooLarge(f"the body has {found}; at most {limit_bytes:,} are read (server.max_body_bytes)")
