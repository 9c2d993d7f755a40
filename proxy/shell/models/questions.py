"""Asks an upstream about itself over connections like those of requests, each question bounded in time and size.

Rule: a key goes to the upstream's own host and nowhere else; a redirect counts as a response like any other. The reason
for a failure is given in words that contain neither key nor content.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from proxy.config.upstreams import UpstreamSettings
from proxy.core.text import jsontext
from proxy.errors import ProxyError
from proxy.shell.upstream.client import Upstream, UpstreamResponse, WholePath

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
    """The questions that one upstream can be asked while its connections are open."""

    def __init__(self, upstream: Upstream, key_headers: Mapping[bytes, bytes]) -> None:
        self._upstream = upstream
        self._headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity"), *key_headers.items()]

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
        place = WholePath(b"/" + url.split("/", 3)[3].encode())
        headers = [*self._headers, (b"content-type", b"application/json")] if content is not None else self._headers
        try:
            async with asyncio.timeout(seconds):
                response = await self._upstream.send(method, place, headers, content)
                async with contextlib.aclosing(response):
                    return await _body(response)
        except ProxyError as error:
            raise NoAnswer(error.message) from None
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None


async def _body(response: UpstreamResponse) -> bytes:
    """Raises NoAnswer, and what reading it raises."""
    if response.status != 200:
        raise NoAnswer(f"it answered {response.status}", response.status)
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise NoAnswer(f"its answer is longer than {MAX_ANSWER_BYTES} bytes", response.status)
    return bytes(body)


@contextlib.asynccontextmanager
async def asking(
    settings: UpstreamSettings, key_headers: Mapping[bytes, bytes], connections: Upstream | None = None
) -> AsyncIterator[Questions]:
    """For a group of questions; `key_headers` carry the key, if there is one. Without the connections of the requests
    to this upstream, the group has its own."""
    async with contextlib.AsyncExitStack() as at_the_end:
        if connections is None:
            connections = Upstream(settings)
            at_the_end.push_async_callback(connections.aclose)
        yield Questions(connections, key_headers)
