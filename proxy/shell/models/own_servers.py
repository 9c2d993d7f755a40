"""Recognises the kind of self-hosted server behind an upstream. It queries the windows that such a server has
allocated.

Rule: only addresses that can be self-hosted servers are queried, outside their OpenAI paths. Queries change nothing,
except that they may load a model which the request at hand loads anyway; docs/own-servers.md has the table. Each is
bounded in time and size; a key goes to the upstream's own host only, redirects are not followed, and errors contain
neither key nor content.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct, structs

from proxy.core.text import jsontext
from proxy.errors import ClientError, UpstreamError
from proxy.shell.http import plain_body
from proxy.shell.upstream import Outgoing, Upstream, UpstreamResponse, WholePath
from proxy.wire import NOTHING, ModelLimits, ModelList
from proxy.wire import own_servers as answers

_HEADERS: Final = [
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"context-proxy"),
]

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
    """Queries to one upstream, over the connections that its requests use."""

    def __init__(self, upstream: Upstream, key_headers: Mapping[bytes, bytes]) -> None:
        """`key_headers` carry the key, if there is one."""
        self._upstream = upstream
        self._headers = [*_HEADERS, *key_headers.items()]

    async def ask(self, path: str, members: Mapping[str, Any] | None = None, seconds: float = TIMEOUT_SECONDS) -> bytes:
        """The body of a 200 from a path on the upstream's host, with `members` by POST. Raises NoAnswer."""
        method, headers, content = "GET", self._headers, None
        if members is not None:
            method, headers = "POST", [*headers, (b"content-type", b"application/json")]
            content = Outgoing(jsontext.dump(members))
        try:
            async with asyncio.timeout(seconds):
                response = await self._upstream.send(method, WholePath(path.encode()), headers, content)
                async with contextlib.aclosing(response):
                    return await body_of(response)
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None
        except UpstreamError as error:
            raise NoAnswer(error.message.removeprefix(f"{self._upstream.where} ")) from None

    async def maybe(
        self, path: str, members: Mapping[str, Any] | None = None, seconds: float = TIMEOUT_SECONDS
    ) -> bytes:
        """The body of a 200; empty if there is none."""
        with contextlib.suppress(NoAnswer):
            return await self.ask(path, members, seconds)
        return b""


async def body_of(response: UpstreamResponse) -> bytes:
    """The body of a 200, unpacked if it is compressed although that was not wanted. Raises NoAnswer."""
    status, body = response.status, bytearray()
    if status != 200:
        raise NoAnswer(f"it answered {status}", status)
    async for chunk in response.chunks():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise NoAnswer(f"its answer is longer than {MAX_ANSWER_BYTES} bytes", status)
    try:
        return plain_body(bytes(body), response.headers, MAX_ANSWER_BYTES)
    except ClientError as error:
        raise NoAnswer(f"its answer cannot be read: {error.message}", status) from None


LOAD_SECONDS: Final = 120.0
"""For loading a model, which the request for that model would wait for anyway."""


class OwnServer(Struct, frozen=True):
    """A server at one address, of the kind that reports everything in one response."""

    says: str
    """The phrase that names it as a source."""
    path: str
    read: Callable[[bytes], ModelList]
    """Reads the response."""
    wire: str = ""
    """The wire that is its own API; empty if it has none."""
    by_name: bool = False
    """Whether it can be queried for one model."""
    lists_loaded: bool = True
    """Whether it reports by itself what is loaded; otherwise it is queried for each model, whose name is appended to
    the path, and reports nothing about models that are not loaded."""
    sign: tuple[str, Callable[[bytes], bool]] | None = None
    """A path by whose response it is recognised; None: by what it reports."""

    async def is_there(self, ask: Questions) -> bool:
        """Whether it is this kind of server that responds."""
        if self.sign is not None:
            path, is_its = self.sign
            return is_its(await ask.maybe(path))
        listed = self.read(await ask.maybe(self.path))
        return bool(listed.models) or listed.any_name != NOTHING

    async def loaded(self, ask: Questions) -> ModelList:
        """Current allocations."""
        return self.read(await ask.maybe(self.path)) if self.lists_loaded else ModelList()

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:  # noqa: ARG002 - for Ollama
        """The allocation of one model, current or expected; `load`: whether it may be loaded to find out."""
        return self.read(await ask.maybe(self.path + quote(name, safe=""))).any_name


class Ollama(OwnServer, frozen=True):
    """Reports what it has loaded; the window with which it would load a model is known once it has."""

    async def model(self, ask: Questions, name: str, *, load: bool) -> ModelLimits:
        """The model's Modelfile. Without a window there: the one it is or was loaded with here; else, as a guess, the
        smallest that Ollama gives."""
        api = self.path.removesuffix("ps")
        shown = answers.ollama_model(await ask.maybe(f"{api}show", {"model": name}))
        if not load or shown.window_tokens is not None or shown.window_is_fixed:
            return shown
        limits = (await self.loaded(ask)).limits(name)
        if limits.window_tokens is None:
            await ask.maybe(f"{api}generate", {"model": name}, LOAD_SECONDS)
            limits = (await self.loaded(ask)).limits(name)
        if limits.window_tokens is None:
            limits = answers.OLLAMA_AT_LEAST
        return structs.replace(shown, window_tokens=limits.window_tokens, certainty=limits.certainty)


async def recognised(ask: Questions, base_path: str) -> OwnServer | None:
    """The server behind a base URL of this path; None if its kind has nothing more to report. A few small questions."""
    for server in _servers(base_path):
        if await server.is_there(ask):
            return server
    return None


def _servers(base_path: str) -> tuple[OwnServer, ...]:
    """The kinds of servers in the order in which they are tried: KoboldCpp serves Ollama's paths as well."""
    asked_by_name = partial(OwnServer, by_name=True, lists_loaded=False)
    if base_path.startswith("/engines"):
        path, sign = "/engines/_configure?model=", (f"{base_path}/models", bool)
        return (asked_by_name("Docker Model Runner /engines/_configure", path, answers.docker_window, sign=sign),)
    root = base_path.removesuffix("/v1")
    props, by_name = f"{root}/props", f"{root}/props?autoload=false&model="
    length, loaded = f"{root}/api/extra/true_max_context_length", f"{root}/api/ps"
    is_ollama, is_router = (f"{root}/api/version", answers.is_ollama), (props, answers.is_llama_cpp_router)
    return (
        OwnServer("KoboldCpp /api/extra/true_max_context_length", length, answers.koboldcpp_window),
        Ollama("Ollama /api/ps", loaded, answers.ollama_loaded, answers.OLLAMAS_OWN, by_name=True, sign=is_ollama),
        OwnServer("LM Studio /api/v1/models", f"{root}/api/v1/models", answers.lm_studio_v1),
        OwnServer("LM Studio /api/v0/models", f"{root}/api/v0/models", answers.lm_studio_v0),
        asked_by_name("llama.cpp /props", by_name, answers.llama_cpp_window, sign=is_router),
        OwnServer("llama.cpp /props", props, answers.llama_cpp_window),
    )
