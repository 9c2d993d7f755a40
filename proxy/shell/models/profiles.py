"""The profile of a model, value by value: the first source that states a value decides.

Rule: what the request itself states › configuration › learned › `defaults` › what a self-hosted server has allocated ›
what the request's header asks for › the upstream's `/v1/models` › the catalogue › 128 000 tokens. The profile records
where each value came from. A look-up never waits for the network; callers that can wait a moment for an unstated
window call `settle` first. A window is certain unless it is requested in a header, the default, or the
catalogue's from another provider: docs/decisions/0012-windows-certain-and-guessed.md. If a refusal has printed exactly
that a configured window is too large, the refusal is believed until it is refuted or forgotten, and the log
says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from proxy.config import ModelSettings, Settings
from proxy.core.models import (
    Certainty,
    Modality,
    ModelProfile,
    Search,
    smallest,
    window_in_name,
)
from proxy.shell.models.catalogue import Catalogue
from proxy.shell.models.discovery import HOW_TO_STATE_A_WINDOW, MAX_ASKED_MODELS, Discovery
from proxy.shell.models.learning import Learning
from proxy.shell.models.tokenizer import counter_for
from proxy.shell.resources import BoundedMap, logger
from proxy.shell.upstream import Upstream
from proxy.wire import MAX_NAME_CHARS, NOTHING, ModelLimits

_Said: TypeAlias = tuple[ModelLimits, str]
"""Limits of a model, and a phrase that names their source."""
Source: TypeAlias = Callable[[str], _Said | None]
"""Returns what it says about a model; None for an unknown one."""


SMALL_BODY_BYTES: Final = 8 * 1024
"""A request of at most this size fits any window: 8 KB are 2 000 to 3 000 tokens, and no server gives under 4 096."""

ASK_SECONDS: Final = 3.0
"""Timeout in commands: a user is watching the terminal, and the catalogue's entry is worth showing without the
upstream's."""

_ASKED_AT_ONCE: Final = 8
"""Questions about single models that a command has under way."""

_TOLD_NAMES: Final = 10
"""Models with a guessed window that are named at the start."""

MAX_PROFILES: Final = 1024
"""Profiles remembered; a name is foreign input, and a client may send a new one with every request."""

_BEFORE_LISTS: Final = 2
"""Rank among the sources of a window that requests select."""
_LIFT: Final = "the requests ask for it"
_STATED: Final = "the request states it"

_VALUES: Final = (
    "window_tokens",
    "input_tokens",
    "rate_tokens",
    "prompt_rate_tokens",
    "input_chars",
    "output_tokens",
    "modalities",
    "refused",
    "results_hold_text",
    "refuses_our_tool",
    "refuses_cut_results",
    "tokenizer",
    "cuts_silently",
    "preamble",
    "least_image_tokens",
)


class ModelResolver:
    """Profiles of the models at one upstream. `profile` may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        upstream: Upstream | None = None,
        learning: Learning | None = None,
        catalogue: Catalogue | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings`: those of a proxy that has only this upstream."""
        base_url, is_configured = settings.upstream.base_url, settings.defaults.context_window is not None
        self.upstream = upstream or Upstream(settings.upstream)
        self.learning = learning or Learning(settings.data_dir, base_url, enabled=settings.learning.enabled)
        self.catalogue = catalogue or Catalogue(base_url)
        self.discovery = Discovery(self.upstream, self.forget, clock, window_is_configured=is_configured)
        self._entries = settings.models
        defaults = ModelLimits(window_tokens=settings.defaults.context_window, modalities=settings.defaults.input)
        self._sources: tuple[Source, ...] = (
            lambda _: (defaults, "config defaults"),
            self.discovery.allocated,
            lambda model: (self.discovery.limits(model), "upstream /v1/models"),
            self.catalogue.find,
        )
        self._stated: BoundedMap[str, int] = BoundedMap(MAX_PROFILES)
        """The windows that a self-hosted server reported when they were last compared with what was learned."""
        self._generation = 0
        self._remembered = functools.lru_cache(MAX_PROFILES)(self._resolve)
        self._reported: set[str] = set()
        """Models whose guessed window has been reported, and corrections of configured ones."""

    def profile(self, model: str, by: str = "", supposed: Search | None = None) -> ModelProfile:
        """The profile of a model as a client names it, for this tenant's requests; without a tenant: to show to people.
        A microsecond if it is remembered, else about 30. `supposed`: taken for what its latest refusal has taught.

        The very first one reads the catalogue, 15 ms, unless `start` had time to.
        """
        self.discovery.nudge()
        name = model[:MAX_NAME_CHARS]
        version = self._generation, self.learning.version
        if supposed is not None:
            return self._resolve(name, by, version, supposed)
        return self._remembered(name, by or None, version)

    def ratio(self, profile: ModelProfile, by: str = "") -> tuple[float, bool]:
        """(the upstream's tokens for one of ours, whether that was measured), as plans for this tenant use it; without
        a tenant: to show to people."""
        return self.learning.ratio(profile.known_as, counter_for(profile.tokenizer, profile.model).name, by or None)

    async def settle(self, model: str, by: str, *, is_cut: bool = False) -> bool:
        """Wait, for a bounded moment, for the upstream's own statement of a window that is only guessed, or for which
        this prompt is about to be cut. Whether the profile has changed."""
        if is_cut:
            self.discovery.doubt(has_failed=False)
        name = model[:MAX_NAME_CHARS]
        before, named = self.profile(name, by), window_in_name(name)
        if before.window_is_guessed or before.cuts_silently or named.is_stated or self.discovery.is_in_doubt:
            await self.discovery.settle(named.plain, load=not named.is_stated)
        after = self.profile(name, by)
        if after.window_is_guessed:
            self._tell_guess(after)
        return after != before

    def _tell_guess(self, profile: ModelProfile) -> None:
        """Log it once for each model, where an operator sees it."""
        if profile.known_as not in self._reported and len(self._reported) < MAX_PROFILES:
            self._reported.add(profile.known_as)
            window, source = profile.window_tokens, profile.sources["window_tokens"]
            logger().warning(
                "window_guessed",
                model=profile.known_as,
                window_tokens=window,
                source=source,
                advice=HOW_TO_STATE_A_WINDOW,
            )

    async def ask_now(self, names: Callable[[], Iterable[str]], timeout_seconds: float = ASK_SECONDS) -> str | None:
        """Ask the upstream for its models, then about each of these by name if it says more then; why it did not list
        them, None if it did. For commands, which have no loop that asks in the background; it loads no model."""
        async with contextlib.aclosing(self.upstream):  # each call of a command has a loop of its own
            failure = await self.discovery.ask(timeout_seconds=timeout_seconds)
            plain = dict.fromkeys(window_in_name(name).plain for name in names())
            at_once = asyncio.Semaphore(_ASKED_AT_ONCE)

            async def ask_for(name: str) -> None:
                async with at_once:
                    await self.discovery.ask_for(name)

            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await asyncio.gather(*map(ask_for, [*plain][:MAX_ASKED_MODELS]))
        return failure

    def forget(self) -> None:
        """The upstream reports something new: compare what was learned with it, and ask all sources again at the next
        look-ups."""
        self._generation += 1
        for model in self.learning.models:
            named = window_in_name(model)
            window = None if named.is_stated else self.discovery.stated(named.plain)
            if window is not None and self._stated.get(model) != window:
                self._stated.put(model, window)
                self.learning.note_allocated(model, window)

    async def tell_guesses(self) -> None:
        """Once at the start: read the catalogue, and report which of the upstream's listed models have no window that
        is certain."""
        await asyncio.to_thread(self.catalogue.load)
        if not await self.discovery.answered() or self.discovery.is_asked_by_name:
            return
        names = self.discovery.names[:MAX_PROFILES]
        guessed = [name for name in names if self.profile(name).window_is_guessed]
        if guessed:
            logger().info(
                "windows_guessed", count=len(guessed), models=guessed[:_TOLD_NAMES], advice=HOW_TO_STATE_A_WINDOW
            )

    def _may_be_lifted(self, model: str, window_tokens: int) -> bool:
        """Whether lists and the catalogue, which describe requests that do not ask for it, state a smaller window, and
        no self-hosted server has allocated one."""
        listed = (self.discovery.limits(model), (self.catalogue.find(model) or (NOTHING,))[0])
        stated = [limits.window_tokens or 0 for limits in listed]
        return self.discovery.stated(model) is None and max(stated) < window_tokens

    def _resolve(
        self,
        model: str,
        by: str | None,
        version: tuple[int, int],  # noqa: ARG002 - for the memory
        supposed: Search | None = None,
    ) -> ModelProfile:
        ranked, plain = self._ranked(model, self.learning.limits(model, by, supposed)), window_in_name(model).plain
        values: dict[str, Any] = {}
        stated_by = {"window_tokens": "default"}
        for limits, phrase in ranked:
            # A prompt limit belongs to the window that it was stated with: 272 000 of 400 000 says nothing about a
            # million.
            window = values.get("window_tokens")
            other_window = window is not None and limits.window_tokens not in (None, window)
            for name in _VALUES:
                value = getattr(limits, name)
                if value is not None and name not in values and not (name == "input_tokens" and other_window):
                    values[name], stated_by[name] = value, phrase
        values |= _inputs(limits for limits, _ in ranked)
        values["at_most"] = smallest(limits.at_most or {} for limits, _ in ranked)
        windows = tuple([(one.window_tokens, phrase) for one, phrase in ranked if one.window_tokens is not None])
        certainty = next((one.certainty for one, _ in ranked if one.window_tokens is not None), Certainty.GUESSED)
        suffix = model.removeprefix(plain)
        return ModelProfile(plain, **values, suffix=suffix, certainty=certainty, sources=stated_by, windows=windows)

    def _configured(self, model: str) -> _Said | None:
        entry = entry_of(self._entries, model)
        if entry is None:
            return None
        limits = ModelLimits(
            window_tokens=entry.context_window,
            output_tokens=entry.max_output_tokens,
            modalities=entry.input,
            tokenizer=entry.tokenizer,
        )
        return limits, f"config models[{self._entries.index(entry)}]"

    def _ranked(self, model: str, learned: _Said | None) -> Sequence[_Said]:
        """What is said about a model, in the one order in which it is believed."""
        plain, named_tokens, is_stated = window_in_name(model)
        configured = self._configured(model) or self._configured(plain)
        first, sources = [configured, learned], [source(plain) for source in self._sources]
        if named_tokens is not None and is_stated:
            stated = self._stated_window(plain, named_tokens, configured)
            is_less = learned is not None and (learned[0].window_tokens or named_tokens) < named_tokens
            first = [learned, stated, configured] if is_less else [stated, configured, learned]
        elif configured is not None and learned is not None and _corrects(learned[0], configured[0]):
            first = [(learned[0], self._correction(model, learned, configured)), configured]
        if named_tokens is not None and not is_stated and self._may_be_lifted(plain, named_tokens):
            sources.insert(_BEFORE_LISTS, (ModelLimits(window_tokens=named_tokens, certainty=Certainty.GUESSED), _LIFT))
        return [said for said in (*first, *sources) if said is not None]

    def _stated_window(self, model: str, tokens: int, configured: _Said | None) -> _Said:
        """The window of requests that state one: no more than the settings and the upstream allow the model. What a
        server has allocated for other requests does not bind them."""
        facts, source = self.discovery.allocated(model) or (NOTHING, "")
        if facts.window_is_fixed:
            return facts, source
        trained = ModelLimits(facts.largest_tokens)
        limits = (configured[0] if configured else NOTHING, self.discovery.limits(model), trained)
        return ModelLimits(window_tokens=min([tokens, *(one.window_tokens or tokens for one in limits)])), _STATED

    def _correction(self, model: str, learned: _Said, configured: _Said) -> str:
        """The source of a window that corrects a configured one, for people; it is logged once."""
        (limits, source), (wrong, place) = learned, configured
        conflict = f"{model} {limits.window_tokens} {wrong.window_tokens}"
        if conflict not in self._reported and len(self._reported) < MAX_PROFILES:
            self._reported.add(conflict)
            logger().warning(
                "configured_window_corrected",
                model=model,
                window_tokens=limits.window_tokens,
                configured_tokens=wrong.window_tokens,
                source=place,
                advice="correct the setting, or take the lesson back: context-proxy models NAME --forget",
            )
        return f"{source}, in place of {wrong.window_tokens} from {place}"


def _corrects(learned: ModelLimits, configured: ModelLimits) -> bool:
    """Whether a limit that a refusal has printed exactly is smaller than the configured window."""
    if learned.certainty is not Certainty.LEARNED or learned.cuts_silently or learned.window_tokens is None:
        return False
    return configured.window_tokens is not None and learned.window_tokens < configured.window_tokens


def _inputs(stated: Iterable[ModelLimits]) -> Mapping[str, frozenset[Modality]]:
    """The kinds of input that a model reads, each by the first source that says anything about it, and the others."""
    reads, unstated = frozenset[Modality](), frozenset(Modality)
    for limits in stated:
        if limits.modalities is not None:
            reads |= limits.modalities & unstated
            unstated &= limits.unstated or frozenset()
    return {} if unstated == frozenset(Modality) else {"modalities": reads, "unstated": unstated}


def stated_by(profile: ModelProfile, name: str) -> str | None:
    """Where a value of a profile came from, for people; None if unstated."""
    source = profile.sources.get(name)
    return f"guessed: {source}" if name == "window_tokens" and profile.window_is_guessed else source


def entry_of(entries: Sequence[ModelSettings], model: str) -> ModelSettings | None:
    """The first entry of `models` whose glob matches the name, ignoring case."""
    name = model.lower()
    return next((entry for entry in entries if fnmatch.fnmatchcase(name, entry.match.lower())), None)
