"""Asks an upstream about itself: one client for a group of questions, each bounded in time and size.

Rule: a key goes to the upstream's own host and nowhere else; a redirect counts as a response like any other. The reason
for a failure is given in words that contain neither key nor content.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from proxy.core.text import jsontext
from proxy.shell.upstream.client import cause_of, environment_proxy
from proxy.shell.upstream.exchange import MAX_HEADER_BYTES, MAX_HEADERS

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
    """The questions that one upstream can be asked while its session is open."""

    def __init__(self, session: aiohttp.ClientSession, headers: Mapping[str, str], proxy: str | None) -> None:
        self._session = session
        self.headers = headers
        self._proxy = proxy

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
        kind = {"content-type": "application/json"} if content is not None else {}
        body = bytearray()
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                data=content,
                headers={**self.headers, **kind},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds),
                proxy=self._proxy,
            ) as response:
                if response.status != 200:
                    raise NoAnswer(f"it answered {response.status}", response.status)
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        raise NoAnswer(f"its answer is longer than {MAX_ANSWER_BYTES} bytes", response.status)
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            raise NoAnswer(cause_of(error)) from None
        return bytes(body)


@contextlib.asynccontextmanager
async def asking(base_url: str, key_headers: Mapping[bytes, bytes]) -> AsyncIterator[Questions]:
    """A session for a group of questions; `key_headers` carry the key, if there is one."""
    speaks_tls = base_url.startswith("https")
    connector = aiohttp.TCPConnector(
        # In a thread: reading the certificates takes 20 ms, and neither a start nor a request should wait for that.
        ssl=await asyncio.to_thread(ssl.create_default_context) if speaks_tls else False,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_field_size=MAX_HEADER_BYTES,
        max_line_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
    ) as session:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in key_headers.items()}
        yield Questions(session, {"accept": "application/json", **headers}, environment_proxy(base_url))
