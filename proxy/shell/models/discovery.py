"""Asks the upstream for its list of models, beside the requests and never in the way of one.

Rule: at most one question at a time, and one in ten minutes once it was answered; a client's key is used for the one
question that its request set off, and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from proxy.core.jsontext import NotJson
from proxy.core.providers import is_own_server
from proxy.settings import UpstreamSettings
from proxy.shell.telemetry.logs import logger
from proxy.wire import model_list
from proxy.wire.model_list import Limits, ModelList

if TYPE_CHECKING:
    import httpx

REFRESH_SECONDS: Final = 600.0
"""A local server that was started again with another window is noticed within ten minutes of use; a hosted list does
not change more often, and OpenRouter's is half a megabyte."""

RETRY_SECONDS: Final = 30.0
"""After no answer at all: a container that starts together with the proxy needs a minute or two to load its model."""

TIMEOUT_SECONDS: Final = 10.0
"""For the whole question, body included."""

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Ten times the longest list in the field."""

_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that another try may cure soon."""


class _NoAnswer(Exception):
    """Why there is no list, in words that hold neither key nor content; `status` when the upstream spoke at all."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Discovery:
    """What one upstream says of its models, as far as it was asked."""

    def __init__(
        self,
        upstream: UpstreamSettings,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base_url = upstream.base_url
        self._key = upstream.api_key.get_secret_value() if upstream.api_key else None
        self._on_change = on_change
        self._clock = clock
        self._list = ModelList()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._question: asyncio.Task[None] | None = None
        self._due = 0.0
        self._needs_client_key = False

    @property
    def names(self) -> tuple[str, ...]:
        """The models that the upstream lists, in its order; empty before it was asked."""
        return tuple(self._list.models)

    def limits(self, model: str) -> Limits:
        """What the upstream says of this model."""
        return self._list.limits(model)

    def start(self) -> None:
        """Ask now, and from now on whenever `nudge` or `offer_key` says so. Needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self.nudge()

    def nudge(self) -> None:
        """A request came: ask when it is time to. From any thread, in less than a microsecond."""
        loop = self._loop
        if loop is not None and not self._needs_client_key and self._clock() >= self._due:
            loop.call_soon_threadsafe(self._spawn, self._bearer())

    def offer_key(self, authorization: bytes) -> None:
        """A request came with this `Authorization` header: ask with it, if the upstream wants a key and none is set."""
        loop = self._loop
        if loop is not None and self._needs_client_key and authorization and self._clock() >= self._due:
            loop.call_soon_threadsafe(self._spawn, authorization)

    async def close(self) -> None:
        """Give up the question that is under way."""
        self._loop = None
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)

    async def ask(self, authorization: bytes | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
        """Ask once; None when the upstream answered with a list, else why it did not. Never raises for the upstream."""
        authorization = authorization or self._bearer()
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await self._asked(authorization)
        except _NoAnswer as no:
            self._due, self._needs_client_key = self._after(no, authorization)
            return str(no)
        except TimeoutError:
            self._due = self._clock() + RETRY_SECONDS
            return f"no answer within {timeout_seconds:g} s"
        self._due = self._clock() + REFRESH_SECONDS
        if found != self._list:
            self._list = found
            self._on_change()
        return None

    async def _ask_in_background(self, authorization: bytes | None) -> None:
        failure = await self.ask(authorization)
        if failure is None:
            logger().debug("models_listed", models=len(self.names), with_window=self._list.states_a_window)
        else:
            logger().debug("models_not_listed", reason=failure)

    def _spawn(self, authorization: bytes | None) -> None:
        if self._loop is None or self._clock() < self._due:
            return
        self._due = float("inf")
        self._question = self._loop.create_task(self._ask_in_background(authorization))

    def _after(self, no: _NoAnswer, authorization: bytes | None) -> tuple[float, bool]:
        """When to ask next, and whether a client's key is needed for it."""
        if self._key is None and no.status in (401, 403):
            return (self._clock() + RETRY_SECONDS if authorization else 0.0), True
        soon = no.status is None or no.status in _LATER
        return self._clock() + (RETRY_SECONDS if soon else REFRESH_SECONDS), self._needs_client_key

    def _bearer(self) -> bytes | None:
        return b"Bearer " + self._key.encode() if self._key else None

    async def _asked(self, authorization: bytes | None) -> ModelList:
        headers = {b"accept": b"application/json"} | ({b"authorization": authorization} if authorization else {})
        client = await asyncio.to_thread(_client, headers)
        import httpx  # noqa: PLC0415 - see _client

        try:
            async with client:
                found = await _fetch(client, f"{self._base_url}/models")
                if found.states_a_window or not is_own_server(self._base_url):
                    return found
                # LM Studio states windows in its own API only: lmstudio.ai/docs/api/rest-api. Others have no such path.
                address = urlsplit(self._base_url)
                with contextlib.suppress(_NoAnswer):
                    native = await _fetch(client, f"{address.scheme}://{address.netloc}/api/v0/models")
                    return native if native.states_a_window else found
                return found
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Their texts may quote what was sent; their names do not.
            raise _NoAnswer(type(error).__name__) from None


def _client(headers: Mapping[bytes, bytes]) -> httpx.AsyncClient:
    """A client for one question. Raises _NoAnswer.

    For a thread: the first import of httpx takes 0.3 s, reading the certificates 20 ms; no start and no request shall
    wait for either.
    """
    import httpx  # noqa: PLC0415 - 0.1 s of the start, and this is asked in the background

    try:
        return httpx.AsyncClient(timeout=TIMEOUT_SECONDS, headers=headers)
    except (OSError, ValueError) as error:
        raise _NoAnswer(f"no client could be made: {type(error).__name__}") from None


async def _fetch(client: httpx.AsyncClient, url: str) -> ModelList:
    body = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise _NoAnswer(f"it answered {response.status_code}", response.status_code)
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise _NoAnswer(f"its list is longer than {MAX_ANSWER_BYTES} bytes", response.status_code)
    try:
        return model_list.parse(bytes(body))
    except NotJson:
        raise _NoAnswer("its answer is no list of models", response.status_code) from None
