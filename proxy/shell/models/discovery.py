"""Queries the upstream for its models in the background. No request waits for it long.

Rule: at most one query at a time for all models, and one in ten minutes after a response (for a self-hosted
server that reports what it has loaded: one in 15 seconds of use; for any of them before a prompt is cut). A client's
key is used for the one question that its own request triggered, and is stored nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.config import UpstreamSettings
from proxy.core.addresses import is_own_server
from proxy.core.text.jsontext import NotJson
from proxy.shell.models.own_servers import TIMEOUT_SECONDS, NoAnswer, OwnServer, Questions, recognised
from proxy.shell.resources import BoundedMap, logger
from proxy.shell.upstream import Upstream
from proxy.wire import DEFAULT, NOTHING, WIRES, ModelLimits, ModelList, model_list

HOW_TO_STATE_A_WINDOW: Final = "state it: --context-window N, or context_window under models:"
"""Advice for people who read that a window is a guess."""

REFRESH_SECONDS: Final = 600.0
"""A hosted list does not change more often, and OpenRouter's is half a megabyte."""

LOADED_SECONDS: Final = 15.0
"""Ollama unloads a model after five minutes, and reloads it with another window whenever a request wants one; the
question takes a local server a millisecond."""

RETRY_SECONDS: Final = 2.0
"""Delay after no response at all: a server started together with the proxy is queried as soon as it is up."""

BUSY_SECONDS: Final = 30.0
"""Delay after a 429: an upstream that limits requests counts this one, too."""

PATIENCE_SECONDS: Final = 2.0
"""How long a request waits, once, for the list of all models: hosted lists take a third of a second."""

MODEL_PATIENCE_SECONDS: Final = 60.0
"""How long a request waits for the details of its own model. The model is being loaded, which the request has to wait
for in any case."""

OWN_TIMEOUT_SECONDS: Final = 5.0
"""Timeout of all queries besides the list: a server that is slow with them still has its list used."""

MAX_ASKED_MODELS: Final = 256
"""Models queried by name that are remembered."""

_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that may soon change; llama.cpp sends 503 while it loads its model."""
_NO_LIST: Final = frozenset({404, 405, 501})
"""Statuses of a server that is up and has no list; it may still have an API of its own."""


class _Found(NamedTuple):
    """The result of one question about all models."""

    listed: ModelList
    server: OwnServer | None
    loaded: ModelList


class Discovery:
    """Model lists reported by one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        window_is_configured: bool = False,
    ) -> None:
        self._upstream = upstream
        self._base_path = upstream.base_path.decode()
        self._is_own = is_own_server(upstream.settings.base_url)
        self._own_key = key_headers(upstream.settings)
        self._on_change = on_change
        """Called when the upstream reports anything new."""
        self._clock = clock
        self._window_is_configured = window_is_configured
        """Whether all models have a window without being listed."""
        self._found = _Found(ModelList(), None, ModelList())
        self._models: BoundedMap[str, ModelLimits] = BoundedMap(MAX_ASKED_MODELS)
        """Responses about single models, by name."""
        self._stale: frozenset[str] = frozenset()
        """Models whose responses may be outdated."""
        self._former = ModelList()
        """Models that were loaded before and no longer are."""
        self._queries: dict[tuple[str, bool], asyncio.Task[None]] = {}
        """Keys: the model, and whether it may be loaded."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._question: asyncio.Task[None] | None = None
        self._due = 0.0
        self._recognise_due = 0.0
        self._needs_client_key = False
        self._was_answered = False
        self._is_worth_waiting = True
        """False after a request has waited in vain."""
        self.is_in_doubt = False
        """Whether a self-hosted server may be another one by now, and was not queried since."""
        self._last_failure: str | None = None
        self.status: int | None = None
        """Of the latest response to the question for the list; None: there was none."""

    @property
    def names(self) -> tuple[str, ...]:
        """The models that the upstream lists, in its order; empty until its list was read."""
        return tuple(self._found.listed.models)

    @property
    def is_asked_by_name(self) -> bool:
        """Whether the upstream says more about a model when queried by name."""
        return self._found.server is not None and self._found.server.by_name

    @property
    def own_wire(self) -> str:
        """The wire that is the upstream's own API; empty if it has none, or was not queried yet."""
        return self._found.server.wire if self._found.server is not None else ""

    async def answered(self) -> bool:
        """Wait for the current question; whether the upstream has responded by then."""
        if self._question is not None:
            await asyncio.wait({self._question})
        return self._was_answered

    def limits(self, model: str) -> ModelLimits:
        """A model's limits in the upstream's list."""
        return self._found.listed.limits(model)

    def allocated(self, model: str) -> tuple[ModelLimits, str] | None:
        """A self-hosted server's allocation for this model, and its phrase as the source."""
        server, loaded = self._found.server, self._found.loaded.limits(model)
        if server is None:
            return None
        listed, former = self._models.get(model) or NOTHING, self._former.limits(model)
        known = (loaded, former, listed) if model in self._stale else (loaded, listed, former)
        window = next((limits for limits in known if limits.window_tokens is not None), loaded)
        if listed is NOTHING or window is listed:
            return window, server.says
        return replace(listed, window_tokens=window.window_tokens, certainty=window.certainty), server.says

    def start(self) -> None:
        """Ask now, and from now on when `nudge` or `offer_key` triggers it. Needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self.nudge()

    def nudge(self) -> None:
        """A request arrived: ask if it is time to. From any thread, in less than a microsecond."""
        loop = self._loop
        if loop is not None and not self._needs_client_key and self._clock() >= self._due:
            loop.call_soon_threadsafe(self._spawn, None)

    def offer_key(self, authorization: bytes) -> None:
        """A request arrived with this `Authorization` header: ask with it if the upstream wants a key and none is
        set."""
        loop = self._loop
        if loop is not None and self._needs_client_key and authorization and self._clock() >= self._due:
            loop.call_soon_threadsafe(self._spawn, authorization)

    def doubt(self, *, has_failed: bool = True) -> None:
        """A self-hosted server refused a connection, or a prompt that its list allows: ask it again before the next
        plan. It may have come back with another window. `has_failed`: or else a prompt is about to be cut for it, or
        was cut by it."""
        if self._is_own and not self.is_in_doubt:
            self.is_in_doubt, self._was_answered, self._due = True, False, 0.0
            self._is_worth_waiting |= has_failed

    def stated(self, model: str) -> int | None:
        """The window that a self-hosted server reports for this model, in whatever way."""
        found = self.allocated(model)
        window = found[0].window_tokens if found is not None else None
        return window if window is not None or not self._is_own else self.limits(model).window_tokens

    async def settle(self, model: str, *, load: bool = True) -> None:
        """Wait, for a bounded moment, for what can still be found out about this model; `load`: whether it may be
        loaded for that. A request that states a window loads it with that window."""
        if self._loop is None:
            return
        if not self._was_answered and self._is_own and 0 < self._due - self._clock() <= RETRY_SECONDS:
            self._due = 0.0  # it may be up by now, and may cut what goes by a guess
            self.nudge()
        await asyncio.sleep(0)  # lets a question that this request triggered begin
        if not self._was_answered and self._is_worth_waiting and self._question is not None:
            await asyncio.wait({self._question}, timeout=PATIENCE_SECONDS)
            self._is_worth_waiting = self._question.done()
        server = self._found.server
        if server is None or not self._is_open(server, model, load=load):
            return
        asking = model, load
        task = self._queries.get(asking)
        if task is None:
            task = self._queries[asking] = self._loop.create_task(self.ask_for(model, load=load))
            task.add_done_callback(lambda _: self._queries.pop(asking, None))
        if server.lists_loaded or model not in self._models:
            await asyncio.wait({task}, timeout=MODEL_PATIENCE_SECONDS)

    async def close(self) -> None:
        """Cancel the questions that are under way."""
        self._loop = None
        tasks = [*self._queries.values(), *([self._question] if self._question is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, authorization: bytes | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
        """Ask once, with a client's `Authorization` or the upstream's own key; None if the upstream responded with a
        list, else why it did not. Never raises for the upstream."""
        self.status = None
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await self._all(self._questions(authorization))
        except NoAnswer as no:
            self._due, self._needs_client_key = self._after(no, authorization)
            self._recognise_due, self.status = 0.0, no.status  # another server may come up there
            return str(no)
        except TimeoutError:
            self._due = self._clock() + RETRY_SECONDS
            return f"no answer within {timeout_seconds:g} s"
        self._due = self._clock() + (LOADED_SECONDS if found.server is not None else REFRESH_SECONDS)
        self._was_answered = self._is_worth_waiting = True
        self.is_in_doubt, self.status = False, 200
        self._take(found)
        return None

    async def ask_for(self, model: str, *, load: bool = False) -> None:
        """Ask a self-hosted server about one model by its name. Never raises for the upstream."""
        server = self._found.server
        if server is None or not server.by_name:
            return
        limits = await server.model(self._questions(), model, load=load)
        is_news = self._models.get(model) != limits
        self._models.put(model, limits)
        self._stale -= {model}
        if is_news:
            self._tell(model, limits, server)
            self._on_change()

    def _is_open(self, server: OwnServer, model: str, *, load: bool) -> bool:
        """Whether this model was not queried yet, or may have changed since."""
        if not server.by_name:
            return False
        listed, name = self._found.listed, model.lower()
        if listed.models and name not in listed.aliases and f"{name}:latest" not in listed.aliases:
            return False
        limits = self._models.get(model)
        if limits is None:
            return True
        if self._found.loaded.limits(model).window_tokens is not None:
            return False
        may_be_loaded = load and server.lists_loaded and not limits.window_is_fixed
        return model in self._stale or (may_be_loaded and limits.window_tokens is None)

    async def _ask_in_background(self, authorization: bytes | None) -> None:
        failure, before = await self.ask(authorization), self._last_failure
        if failure is not None and self._needs_client_key and authorization is None:
            before = failure  # no failure yet: the next client may have a key
        else:
            self._last_failure = failure
        about = {"upstream": self._upstream.settings.base_url, "reason": failure}
        if failure is None:
            logger().debug("models_listed", models=len(self.names), with_window=self._found.listed.states_a_window)
        elif failure == before:
            logger().debug("models_not_listed", **about)
        elif self._window_is_configured:
            logger().info("models_not_listed", **about)
        else:
            logger().warning("models_not_listed", **about, advice=HOW_TO_STATE_A_WINDOW)

    def _spawn(self, authorization: bytes | None) -> None:
        is_asking = self._question is not None and not self._question.done()  # `close` knows of one question
        if self._loop is None or is_asking or self._clock() < self._due:
            return
        self._due = float("inf")
        self._question = self._loop.create_task(self._ask_in_background(authorization))

    def _after(self, no: NoAnswer, authorization: bytes | None) -> tuple[float, bool]:
        """When to ask next, and whether that needs a client's key."""
        if not self._own_key and no.status in (401, 403):
            return (self._clock() + BUSY_SECONDS if authorization else 0.0), True
        soon = no.status is None or no.status in _LATER
        pause = BUSY_SECONDS if no.status == 429 else RETRY_SECONDS if soon else REFRESH_SECONDS
        return self._clock() + pause, self._needs_client_key

    def _questions(self, authorization: bytes | None = None) -> Questions:
        return Questions(self._upstream, {b"authorization": authorization} if authorization else self._own_key)

    async def _all(self, questions: Questions) -> _Found:
        """The list, and what a self-hosted server has loaded. Raises NoAnswer."""
        failure, listed, server, loaded = None, ModelList(), None, ModelList()
        try:
            listed = _list(await questions.ask(f"{self._base_path}/models"))
        except NoAnswer as no:
            if not self._is_own or no.status not in _NO_LIST:
                raise
            failure = no
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OWN_TIMEOUT_SECONDS):
                server = await self._server(questions, listed)
                loaded = await server.loaded(questions) if server is not None else loaded
        if failure is not None and server is None:
            raise failure
        return _Found(listed, server, loaded)

    async def _server(self, questions: Questions, listed: ModelList) -> OwnServer | None:
        """The kind of server: the same as ten minutes ago, unless it has failed since."""
        if not self._is_own or listed.states_all_windows:
            return None  # vLLM, SGLang, llama.cpp report what they were started with
        if self._clock() >= self._recognise_due:
            self._recognise_due = self._clock() + REFRESH_SECONDS
            return await recognised(questions, self._base_path)
        return self._found.server

    def _take(self, found: _Found) -> None:
        before, self._found = self._found, found
        gone = before.loaded.models.keys() - found.loaded.models.keys()
        if gone:
            self._former = before.loaded
        if gone or (found.server is not None and not found.server.lists_loaded):
            self._stale = frozenset(self._models)
        if found == before:
            return
        for name, limits in found.loaded.models.items():
            if found.server is not None and before.loaded.models.get(name) != limits:
                self._tell(name, limits, found.server)
        self._on_change()

    def _tell(self, model: str, limits: ModelLimits, server: OwnServer) -> None:
        if limits.window_tokens is not None:
            logger().info("window_allocated", model=model, window_tokens=limits.window_tokens, server=server.says)


def key_headers(upstream: UpstreamSettings) -> Mapping[bytes, bytes]:
    """The headers that carry an upstream's own key to its list of models; empty if it has no key."""
    if upstream.api_key is None:
        return {}
    wire = next((wire for wire in WIRES.values() if upstream.is_only_for(wire.path)), DEFAULT)
    return wire.list_headers(upstream.api_key.get_secret_value())


def _list(body: bytes) -> ModelList:
    try:
        return model_list.parse(body)
    except NotJson:
        raise NoAnswer("its answer is no list of models", 200) from None
