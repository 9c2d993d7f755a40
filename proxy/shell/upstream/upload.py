"""Bodies on their way upstream, as the HTTP client takes them: streamed ones piece by piece.

Rule: while the client sends, the client's time runs; while the upstream receives, the upstream's. Only `upstream.py`
uses this module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from aiohttp.payload import BytesPayload, Payload

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


class Whole(BytesPayload):
    """A body in one write. aiohttp's own class warns about every body over 1 MB."""

    def __init__(self, body: bytes) -> None:
        Payload.__init__(self, body, content_type="application/octet-stream")
        self._size = len(body)
