"""Recognises the kind of self-hosted server behind an upstream, and queries the windows that it has allocated.

Rule: only addresses that can be self-hosted servers are queried, outside their OpenAI paths. Queries change nothing,
except that they may load a model which the request at hand loads anyway; docs/own-servers.md has the table. Each is
bounded in time and size; a key goes to the upstream's own host only, redirects are not followed, and errors contain
neither key nor content.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.text import jsontext
from proxy.wire import own_servers as said
from proxy.wire.model_list import NOTHING, ModelLimits, ModelList

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
    """Queries to one upstream while its client is open."""

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
        """POST a JSON object; the body of a 200, empty if there is none within this many seconds."""
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
    import httpx  # noqa: PLC0415 - 0.1 s of the start, and this runs in the background

    try:
        return httpx.AsyncClient(headers=headers, verify=speaks_tls)
    except (OSError, ValueError) as error:
        raise NoAnswer(f"no client could be made: {type(error).__name__}") from None


LOAD_SECONDS: Final = 120.0
"""For loading a model, which the request for that model would wait for anyway."""


class OwnServer(Protocol):
    """A server of one kind at one address."""

    @property
    def says(self) -> str:
        """The phrase that names it as a source."""

    @property
    def wire(self) -> str:
        """The wire that is its own API; empty if it has none."""

    @property
    def by_name(self) -> bool:
        """Whether it can be queried for one model."""

    @property
    def lists_loaded(self) -> bool:
        """Whether it reports by itself what is loaded."""

    async def loaded(self, ask: Questions) -> ModelList:
        """Current allocations."""

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:
        """The allocation of one model, current or expected; `load`: whether it may be loaded to find out."""


class OneAnswer(Struct, frozen=True):
    """A server that reports everything in one response."""

    says: str
    url: str
    read: Callable[[bytes], ModelList]
    wire: str = ""
    by_name: bool = False
    lists_loaded: bool = True

    async def loaded(self, ask: Questions) -> ModelList:
        return self.read(await ask.maybe(self.url))

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:  # noqa: ARG002 - of the protocol
        """This model's part of `loaded`."""
        return (await self.loaded(ask)).limits(name)


class Ollama(Struct, frozen=True):
    """Reports what it has loaded; the window with which it would load a model is known once it has."""

    beside: str
    says: str = "Ollama /api/ps"
    wire: str = said.OLLAMAS_OWN
    by_name: bool = True
    lists_loaded: bool = True

    async def loaded(self, ask: Questions) -> ModelList:
        return said.ollama_loaded(await ask.maybe(f"{self.beside}/api/ps"))

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:
        """The model's Modelfile. Without a window there: the one it is or was loaded with here; else, as a guess, the
        smallest that Ollama gives."""
        shown = said.ollama_model(await ask.maybe_post(f"{self.beside}/api/show", {"model": name}))
        if not load or shown.window_tokens is not None or shown.window_is_fixed:
            return shown
        limits = (await self.loaded(ask)).limits(name)
        if limits.window_tokens is None:
            await ask.maybe_post(f"{self.beside}/api/generate", {"model": name}, LOAD_SECONDS)
            limits = (await self.loaded(ask)).limits(name)
        if limits.window_tokens is None:
            limits = said.OLLAMA_AT_LEAST
        return replace(shown, window_tokens=limits.window_tokens, certainty=limits.certainty)


class ByName(Struct, frozen=True):
    """A server queried for each model by name; it reports nothing about models that are not loaded."""

    says: str
    url: str
    """Without the model's name, which is appended."""
    read: Callable[[bytes], ModelLimits]
    wire: str = ""
    by_name: bool = True
    lists_loaded: bool = False

    async def loaded(self, ask: Questions) -> ModelList:  # noqa: ARG002 - of the protocol
        """Nothing without a model's name."""
        return ModelList()

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:  # noqa: ARG002 - of the protocol
        """The model's allocation."""
        return self.read(await ask.maybe(self.url + quote(name, safe="")))


async def recognised(ask: Questions, base_url: str) -> OwnServer | None:
    """The server behind a base URL; None if its kind has nothing more to report. At most eight small questions."""
    address = urlsplit(base_url)
    if address.path.startswith("/engines"):
        url = f"{address.scheme}://{address.netloc}/engines/_configure?model="
        return ByName("Docker Model Runner /engines/_configure", url, said.docker_window)
    beside = base_url.removesuffix("/v1")
    # KoboldCpp, and more servers over time, serve Ollama's paths as well: their own paths come first.
    if said.is_koboldcpp(await ask.maybe(f"{beside}/api/extra/version")):
        url = f"{beside}/api/extra/true_max_context_length"
        return OneAnswer("KoboldCpp /api/extra/true_max_context_length", url, said.koboldcpp_window)
    if said.is_ollama(await ask.maybe(f"{beside}/api/version")):
        return Ollama(beside)
    for server in _by_their_answers(base_url, beside):
        body = await ask.maybe(server.url)
        if said.is_llama_cpp_router(body):
            url = f"{beside}/props?autoload=false&model="
            return ByName("llama.cpp /props", url, lambda body: said.llama_cpp_window(body).any_name)
        listed = server.read(body)
        if listed.models or listed.any_name != NOTHING:
            return server
    return None


def _by_their_answers(base_url: str, beside: str) -> tuple[OneAnswer, ...]:
    return (
        OneAnswer("LM Studio /api/v1/models", f"{beside}/api/v1/models", said.lm_studio_v1),
        OneAnswer("LM Studio /api/v0/models", f"{beside}/api/v0/models", said.lm_studio_v0),
        OneAnswer("llama.cpp /props", f"{beside}/props", said.llama_cpp_window),
        OneAnswer("text-generation-inference /info", f"{beside}/info", said.tgi_limits),
        OneAnswer("TabbyAPI /v1/model", f"{base_url}/model", said.tabby_window),
    )
