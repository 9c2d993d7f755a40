"""Learns from upstreams about their models. Refusals teach limits, and usage the error of our estimate.

Rule: a lesson is a row, docs/decisions/0014-what-was-learned-may-be-wrong.md. Only a limit printed exactly is believed,
and one that the client may have written itself teaches nothing. Limits that other sources state are not kept. All
workers share the rows through one small file; without a writable file they last as long as the process.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from proxy.core.models import Key, Lesson, Lessons, Modality, Rows, Search, facts
from proxy.core.overflow import Scope, Unit, Verdict
from proxy.shell.models.calibration import (
    MIN_SAMPLE_TOKENS,
    MIN_SAMPLES,
    RATIO_STEP,
    Samples,
    contradicts,
    indicates_truncation,
    is_plausible,
    rounded_up,
)
from proxy.shell.models.knowledge import Contents, key_of, limits_of, rows_of, search_in
from proxy.shell.resources import BoundedMap, SharedFile, logger
from proxy.wire import LARGEST_TOKENS, NOTHING, SMALLEST_WINDOW_TOKENS, ModelLimits

_RENEWED: Final = 1 / 4
"""Part of its life after which a lesson that is met again is written again."""
_MAX_SIZES: Final = 512
"""Models and tenants of which samples and sizes are remembered."""
_LIMITS: Final = facts.IN_TOKENS | {facts.CHARS, facts.RATE, facts.RATE_OF_PROMPTS}
_COUNTED: Final = facts.IN_TOKENS - {facts.SEARCH} | {facts.RATE, facts.RATE_OF_PROMPTS}
"""Limits that an accepted prompt disproves by the upstream's count."""


class Learning:
    """Lessons about the models of one upstream. `limits`, `ratio` and `refresh` may be called from any thread."""

    def __init__(
        self, folder: Path, upstream: str, *, enabled: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = SharedFile(folder / "lessons.json", Contents)
        self._lock = threading.Lock()
        """Held while what is known is replaced; never while the disk is awaited."""
        self._is_writing = False
        self.upstream = upstream
        self._enabled = enabled
        self._clock = clock
        """Unix time."""
        self.known: Rows = {}
        """All rows, also those that have lapsed. Replaced as a whole, never changed: planning threads read it."""
        self._in_force: facts.ByTenant = {}
        """Those that have not lapsed."""
        self._checked, self._until = 0.0, math.inf
        """Unix time of the last look at what has lapsed, and of the next; a clock set back causes one."""
        self._samples: BoundedMap[tuple[str, str, str], Samples] = BoundedMap(_MAX_SIZES)
        """By model, counter and tenant. Per worker: only what is adopted is worth a write."""
        self._passed: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The largest accepted prompts, by model and tenant; per worker."""
        self._suspected: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The smallest prompts refused without a word since something was accepted."""
        self._silent: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The smallest prompts that were met with silence since one of their size was accepted."""
        self.version = 0
        """Changes when a lesson is new or has lapsed, from this worker or another."""
        self.on_lesson: Callable[[], None] = lambda: None
        """Called after each change that this process has made."""
        self.refresh()

    @property
    def models(self) -> tuple[str, ...]:
        """The models about which anything is known."""
        return tuple(dict.fromkeys(model for model, _ in self._in_force))

    def merge(self, others: Rows) -> None:
        """Take over what other replicas have learned or forgotten."""
        if self._enabled and facts.kept(facts.joined(self.known, others), self._clock()) != self.known:
            self._change(others)

    def limits(
        self, model: str, by: str | None = None, supposed: Search | None = None
    ) -> tuple[ModelLimits, str] | None:
        """The limits that bind this tenant's requests, and their source, for the resolver of profiles; `by` None: the
        newest, for display. `supposed`: taken for what its latest refusal has taught."""
        found = self._binding(model, by)
        if supposed is not None:
            searched = {facts.SEARCH: Lesson(supposed, math.inf)}
            found = {name: lesson for name, lesson in found.items() if name not in facts.IN_TOKENS} | searched
        limits, phrase = limits_of(found)
        return None if limits == NOTHING else (limits, phrase)

    def ratio(self, model: str, counted_by: str, by: str | None = None) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured), for this tenant's requests; `by`
        None: the newest, for display."""
        if not self._in_force:
            return 1.0, False
        known = self._binding(model, by) if by is None else self._in_force.get((key_of(model), by), {})
        lesson = known.get(f"{facts.RATIO}{counted_by}")
        return (1.0, False) if lesson is None else (lesson.size, True)

    def note_refusal(self, model: str, verdict: Verdict, certain_window_tokens: int | None, by: str = "") -> None:
        """Keep the limit that a refusal printed, if it can be believed. `certain_window_tokens`: what other sources
        state; None if that is a guess."""
        limit, scope = verdict.limit, verdict.limit_scope
        if not verdict.limit_is_learnable or limit is None:
            return
        is_known = bool(self._binding(model, by).keys() & facts.IN_TOKENS)
        if scope is Scope.WINDOW and limit == certain_window_tokens and not is_known:
            return  # the source that states it will also state changes
        name = facts.CHARS if verdict.unit is Unit.CHARS else facts.INPUT if scope is Scope.INPUT else facts.WINDOW
        self.learn(model, {name: limit}, by)

    def note_cut(self, model: str, window_tokens: int, certain_window_tokens: int | None, by: str = "") -> None:
        """Keep the window to which the upstream has silently cut a prompt, as its usage proves. If that is the certain
        one, the server's own word, it binds all."""
        whose = facts.THE_SERVER if window_tokens == certain_window_tokens else by
        stated = {} if certain_window_tokens is None else {facts.STATED: certain_window_tokens}
        self.learn(model, {**stated, facts.CUT_TO: window_tokens}, whose)

    def note_prompt(self, model: str, prompt_tokens: int, by: str = "") -> None:
        """Compare an accepted prompt with the learned limits: one that it has exceeded no longer holds."""
        known = self._binding(model, by).items()
        self.learn(model, {name: 0 for name, one in known if name in _COUNTED and one.size < prompt_tokens}, by)

    def note_allocated(self, model: str, window_tokens: int) -> None:
        """The server itself reports a new window: what it said earlier, and smaller limits, no longer hold."""
        key = key_of(model)
        for (about, by), lessons in self._in_force.items():
            stated = self._binding(model, by).get(facts.STATED)
            is_smaller = any(lessons[name].size < window_tokens for name in lessons.keys() & facts.IN_TOKENS)
            if about == key and is_smaller and (stated is None or stated.size != window_tokens):
                self.learn(model, {facts.STATED: window_tokens}, facts.THE_SERVER)
                return

    def note_count(self, model: str, counted_by: str, estimate_tokens: int, prompt_tokens: int, by: str = "") -> None:
        """Compare the prompt of a refusal, as the upstream counted it exactly, with our own estimate of it, before the
        ratio is applied. It is as long as prompts get, so one is enough, and waiting for more would cost as many
        refusals."""
        ratio = prompt_tokens / max(1, estimate_tokens)
        if estimate_tokens >= MIN_SAMPLE_TOKENS and is_plausible(ratio):
            self._sample(model, counted_by, by, ratio, is_refused=True)

    def search(self, model: str, by: str | None = "") -> Search | None:
        """The search for a limit that no refusal of this tenant has named."""
        return search_in(self._binding(model, by))

    def search_after(self, model: str, refused_tokens: int, reply: int | None, by: str = "", fixed: int = 0) -> Search:
        """The search for a limit after a refusal that names none; one that has lapsed begins where it was.

        `reply`: None if it is part of the refused tokens, of which prompts alone say nothing. `fixed`: of the refused
        ones, those that had to stay.
        """
        key = key_of(model), by
        passed = 0 if reply is None else self._passed.get(key) or 0
        refused = min(refused_tokens, self._suspected.get(key) or refused_tokens)
        if (known := self.search(model, by)) is not None:
            return known.after_refusal(refused, passed, reply or 0, fixed)
        lapsed = self.known.get(Key(*key, facts.SEARCH))
        if lapsed is not None and isinstance(lapsed.value, Search) and fixed < lapsed.value.guess < refused:
            return lapsed.value
        return Search.begun(refused, passed, reply or 0, fixed)

    def note_unnamed_refusal(self, model: str, search: Search, by: str = "") -> None:
        """Keep the search after a refusal that names no limit: the next requests are fitted to its guess."""
        if not 2 * SMALLEST_WINDOW_TOKENS <= search.refused <= LARGEST_TOKENS:
            return
        if self.learn(model, {facts.SEARCH: search}, by):
            self._passed.pop((key_of(model), by))
            self._suspected.pop((key_of(model), by))

    def note_suspected(self, model: str, refused_tokens: int, by: str = "") -> None:
        """Remember the size of a prompt refused without a word: the next second send will be smaller."""
        key = key_of(model), by
        self._suspected.put(key, min(refused_tokens, self._suspected.get(key) or refused_tokens))

    def note_silence(self, model: str, prompt_tokens: int, by: str = "") -> bool:
        """Remember the size of a prompt that was met with silence; returns whether that is the first time since one of
        its size was accepted."""
        known = self._silent.get(key := (key_of(model), by))
        self._silent.put(key, prompt_tokens if known is None else min(known, prompt_tokens))
        return known is None

    def note_passed(self, model: str, prompt_tokens: int, by: str = "", *, is_first: bool = True) -> None:
        """Remember the size of an accepted prompt, for the search for a limit that no refusal names. Only a first send
        may raise the guess: the next turn continues from a second one."""
        key = key_of(model), by
        if prompt_tokens > (self._passed.get(key) or 0):
            self._passed.put(key, prompt_tokens)
        for refused in (self._suspected, self._silent):
            if prompt_tokens >= (refused.get(key) or math.inf):
                refused.pop(key)
        known = self.search(model, by) if self._in_force and is_first else None
        if known is not None and (found := known.after_pass(prompt_tokens)) is not known:
            self.learn(model, {facts.SEARCH: found or 0}, by)

    def note_refused_media(
        self, model: str, modalities: frozenset[Modality], by: str = "", *, is_conditional: bool = False
    ) -> None:
        """Keep which media a model cannot read, once the same request was accepted without them. What is refused under
        a condition is believed the second time."""
        known = self._binding(model, by)
        doubted = {kind for kind in modalities if is_conditional and f"{facts.MAY_REFUSE}{kind}" not in known}
        names = (f"{facts.MAY_REFUSE if kind in doubted else facts.REFUSES}{kind}" for kind in modalities)
        self.learn(model, dict.fromkeys(names, 1), by)

    def note_usage(
        self,
        model: str,
        counted_by: str,
        estimate_tokens: int,
        prompt_tokens: int,
        request_id: str,
        by: str = "",
        *,
        may_cut: bool = False,
    ) -> None:
        """Compare the upstream's count with what is known and with our own estimate of the same prompt, before the
        ratio is applied; `counted_by`: the counter of that estimate. `by`: the tenant of the request. `may_cut`:
        whether the upstream may cut prompts silently; then nothing but the ratio keeps a prompt whole, so one response
        is enough, and a count far under it is no sample."""
        self.note_prompt(model, prompt_tokens, by)
        if estimate_tokens < MIN_SAMPLE_TOKENS or prompt_tokens <= 0:
            return
        ratio, (known, is_measured) = prompt_tokens / estimate_tokens, self.ratio(model, counted_by, by)
        if indicates_truncation(ratio, known if may_cut and is_measured else None):
            logger().warning(
                "upstream_truncated_silently",
                request_id=request_id,
                model=key_of(model),
                estimate_tokens=int(estimate_tokens * known),
                prompt_tokens=prompt_tokens,
            )
        elif is_plausible(ratio):
            self._sample(model, counted_by, by, ratio, needed=1 if may_cut else MIN_SAMPLES)

    def _sample(
        self, model: str, counted_by: str, by: str, ratio: float, needed: int = MIN_SAMPLES, *, is_refused: bool = False
    ) -> None:
        """Take one more sample of a tenant's ratio, and adopt what follows if it is news. `is_refused`: it is one of a
        refusal, which is as long as prompts get: a higher one is adopted at once."""
        (known, is_measured), whose = self.ratio(model, counted_by, by), (key_of(model), counted_by, by)
        samples = (self._samples.get(whose) or Samples()).with_sample(ratio, is_refused=is_refused)
        news: float | None
        if is_refused and (ratio > known or not is_measured):
            news = rounded_up(ratio + RATIO_STEP / 2)  # the next prompts may be slightly above it
            samples = Samples((news,), may_be_dense=True)
        elif is_measured and not samples.may_be_dense and contradicts(ratio, known):
            news = rounded_up(max(1.0, ratio))
        else:
            news = samples.news(known if is_measured else None, needed)
        self._samples.put(whose, samples)
        if news is not None or is_measured:
            self.learn(model, {f"{facts.RATIO}{counted_by}": news or known}, by)

    def refresh(self) -> None:
        """Take over what other workers have adopted or forgotten since, and let lapse what is too old: one look at the
        file and one at the clock if nothing is."""
        if not self._enabled:
            return
        if self._file.is_news():
            try:
                self._know(rows_of(self._file.read(), self.upstream))
            except (OSError, ValueError) as error:
                self._warn("learning_not_read", error)
        elif not self._checked <= self._clock() < self._until:
            self._know({})

    def erase(self, model: str | None = None) -> Sequence[tuple[str, str]]:
        """Forget a model, or everything, of every upstream; returns what was forgotten, as upstreams and models."""
        forgotten: dict[tuple[str, str], None] = {}
        name, now = key_of(model or ""), self._clock()

        def rest(everything: Contents | None) -> Contents:
            found = {upstream: dict(rows) for upstream, rows in (everything or {}).items()}
            left = {one: facts.kept({**rows, **facts.forgetting(rows, now, name)}, now) for one, rows in found.items()}
            gone = [(one, key.model) for one, rows in found.items() for key in rows if key not in left[one]]
            forgotten.update(dict.fromkeys(gone))
            return {one: [*rows.items()] for one, rows in left.items()}

        try:
            self._file.change(rest)
        except OSError as error:
            self._warn("learning_not_erased", error)
        self._know(facts.forgetting(self.known, now, name))
        return [*forgotten]

    def _binding(self, model: str, by: str | None) -> Lessons:
        return facts.binding(self._in_force, key_of(model), by) if self._in_force else {}

    def learn(self, model: str, new: Mapping[str, float | Search], by: str = "") -> bool:
        """Keep what a tenant has met, as values by name; whether any of it is news for it. 0: it no longer holds. A
        limit that no model can have is not believed."""
        is_absurd = any(
            new[name] and not SMALLEST_WINDOW_TOKENS <= facts.size_of(new[name]) <= LARGEST_TOKENS
            for name in new.keys() & _LIMITS
        )
        if not self._enabled or not new or is_absurd:
            return False
        if _loop() is None:
            self.refresh()
        found, now = self._binding(model, by), self._clock()
        if any(new[name] for name in new.keys() & facts.IN_TOKENS):
            # What is met longer than a refusal must not come back when this one lapses.
            new = {**dict.fromkeys(found.keys() & {facts.CUT_TO, facts.LATE}, 0), **new}
        news = {name for name, value in new.items() if (one.value if (one := found.get(name)) else 0) != value}
        old = {
            name
            for name in found.keys() & new.keys()
            if now - found[name].at >= (facts.lapses_at(name, found[name]) - found[name].at) * _RENEWED
        }
        if news or old:
            # Newer than earlier lessons, whatever the clock of that host says.
            key = key_of(model)
            earlier = (one.at for row, one in self.known.items() if row.model in ("", key))
            at = max(now, max(earlier, default=0.0) + 0.001)
            self._change({Key(key, by, name): Lesson(new[name], at) for name in news | old})
            self.on_lesson()
        for name in sorted(news):
            logger().info("lesson_learned", model=key_of(model), lesson=name, value=facts.size_of(new[name]))
        return bool(news)

    def _change(self, rows: Rows) -> None:
        """Add rows, here at once and in the file as soon as the disk allows; on an event loop, a thread writes it."""
        self._know(rows)
        with self._lock:
            is_writing, self._is_writing = self._is_writing, True
        if is_writing:
            return
        if (loop := _loop()) is None:
            self._write()
        else:
            loop.run_in_executor(None, self._write)

    def _write(self) -> None:
        """Add what is known to the file, until nothing is new; trouble with the file affects only the file."""
        written = self.known

        def changed(everything: Contents | None) -> Contents:
            nonlocal written
            written = self._know(rows_of(everything, self.upstream))
            return {**(everything or {}), self.upstream: [*written.items()]}

        while self._is_writing:
            written = self.known
            try:
                self._file.change(changed)
            except OSError as error:
                self._warn("learning_not_kept", error)
            with self._lock:
                self._is_writing = self.known is not written

    def _know(self, new: Rows) -> Rows:
        """Add rows to what is known, which is returned; the file forgets what is too old at the next lesson."""
        with self._lock:
            self._checked, before = self._clock(), facts.forgotten_at(self.known)
            self.known = known = facts.kept(facts.joined(self.known, new), self._checked)
            if facts.forgotten_at(known) != before:
                self._samples.clear()
            standing = facts.in_force(known, self._checked)
            self._until = min((facts.lapses_at(key.name, one) for key, one in standing.items()), default=math.inf)
            in_force = facts.by_tenant(standing)
            if in_force != self._in_force:
                self._in_force = in_force
                self.version += 1
            return known

    def _warn(self, event: str, error: OSError | ValueError) -> None:
        reason = error.strerror if isinstance(error, OSError) else "not what this release writes"
        logger().warning(event, file=str(self._file.path), reason=reason)


def _loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, which must not wait for a disk."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
