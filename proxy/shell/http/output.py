"""The socket as uvicorn's protocol writes to it: the head of a response leaves with what follows it in the same turn of
the loop. A body that fits beside its head costs one system call, and wakes its client once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Output:
    """What uvicorn's protocol calls of its transport."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = transport
        self._loop = loop
        self._head: bytes | None = None
        """A head that is held."""
        self.write: Callable[[bytes], None] = (
            transport.write
        )  # replaced while a head is held: else nothing is in between
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    @property
    def direct(self) -> Callable[[bytes], None] | None:
        """What writes to the socket; None while a head is held."""
        return self._socket.write if self._head is None else None

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Write a whole response, of which no head is held."""
        self.write = self._socket.write
        self._socket.writelines((head, body))

    def hold_next(self) -> None:
        """What is written next is the head of a response."""
        self.write = self._hold

    def _hold(self, data: bytes) -> None:
        self._head = data
        self.write = self._send_with_head
        self._loop.call_soon(self._send_head)

    def _send_with_head(self, data: bytes) -> None:
        head, self._head = self._head or b"", None
        self.write = self._socket.write
        self._socket.writelines((head, data))

    def _send_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self.write = self._socket.write
            self._socket.write(head)

    def write_eof(self) -> None:
        self._send_head()
        self._socket.write_eof()

    def close(self) -> None:
        self._send_head()
        self._socket.close()
