"""Notices at once that a client has left, and stops the work for it.

Rule: the upstream must not go on computing for nobody. A framework that awaits a response does not watch its client;
here its connection tells, or, on a server that has no such connections, a second task waits for the server's message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from starlette.types import Receive, Scope

from proxy.errors import ClientLeft

STATE_KEY: Final = "connection"
"""Of the client's connection in `scope["state"]`."""


class Losable(Protocol):
    """A connection that tells when it is lost."""

    @property
    def is_writable(self) -> bool:
        """Whether what is sent now goes out without waiting for the client to read."""

    @property
    def has_whole_request(self) -> bool:
        """Whether the body of the request that is under way has arrived."""

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        """What takes whole chunks of the response that is under way, with their framing, until `stop` is called, which
        happens when the connection is no longer writable; None if the response is not sent in chunks, or its head waits
        to be sent with what follows."""

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole response, as two messages of ASGI would; False if only those can."""

    def when_lost(self, then: Callable[[], None] | None) -> None:
        """From now on, call this when the connection is lost, and soon if it is lost already; None: call nothing."""


def connection_of(scope: Scope) -> Losable | None:
    """The connection of a request; None if the server is not ours."""
    found: Losable | None = scope.get("state", {}).get(STATE_KEY)
    return found


class UntilClientLeaves:
    """`async with UntilClientLeaves(receive):` runs its body, and raises ClientLeft in it when the client leaves.

    Without a `connection`, messages are received while watching and thrown away, so watching begins only when the body
    has been read: at once, or after the event that signals it. Call `release` before sending the last byte of the
    response: servers report the end of a response with the same message as a client's departure.
    """

    def __init__(self, receive: Receive, after: asyncio.Event | None = None, connection: Losable | None = None) -> None:
        """`connection`: the client's, which costs less than a task for each request."""
        self.connection = connection
        self._receive = receive
        self._after = after
        self._left = False
        self._starting: asyncio.Handle | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "runs inside a task"
        self._task = task
        if self.connection is not None:
            self.connection.when_lost(self._leave)
        else:
            # In the loop's next turn, when the request is on its way: before that nothing could be stopped.
            self._starting = asyncio.get_running_loop().call_soon(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
        if self._left and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise ClientLeft("the client closed its connection before the response was complete") from None

    def release(self) -> None:
        """Stop watching."""
        if self.connection is not None:
            self.connection.when_lost(None)
        if self._starting is not None:
            self._starting.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _start(self) -> None:
        self._watch = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        if self._after is not None:
            await self._after.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._left = True
        self._task.cancel()
