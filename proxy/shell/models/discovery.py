"""Asks the upstream what models it has and what it gives them, beside the requests and never long in the way of one.

Rule: at most one question at a time about all models, and one in ten minutes once it was answered (of a server of one's
own that says what it has loaded: one in 15 seconds of use); a client's key is used for the one question that its
request set off, and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.config.settings import UpstreamSettings
from proxy.core.models.providers import is_own_server
from proxy.core.text.jsontext import NotJson
from proxy.shell.models.own_servers import OwnServer, recognised
from proxy.shell.models.questions import TIMEOUT_SECONDS, NoAnswer, Questions, asking
from proxy.shell.resources.bounded import BoundedMap
from proxy.shell.resources.logs import logger
from proxy.wire import model_list
from proxy.wire.model_list import NOTHING, ModelLimits, ModelList

HOW_TO_STATE_A_WINDOW: Final = "state it: --context-window N, or context_window under models:"
"""For people who read that a window is guessed."""

REFRESH_SECONDS: Final = 600.0
"""A hosted list does not change more often, and OpenRouter's is half a megabyte."""

LOADED_SECONDS: Final = 15.0
"""Ollama lets go of a model after five minutes, and loads it with another window whenever somebody asks for one; to ask
takes a local server a millisecond."""

RETRY_SECONDS: Final = 2.0
"""After no answer at all: a server that is started together with the proxy is asked as soon as it is up."""

BUSY_SECONDS: Final = 30.0
"""After a 429: who counts requests counts this one, too."""

PATIENCE_SECONDS: Final = 2.0
"""That a request waits for an answer about all models, once: hosted lists take a third of a second."""

MODEL_PATIENCE_SECONDS: Final = 60.0
"""That a request waits for an answer about its own model. It is being loaded, which the request has to wait for in any
case."""

OWN_TIMEOUT_SECONDS: Final = 5.0
"""For all questions beside the list: a server that is slow with them keeps its list."""

MAX_ASKED_MODELS: Final = 256
"""Models that were asked for by name, and are remembered."""

_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that another try may cure soon; llama.cpp says 503 while it loads its model."""
_NO_LIST: Final = frozenset({404, 405, 501})
"""Of a server that is there and has no list; it may have an API of its own all the same."""


class _Found(NamedTuple):
    """What one question about all models brought."""

    listed: ModelList
    server: OwnServer | None
    loaded: ModelList


class Discovery:
    """What one upstream says of its models, as far as it was asked."""

    def __init__(
        self,
        upstream: UpstreamSettings,
        on_change: Callable[[], None] = lambda: None,
        on_allocated: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base_url = upstream.base_url
        self._is_own = is_own_server(upstream.base_url)
        self._key = upstream.api_key.get_secret_value() if upstream.api_key else None
        self._on_change = on_change
        self._on_allocated = on_allocated
        """Called when a server of one's own says something new of what it has allocated."""
        self._clock = clock
        self._found = _Found(ModelList(), None, ModelList())
        self._models: BoundedMap[str, ModelLimits] = BoundedMap(MAX_ASKED_MODELS)
        """What was said of one model, asked for by its name."""
        self._stale: frozenset[str] = frozenset()
        """Models of these of which something else may hold by now."""
        self._former = ModelList()
        """What was loaded before, and is not now."""
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._question: asyncio.Task[None] | None = None
        self._due = 0.0
        self._recognise_due = 0.0
        self._needs_client_key = False
        self._was_answered = False
        self._is_worth_waiting = True
        """Not after somebody has waited in vain."""
        self._last_failure: str | None = None
        self._log = logger()

    @property
    def names(self) -> tuple[str, ...]:
        """The models that the upstream lists, in its order; empty before it was asked."""
        return tuple(self._found.listed.models)

    @property
    def is_asked_by_name(self) -> bool:
        """Whether the upstream says more of a model once that is wanted."""
        return self._found.server is not None and self._found.server.by_name

    async def answered(self) -> bool:
        """Wait for the question that is under way; whether the upstream has said anything by then."""
        if self._question is not None:
            await asyncio.wait({self._question})
        return self._was_answered

    def limits(self, model: str) -> ModelLimits:
        """What the upstream's list says of this model."""
        return self._found.listed.limits(model)

    def allocated(self, model: str) -> tuple[ModelLimits, str] | None:
        """What a server of one's own has allocated for this model, and who says so."""
        server, loaded = self._found.server, self._found.loaded.limits(model)
        if server is None:
            return None
        asked, former = self._models.get(model) or NOTHING, self._former.limits(model)
        known = (loaded, former, asked) if model in self._stale else (loaded, asked, former)
        return next((limits for limits in known if limits.window_tokens is not None), loaded), server.says

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

    async def settle(self, model: str) -> None:
        """Wait for what can still be found out about this model, for a bounded moment."""
        if self._loop is None:
            return
        await asyncio.sleep(0)  # a question that this request has set off begins
        if not self._was_answered and self._is_worth_waiting and self._question is not None:
            await asyncio.wait({self._question}, timeout=PATIENCE_SECONDS)
            self._is_worth_waiting = self._question.done()
        server = self._found.server
        if server is None or not self._is_open(server, model):
            return
        task = self._asked.get(model)
        if task is None:
            task = self._asked[model] = self._loop.create_task(self.ask_for(model, load=True))
            task.add_done_callback(lambda _: self._asked.pop(model, None))
        if server.lists_loaded or model not in self._models:
            await asyncio.wait({task}, timeout=MODEL_PATIENCE_SECONDS)

    async def close(self) -> None:
        """Give up the questions that are under way."""
        self._loop = None
        tasks = [*self._asked.values(), *([self._question] if self._question is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, authorization: bytes | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
        """Ask once; None when the upstream answered with a list, else why it did not. Never raises for the upstream."""
        authorization = authorization or self._bearer()
        try:
            async with asyncio.timeout(timeout_seconds), asking(self._base_url, authorization) as questions:
                found = await self._all(questions)
        except NoAnswer as no:
            self._due, self._needs_client_key = self._after(no, authorization)
            self._recognise_due = 0.0  # what comes up there may be another server
            return str(no)
        except TimeoutError:
            self._due = self._clock() + RETRY_SECONDS
            return f"no answer within {timeout_seconds:g} s"
        self._due = self._clock() + (LOADED_SECONDS if found.server is not None else REFRESH_SECONDS)
        self._was_answered = self._is_worth_waiting = True
        self._take(found)
        return None

    async def ask_for(self, model: str, authorization: bytes | None = None, *, load: bool = False) -> None:
        """Ask a server of one's own for one model by its name. Never raises for the upstream."""
        server = self._found.server
        if server is None or not server.by_name:
            return
        try:
            async with asking(self._base_url, authorization or self._bearer()) as questions:
                limits = await server.model(questions, model, load=load)
        except NoAnswer:
            return
        is_news = self._models.get(model) != limits
        self._models.put(model, limits)
        self._stale -= {model}
        if is_news:
            self._tell(model, limits, server)
            self._on_allocated()
            self._on_change()

    def _is_open(self, server: OwnServer, model: str) -> bool:
        """Whether a server that can be asked for this model was not, or may say something else by now."""
        if not server.by_name or self._found.loaded.limits(model).window_tokens is not None:
            return False
        listed, name = self._found.listed, model.lower()
        is_listed = not listed.models or name in listed.aliases or f"{name}:latest" in listed.aliases
        return is_listed and (model not in self._models or model in self._stale)

    async def _ask_in_background(self, authorization: bytes | None) -> None:
        failure = await self.ask(authorization)
        if failure is None:
            self._last_failure = None
            states = self._found.listed.states_a_window
            self._log.debug("models_listed", models=len(self.names), with_window=states)
        elif failure == self._last_failure or (self._needs_client_key and authorization is None):
            self._log.debug("models_not_listed", upstream=self._base_url, reason=failure)
        else:
            self._last_failure = failure
            self._log.warning(
                "models_not_listed", upstream=self._base_url, reason=failure, advice=HOW_TO_STATE_A_WINDOW
            )

    def _spawn(self, authorization: bytes | None) -> None:
        if self._loop is None or self._clock() < self._due:
            return
        self._due = float("inf")
        self._question = self._loop.create_task(self._ask_in_background(authorization))

    def _after(self, no: NoAnswer, authorization: bytes | None) -> tuple[float, bool]:
        """When to ask next, and whether a client's key is needed for it."""
        if self._key is None and no.status in (401, 403):
            return (self._clock() + BUSY_SECONDS if authorization else 0.0), True
        soon = no.status is None or no.status in _LATER
        pause = BUSY_SECONDS if no.status == 429 else RETRY_SECONDS if soon else REFRESH_SECONDS
        return self._clock() + pause, self._needs_client_key

    def _bearer(self) -> bytes | None:
        return b"Bearer " + self._key.encode() if self._key else None

    async def _all(self, questions: Questions) -> _Found:
        """The list, and what a server of one's own has loaded. Raises NoAnswer."""
        if not self._is_own:
            return _Found(_list(await questions.get(f"{self._base_url}/models")), None, ModelList())
        failure, listed = None, ModelList()
        try:
            listed = _list(await questions.get(f"{self._base_url}/models"))
        except NoAnswer as no:
            if no.status not in _NO_LIST:
                raise
            failure = no
        server, loaded = None, ModelList()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OWN_TIMEOUT_SECONDS):
                server = await self._server(questions, listed)
                loaded = await server.loaded(questions) if server is not None else loaded
        if failure is not None and server is None:
            raise failure
        return _Found(listed, server, loaded)

    async def _server(self, questions: Questions, listed: ModelList) -> OwnServer | None:
        """What kind of server it is: the one that it was ten minutes ago, unless it failed since."""
        if listed.states_all_windows:
            return None  # vLLM, SGLang, llama.cpp say what they were started with
        if self._clock() >= self._recognise_due:
            self._recognise_due = self._clock() + REFRESH_SECONDS
            return await recognised(questions, self._base_url)
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
        self._on_allocated()
        self._on_change()

    def _tell(self, model: str, limits: ModelLimits, server: OwnServer) -> None:
        if limits.window_tokens is not None:
            self._log.info("window_allocated", model=model, window_tokens=limits.window_tokens, server=server.says)


def _list(body: bytes) -> ModelList:
    try:
        return model_list.parse(body)
    except NotJson:
        raise NoAnswer("its answer is no list of models", 200) from None
