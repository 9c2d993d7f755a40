"""Bodies on their way upstream, as the HTTP client takes them: streamed ones piece by piece.

Rule: while the client sends, the client's time runs; while the upstream receives, the upstream's. A whole body is let
go of as soon as it is written: its response may take minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.errors import ClientError


class Upload:
    """A streamed body that remembers why it broke off: the HTTP client only reports that it did."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self.failure: ClientError | None = None
        self.wait_for_upstream: Callable[[], None] = lambda: None
        """Called with each piece that the upstream has to receive, and when it has to respond: its time runs."""
        self.wait_for_client: Callable[[], None] = lambda: None
        """Called when the client has to send more."""

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._body:
                self.wait_for_upstream()
                yield piece
                self.wait_for_client()
        except ClientError as error:
            self.failure = error
            raise
        self.wait_for_upstream()


class Outgoing:
    """A whole body, until it is written."""

    def __init__(self, body: bytes, sent: Callable[[], Awaitable[None]] | None = None) -> None:
        """`sent` is called once it is written."""
        self.length = len(body)
        self._body = body
        self._sent = sent

    def take(self) -> bytes:
        """The body, for one who writes it at once: it is not kept."""
        body, self._body = self._body, b""
        return body

    async def written(self) -> None:
        """It is written."""
        if self._sent is not None:
            await self._sent()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The same for an HTTP client that takes pieces."""
        yield self.take()
        await self.written()
