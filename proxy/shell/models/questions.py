"""Asks an upstream about itself: one client for a group of questions, each bounded in time and size.

Rule: a key goes to the upstream's own host and nowhere else; a redirect counts as a response like any other. The reason
for a failure is given in words that contain neither key nor content.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from proxy.core.text import jsontext

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS: Final = 10.0
"""For one question, including the response's body."""

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Ten times the longest list of models in the field."""


class NoAnswer(Exception):
    """Why there is no answer; `status` if the upstream responded at all."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Questions:
    """The questions that one upstream can be asked while its client is open."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, url: str) -> bytes:
        """The body of a 200. Raises NoAnswer."""
        return await self._asked("GET", url, None, TIMEOUT_SECONDS)

    async def maybe(self, url: str) -> bytes:
        """The body of a 200; empty if there is none."""
        with contextlib.suppress(NoAnswer):
            return await self.get(url)
        return b""

    async def maybe_post(self, url: str, members: Mapping[str, Any], seconds: float = TIMEOUT_SECONDS) -> bytes:
        """The same for a JSON object that is posted, within this many seconds."""
        with contextlib.suppress(NoAnswer):
            return await self._asked("POST", url, jsontext.dump(members), seconds)
        return b""

    async def _asked(self, method: str, url: str, content: bytes | None, seconds: float) -> bytes:
        import httpx  # noqa: PLC0415 - see asking

        headers = {b"content-type": b"application/json"} if content is not None else {}
        body = bytearray()
        try:
            async with self._client.stream(method, url, content=content, headers=headers, timeout=seconds) as response:
                if response.status_code != 200:
                    raise NoAnswer(f"it answered {response.status_code}", response.status_code)
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise NoAnswer(f"its answer is longer than {MAX_ANSWER_BYTES} bytes", response.status_code)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # The errors' texts may quote what was sent; their names do not.
            raise NoAnswer(type(error).__name__) from None
        return bytes(body)


@contextlib.asynccontextmanager
async def asking(base_url: str, key_headers: Mapping[bytes, bytes]) -> AsyncIterator[Questions]:
    """A client for a group of questions; `key_headers` carry the key, if there is one. Raises NoAnswer if none can be
    made.

    It is made in a thread: the first import of httpx takes 0.3 s, reading the certificates 20 ms; neither a start nor a
    request should wait for that.
    """
    headers = {b"accept": b"application/json", **key_headers}
    client = await asyncio.to_thread(_client, headers, speaks_tls=base_url.startswith("https"))
    async with client:
        yield Questions(client)


def _client(headers: Mapping[bytes, bytes], *, speaks_tls: bool) -> httpx.AsyncClient:
    import httpx  # noqa: PLC0415 - 0.1 s of the start, and this is asked in the background

    try:
        return httpx.AsyncClient(headers=headers, verify=speaks_tls)
    except (OSError, ValueError) as error:
        raise NoAnswer(f"no client could be made: {type(error).__name__}") from None
