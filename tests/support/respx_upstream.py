"""An upstream that sends with httpx, so that respx answers in place of a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast
from urllib.parse import urljoin

import httpx
from aiohttp.abc import AbstractStreamWriter

from proxy.shell.upstream import Headers, Outgoing, Upstream, UpstreamResponse


class RespxUpstream(Upstream):
    """Serves the questions about models: their targets begin at the root of the host."""

    async def send(
        self, method: str, target: bytes, headers: Headers, body: Outgoing | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        written = _Written()
        if isinstance(body, Outgoing):
            await body.write_to(cast("AbstractStreamWriter", written))
        async with httpx.AsyncClient() as client:
            url = urljoin(self.settings.base_url, target.decode())
            response = await client.request(method, url, headers=headers, content=written.content)
        return cast("UpstreamResponse", _Answer(response))


class _Written:
    """Takes a body, as a connection does."""

    content: bytes | None = None

    def send_headers(self) -> None:
        pass

    async def write(self, body: bytes) -> None:
        self.content = body


class _Answer:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = [(name.lower(), value) for name, value in response.headers.raw]
        self._content = response.content

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._content

    async def aclose(self) -> None:
        pass
