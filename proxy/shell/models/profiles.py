"""Which profile a model has, value by value: the first source that states a value has the say.

Rule: configuration › learned › `defaults` › the upstream's `/v1/models` › the catalogue › 128 000 tokens. Where each
value came from stands in the profile, and no look-up waits for the network.
"""

from __future__ import annotations

import asyncio
import fnmatch
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from proxy.core.profile import ModelProfile
from proxy.settings import ModelSettings, Settings
from proxy.shell.models.catalogue import Catalogue
from proxy.shell.models.discovery import Discovery
from proxy.wire.model_list import MAX_NAME_CHARS, NOTHING, Limits

Source: TypeAlias = Callable[[str], tuple[Limits, str] | None]
"""What somebody says of a model, and who that is in a phrase; None for a model that they do not know."""

MAX_PROFILES: Final = 1024
"""Profiles that are remembered; a name is foreign input, and a client may send a new one with every request."""

_VALUES: Final = (
    "window_tokens",
    "input_tokens",
    "input_chars",
    "output_tokens",
    "modalities",
    "refused",
    "results_hold_text",
    "refuses_our_tool",
    "tokenizer",
)


class ModelResolver:
    """Profiles of the models at one upstream. `profile` may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        learned: Source = lambda _: None,
        catalogue: Catalogue | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalogue = catalogue or Catalogue(settings.upstream.base_url)
        self.discovery = Discovery(settings.upstream, self.forget, clock)
        self._sources: tuple[Source, ...] = (
            from_configuration(settings.models),
            learned,
            from_defaults(settings),
            self._from_upstream,
            self._catalogue.find,
        )
        self._generation = 0
        self._remembered = functools.lru_cache(MAX_PROFILES)(self._resolve)
        self._reading: asyncio.Future[None] | None = None

    def profile(self, model: str) -> ModelProfile:
        """The profile of a model as a client names it; a microsecond when it is remembered, else about 30.

        The first of all reads the catalogue, 50 ms, unless `start` has had the time to.
        """
        self.discovery.nudge()
        return self._remembered(model[:MAX_NAME_CHARS], self._generation)

    def offer_key(self, authorization: bytes) -> None:
        """A client's `Authorization` header, for an upstream that lists its models to nobody without one."""
        self.discovery.offer_key(authorization)

    def forget(self) -> None:
        """A source has something new to say: the next look-ups ask all of them again."""
        self._generation += 1

    def start(self) -> None:
        """Ask the upstream, and read the catalogue in a thread; both in the background. Needs a running loop."""
        self.discovery.start()
        self._reading = asyncio.get_running_loop().run_in_executor(None, self._catalogue.load)

    async def close(self) -> None:
        """Stop asking."""
        await self.discovery.close()
        if self._reading is not None:
            await self._reading

    def _from_upstream(self, model: str) -> tuple[Limits, str] | None:
        return self.discovery.limits(model), "upstream /v1/models"

    def _resolve(self, model: str, generation: int) -> ModelProfile:  # noqa: ARG002 - part of what is remembered
        values: dict[str, Any] = {}
        stated_by: dict[str, str] = {}
        for source in self._sources:
            limits, phrase = source(model) or (NOTHING, "")
            for name, value in _stated(limits, values.get("window_tokens")):
                if name not in values:
                    values[name], stated_by[name] = value, phrase
        stated_by.setdefault("window_tokens", "default")
        return ModelProfile(model=model, **values, sources=stated_by)


def window_is_certain(profile: ModelProfile) -> bool:
    """Whether somebody who must know states the window: the settings, the upstream, a refusal that printed it, one
    entry of the catalogue. The default, the smallest of several entries and a conclusion are guesses."""
    source = profile.sources.get("window_tokens", "default")
    return source != "default" and not source.startswith("inferred") and not source.endswith(")")


def entry_of(entries: Sequence[ModelSettings], model: str) -> ModelSettings | None:
    """The entry of `models` whose glob matches the name first, upper and lower case alike."""
    name = model.lower()
    return next((entry for entry in entries if fnmatch.fnmatchcase(name, entry.match.lower())), None)


def from_configuration(entries: Sequence[ModelSettings]) -> Source:
    """What the configuration says of a model."""

    def find(model: str) -> tuple[Limits, str] | None:
        entry = entry_of(entries, model)
        if entry is None:
            return None
        limits = Limits(
            window_tokens=entry.context_window,
            output_tokens=entry.max_output_tokens,
            modalities=entry.input,
            tokenizer=entry.tokenizer,
        )
        return limits, f"config models[{entries.index(entry)}]"

    return find


def from_defaults(settings: Settings) -> Source:
    """What the operator set for every model that `models` does not name."""
    limits = Limits(window_tokens=settings.defaults.context_window, modalities=settings.defaults.input)
    return lambda _: (limits, "config defaults")


def _stated(limits: Limits, window_tokens: int | None) -> Iterator[tuple[str, Any]]:
    """The values that a source states, given the window that a better source stated."""
    for name in _VALUES:
        value = getattr(limits, name)
        # A prompt's limit belongs to the window that it was stated with: 272 000 of 400 000 says nothing of a million.
        other_window = window_tokens is not None and limits.window_tokens not in (None, window_tokens)
        if value is not None and not (name == "input_tokens" and other_window):
            yield name, value
