"""Learns from upstreams about their models: limits from refusals, and the error of our estimate.

Rule: only a limit printed exactly is believed at first sight; one under half of what other sources are certain of must
be seen twice, and one that the client may have written itself teaches nothing. What one tenant has met binds no
other until a second tenant meets it. Limits that other sources state are not kept. All workers share what is adopted
through one small file; without a writable file it lasts as long as the process.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.core.models import Modality, Search, facts
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
from proxy.shell.models.knowledge import (
    MAX_MODELS,
    Contents,
    Knowledge,
    Known,
    Refusals,
    key_of,
    merged,
    unexpired,
    with_model,
)
from proxy.shell.resources import BoundedMap, SharedFile, logger, with_newest
from proxy.wire import LARGEST_TOKENS, SMALLEST_WINDOW_TOKENS, ModelLimits

_CONFIRMED_SECONDS: Final = 24 * 3600.0
"""How often, at most, a limit that is met again is renewed."""
_MAX_SIZES: Final = 512
"""Models and tenants of which the sizes are remembered that were accepted, or refused without a word."""

_FAR_OVER: Final = 1.25
"""Times a guess: a prompt that grows from turn to turn does not move it at each turn."""

_NOTHING: Final = Knowledge()


class Learning:
    """Lessons about the models of one upstream. `limits` and `ratio` may be called from any thread."""

    def __init__(
        self, folder: Path, upstream: str, *, enabled: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = SharedFile(folder / "learned.json", Contents)
        self.upstream = upstream
        self._enabled = enabled
        self._clock = clock
        """Unix time."""
        self.known: Known = {}
        """All that is known. Replaced as a whole, never changed: planning threads read it."""
        self._checked, self._until = 0.0, math.inf
        """Unix time of the last look at what is too old, and of the next; a clock set back causes one."""
        self._samples: dict[tuple[str, str, str], Samples] = {}
        """Keys: model, counter and tenant. Per worker: only what is adopted is worth a write."""
        self._passed: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The largest accepted prompts, by model and tenant; per worker."""
        self._suspected: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The smallest prompts refused without a word since something was accepted."""
        self._silent: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_SIZES)
        """The smallest prompts that were met with silence since one of their size was accepted."""
        self.version = 0
        """Changes when a limit or a ratio is new, from this worker or another."""
        self.on_lesson: Callable[[], None] = lambda: None
        """Called after each change that this process has made."""
        self.refresh()

    @property
    def models(self) -> tuple[str, ...]:
        """The models about which anything is known."""
        return tuple(model for model in self.known if model != key_of(None))

    @property
    def kept_at(self) -> float:
        """Unix time of the last change of the file; 0 if there is none."""
        return self._file.changed_at

    def merge(self, others: Known) -> None:
        """Take over what other replicas have learned."""
        found = unexpired(others, self._clock())
        if self._enabled and merged(self.known, found) != self.known:
            self._change(lambda known: merged(known, found))

    def limits(
        self, model: str, by: str | None = None, supposed: Search | None = None
    ) -> tuple[ModelLimits, str] | None:
        """The limits from refusals that bind this tenant's requests, and their source, for the resolver of profiles;
        `by` None picks the tenant with the most recent lesson, for display. `supposed` replaces its latest
        lesson."""
        found, of_bytes = self._of(model).limits(by, supposed), self.search(None, by)
        if of_bytes is None or not self._enabled:
            return found if self._enabled else None
        limits, phrase = found or (ModelLimits(), "learned from a refusal")
        return replace(limits, input_bytes=of_bytes.guess), phrase

    def taught_apart(self, model: str, by: str) -> str:
        """The tenant if it has limits of its own, otherwise ''."""
        known, of_all = self._of(model), self._of(None)
        if known is _NOTHING and of_all is _NOTHING:
            return ""
        is_apart = known.of(by).binds or of_all.of(by).binds or facts.has_lessons_of(known.facts, by)
        return by if is_apart else ""

    def ratio(self, model: str, counted_by: str, by: str | None = None, confirmed: bool = False) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured), for this tenant's requests;
        without a tenant: to show to people. `confirmed`: over 1 only as far as a refusal has confirmed it."""
        return self._of(model).ratio_of(counted_by, by or None, confirmed=confirmed)

    def note_refusal(self, model: str, verdict: Verdict, certain_window_tokens: int | None, by: str = "") -> None:
        """Keep the limit that a refusal printed, if it can be believed: for the tenant that met it, and for all others
        once another tenant has met it.

        `certain_window_tokens`: what other sources state; None if that is a guess and no evidence against it. `by`: the
        tenant of the request.
        """
        limit, scope, unit = verdict.limit, verdict.limit_scope, verdict.unit or Unit.TOKENS
        if not self._enabled or not verdict.limit_is_learnable or limit is None:
            return
        if not SMALLEST_WINDOW_TOKENS <= limit <= LARGEST_TOKENS:
            return
        self.refresh()  # another worker may have seen it first
        known = self._of(model)
        own = known.of(by)
        if known == known.with_limit(limit, scope, unit) and not own.binds:
            if self._clock() - known.taught >= _CONFIRMED_SECONDS:
                self._teach(model, lambda found: found)
            return
        if own == own.with_limit(limit, scope, unit):
            if self._clock() - own.taught >= _CONFIRMED_SECONDS:
                self._teach_tenant(model, by, lambda found: found)
            return
        if scope is Scope.WINDOW and limit == certain_window_tokens:
            return  # the source that states it will also state changes
        is_seen_by_others = known.is_seen_by_others(by, limit, scope, unit)
        is_unlikely = certain_window_tokens is not None and limit < certain_window_tokens // 2
        if is_unlikely and not is_seen_by_others and own.doubted_tokens != limit:
            self._teach_tenant(model, by, lambda found: replace(found, doubted_tokens=limit))
            return
        if is_seen_by_others:
            self._teach(model, lambda found: found.adopted(limit, scope, unit))
        else:
            self._teach_tenant(model, by, lambda found: found.with_limit(limit, scope, unit))
        named = {"limit_chars": limit} if unit is Unit.CHARS else {"limit_tokens": limit}
        logger().info("limit_learned", model=key_of(model), **named, scope=scope.value, for_all=is_seen_by_others)

    def note_cut(self, model: str, window_tokens: int, certain_window_tokens: int | None, by: str = "") -> None:
        """Keep the window to which the upstream has silently cut a prompt, as its usage proves."""
        if not self._enabled or not SMALLEST_WINDOW_TOKENS <= window_tokens <= LARGEST_TOKENS:
            return
        self.refresh()
        known = self._of(model).limits(by)
        if known is not None and known[0].cuts_silently and known[0].window_tokens == window_tokens:
            return
        now = self._clock()
        self._adopt(model, lambda found: found.with_cut(by, window_tokens, certain_window_tokens, now))
        logger().info(
            "limit_learned", model=key_of(model), limit_tokens=window_tokens, scope=Scope.WINDOW.value, evidence="usage"
        )

    def note_taken(self, model: str, prompt_tokens: int, guessed_window_tokens: int, by: str = "") -> None:
        """Keep that a prompt far larger than a guess was accepted: the window is at least that large."""
        if not self._enabled or not guessed_window_tokens * _FAR_OVER <= prompt_tokens <= LARGEST_TOKENS:
            return
        if self._learn(model, by, {facts.TAKEN: prompt_tokens}, is_news=lambda known, new: new > known):
            logger().info("limit_learned", model=key_of(model), limit_tokens=None, taken_tokens=prompt_tokens)

    def note_prompt(self, model: str, prompt_tokens: int, by: str = "") -> None:
        """Compare an accepted prompt with the learned limits."""
        if self._enabled:
            self._refute(model, prompt_tokens, by)

    def note_allocated(self, model: str, window_tokens: int) -> None:
        """The server itself reports a new window: smaller limits found earlier no longer hold, nor smaller windows to
        which prompts were cut, unless the server reported the same then."""
        known, now = self._of(model), self._clock()

        def without(found: Knowledge) -> Knowledge:
            cut_less = found.without_cuts(lambda cut: cut.value < window_tokens != cut.stated, now)
            return cut_less.without_limits_under(window_tokens)

        if without(known) is not known:
            self._adopt(model, without)
            logger().info("limit_learned", model=key_of(model), limit_tokens=None, allocated_tokens=window_tokens)

    def note_count(self, model: str, counted_by: str, estimate_tokens: int, prompt_tokens: int, by: str = "") -> None:
        """Compare the prompt of a refusal, as the upstream counted it exactly, with our own estimate of it, before the
        ratio is applied. It is as long as prompts get, so one is enough, and waiting for more would cost as many
        refusals."""
        ratio, (known, is_measured) = prompt_tokens / max(1, estimate_tokens), self.ratio(model, counted_by, by)
        if not self._enabled or estimate_tokens < MIN_SAMPLE_TOKENS or not is_plausible(ratio):
            return
        if is_measured and ratio <= known:
            self._learn(model, by, {f"{facts.CONFIRMED}{counted_by}": ratio}, is_news=lambda known, new: new > known)
            self._sample(model, counted_by, by, ratio)
            return
        raised = rounded_up(ratio + RATIO_STEP / 2)  # the next prompts may be slightly above it
        self._samples = with_newest(self._samples, {(key_of(model), counted_by, by): Samples((raised,))}, MAX_MODELS)
        self._adopt_ratio(model, counted_by, by, raised, is_confirmed=True)

    def note_images(self, model: str, tokens: Mapping[str, int], by: str = "") -> None:
        """Keep measured costs of images, by `image_key`."""
        if self._learn(model, by, {f"{facts.IMAGE}{image}": cost for image, cost in tokens.items()}):
            logger().info("image_cost_learned", model=key_of(model), tokens=dict(tokens))

    def search(self, model: str | None, by: str | None = "") -> Search | None:
        """The search for a limit that no refusal of this tenant, or of two others, has named; for every model: for one
        in bytes."""
        known = self._of(model)
        own = known.newest if by is None else known.of(by)
        return own.unnamed or known.unnamed

    def search_after(
        self,
        model: str | None,
        refused_tokens: int,
        reply: int | None,
        by: str = "",
        scale: float = 1.0,
        fixed: int = 0,
    ) -> Search:
        """The search for a limit after a refusal that names none. `reply`: None if it is part of the refused tokens,
        of which prompts alone say nothing. `scale`: what a prompt has by the counter of `refused_tokens` for one token
        of those that were noted; `fixed`: of the refused ones, those that had to stay."""
        key = key_of(model), by
        passed = 0 if reply is None else int((self._passed.get(key) or 0) * scale)
        suspected = int((self._suspected.get(key) or refused_tokens / scale) * scale)
        known = self._of(model).of(by).unnamed
        if known is None:
            return Search.begun(min(refused_tokens, suspected), passed, reply or 0, fixed)
        return known.after_refusal(min(refused_tokens, suspected), passed, reply or 0, fixed)

    def note_unnamed_refusal(self, model: str | None, search: Search, by: str = "") -> None:
        """Keep the search after a refusal that names no limit: the next requests are fitted to its guess."""
        if not self._enabled or not 2 * SMALLEST_WINDOW_TOKENS <= search.refused <= LARGEST_TOKENS:
            return
        self.refresh()
        known = self._of(model)
        if known.of(by).unnamed == search:
            return
        self._passed.pop((key_of(model), by))
        self._suspected.pop((key_of(model), by))
        others = [found.unnamed for tenant, found in known.of_keys.items() if tenant != by]
        seen = max((other for other in others if other is not None), key=lambda other: other.guess, default=None)
        self._teach_tenant(model, by, lambda found: replace(found, unnamed=search))
        if seen is not None:  # the limit that all of them met is below the larger one at least
            widest = max(seen, search, key=lambda one: one.guess)
            self._teach(model, lambda found: replace(found, unnamed=widest))
        self._log_search(model, search, for_all=seen is not None)

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

    def note_passed(self, model: str | None, prompt_tokens: int, by: str = "", *, is_first: bool = True) -> None:
        """Remember the size of an accepted prompt, for the search for a limit that no refusal names. Only a first send
        may raise the guess: the next turn continues from a second one."""
        key = key_of(model), by
        if prompt_tokens > (self._passed.get(key) or 0):
            self._passed.put(key, prompt_tokens)
        for refused in (self._suspected, self._silent):
            size = refused.get(key)
            if size is not None and prompt_tokens >= size:
                refused.pop(key)
        known = self.known.get(key[0], _NOTHING)
        if known is _NOTHING or not (self._enabled and is_first):
            return
        if known.after_pass_of(by, prompt_tokens) is not known:
            self._adopt(model, lambda found: found.after_pass_of(by, prompt_tokens))
            self._log_search(model, self._of(model).of(by).unnamed, for_all=False)

    def _log_search(self, model: str | None, search: Search | None, *, for_all: bool) -> None:
        limit = None if search is None else search.guess
        named = {"limit_bytes": limit} if model is None else {"limit_tokens": limit}
        logger().info(
            "limit_learned",
            model=key_of(model),
            **named,
            scope=Scope.INPUT.value,
            inferred=True,
            for_all=for_all,
        )

    def note_refused_media(self, model: str, modalities: frozenset[Modality], by: str = "") -> None:
        """Keep which media a model cannot read, once the same request was accepted without them."""
        if self._learn(model, by, dict.fromkeys([f"{facts.REFUSES}{kind}" for kind in modalities], 1)):
            logger().info("media_refusal_learned", model=key_of(model), refused=sorted(modalities))

    def note_media_refused_in_results(self, model: str, by: str = "") -> None:
        """Keep that an upstream accepts only text in tool results."""
        if self._learn(model, by, {facts.RESULTS_HOLD_TEXT: 1}):
            logger().info("media_refusal_learned", model=key_of(model), refused=["tool_results"])

    def note_bytes(self, refused: int, taken: int, by: str = "") -> None:
        """Keep that a body was refused for its bytes and accepted with fewer."""
        self.note_unnamed_refusal(None, self.search_after(None, refused, 0, by), by)
        self.note_passed(None, taken, by, is_first=False)

    def note_rate(self, model: str, tokens: int, by: str = "", *, holds_reply: bool = True) -> None:
        """Keep a rate that one request exceeded alone, as we count tokens. `holds_reply`: whether its reply limit
        counted."""
        is_rate = SMALLEST_WINDOW_TOKENS <= tokens <= LARGEST_TOKENS
        if is_rate and self._learn(model, by, {facts.RATE if holds_reply else facts.RATE_OF_PROMPTS: tokens}):
            logger().info("limit_learned", model=key_of(model), limit_tokens=tokens, per="minute")

    def note_limit(self, model: str, name: str, value: int, by: str = "") -> None:
        """Keep any other limit that a refusal has stated."""
        if self._learn(model, by, {f"{facts.AT_MOST}{name}": value}):
            logger().info("limit_learned", model=key_of(model), limit=name, at_most=value)

    def note_tool_refused(self, model: str, by: str = "") -> None:
        """Keep that an upstream does not accept the proxy's own tool."""
        if self._learn(model, by, {facts.REFUSES_OUR_TOOL: 1}):
            logger().info("tool_refusal_learned", model=key_of(model))

    def note_cut_results_refused(self, model: str, by: str = "") -> None:
        """Keep that an upstream does not accept results that were cut on arrival."""
        if self._learn(model, by, {facts.CUT_RESULTS_REFUSED: 1}):
            logger().info("cut_refusal_learned", model=key_of(model))

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
        if not self._enabled:
            return
        self._refute(model, prompt_tokens, by)
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

    def refresh(self) -> None:
        """Take over what other workers have adopted or erased since, and drop what is too old: one look at the file and
        one at the clock if nothing is."""
        if not self._enabled:
            return
        is_news = self._file.is_news()
        if not is_news and self._checked <= self._clock() < self._until:
            return
        before = self.known
        if is_news:
            try:
                everything = self._file.read()
            except (OSError, ValueError) as error:
                self._warn("learning_not_read", error)
                return
            if everything is None:
                self._samples = {}
            self.known = (everything or {}).get(self.upstream, {})
        self._let_go()
        if self.known != before:
            self.version += 1

    def erase(self, model: str | None = None) -> Sequence[tuple[str, str]]:
        """Forget a model, or everything, of every upstream; returns what was forgotten, as upstreams and models."""
        forgotten: list[tuple[str, str]] = []
        gone = None if model is None else key_of(model)

        def rest(everything: Contents | None) -> Contents:
            found = {upstream: dict(known) for upstream, known in (everything or {}).items()}
            forgotten.extend((upstream, name) for upstream in found for name in found[upstream] if gone in (None, name))
            return {upstream: {n: one for n, one in known.items() if n != gone} for upstream, known in found.items()}

        try:
            if model is None:
                rest(self._file.read())
                self._file.remove()
            else:
                self._file.change(rest)
        except (OSError, ValueError) as error:
            self._warn("learning_not_erased", error)
        self.known = {} if gone is None else {name: one for name, one in self.known.items() if name != gone}
        self._samples = {}
        return forgotten

    def _of(self, model: str | None) -> Knowledge:
        return self.known.get(key_of(model), _NOTHING) if self.known else _NOTHING

    def _sample(self, model: str, counted_by: str, by: str, ratio: float, needed: int = MIN_SAMPLES) -> None:
        """Take one more sample of a tenant's ratio, and adopt what follows if it is news."""
        (known, is_measured), whose = self.ratio(model, counted_by, by), (key_of(model), counted_by, by)
        samples = self._samples.get(whose, Samples()).with_sample(ratio)
        self._samples = with_newest(self._samples, {whose: samples}, MAX_MODELS)
        is_confirmed = facts.binding(self._of(model).facts, f"{facts.CONFIRMED}{counted_by}", by) is not None
        if is_measured and not is_confirmed and contradicts(ratio, known):
            news: float | None = rounded_up(max(1.0, ratio))
        else:
            news = samples.news(known if is_measured else None, needed, may_be_dense=is_confirmed)
        if news is not None:
            self._adopt_ratio(model, counted_by, by, news, is_confirmed=is_confirmed)

    def _adopt_ratio(self, model: str, counted_by: str, by: str, ratio: float, *, is_confirmed: bool) -> None:
        confirmed = {f"{facts.CONFIRMED}{counted_by}": ratio} if is_confirmed else {}
        if self._learn(model, by, {f"{facts.RATIO}{counted_by}": ratio, **confirmed}):
            logger().info("ratio_learned", model=key_of(model), ratio=ratio)

    def _learn(
        self,
        model: str,
        by: str,
        new: Mapping[str, float],
        is_news: Callable[[float, float], bool] = operator.ne,
    ) -> bool:
        """Keep facts that a tenant has met, if they are news for it (known, new); whether any was."""
        if not self._enabled or not new:
            return False
        self.refresh()
        known = {name: facts.binding(self._of(model).facts, name, by) for name in new}
        changed = {
            name: value for name, value in new.items() if (old := known[name]) is None or is_news(old.value, value)
        }
        if not changed:
            return False
        now = self._clock()
        self._adopt(model, lambda found: replace(found, facts=facts.with_values(found.facts, by, changed, now)))
        return True

    def _refute(self, model: str, prompt_tokens: int, by: str) -> None:
        known, now = self._of(model), self._clock()
        if known is _NOTHING or known.refuted_by(prompt_tokens, by, now) is known:
            return
        self._adopt(model, lambda found: found.refuted_by(prompt_tokens, by, now))
        logger().info("limit_learned", model=key_of(model), limit_tokens=None, refuted_by_tokens=prompt_tokens)

    def _let_go(self) -> None:
        """Forget what is too old; the file forgets it at the next lesson."""
        self._checked = self._clock()
        self.known = unexpired(self.known, self._checked)
        self._until = min([known.until for known in self.known.values()], default=math.inf)

    def _teach(self, model: str | None, change: Callable[[Knowledge], Knowledge]) -> None:
        """Change what refusals have taught about a model."""
        now = self._clock()
        self._adopt(model, lambda found: replace(change(found.standing(now)), taught=int(now)))

    def _teach_tenant(self, model: str | None, by: str, change: Callable[[Refusals], Refusals]) -> None:
        """Change what one tenant's refusals have taught about a model."""
        now = self._clock()

        def changed(found: Knowledge) -> Knowledge:
            found = found.standing(now)
            return found.taught_by(by, replace(change(found.of(by)), taught=int(now)))

        self._adopt(model, changed)

    def _adopt(self, model: str | None, change: Callable[[Knowledge], Knowledge]) -> None:
        """Change what is known about a model."""
        self.refresh()  # what was erased elsewhere must not be written back
        self._change(lambda known: with_model(known, model, change, self._clock()))
        self.on_lesson()

    def _change(self, change: Callable[[Known], Known]) -> None:
        """Change what is known, here and in the file; trouble with the file affects only the file."""

        def changed(everything: Contents | None) -> Contents:
            # What could not be written earlier is known only here.
            self.known = change(merged(self.known, (everything or {}).get(self.upstream, {})))
            self._let_go()
            self.version += 1
            return {**(everything or {}), self.upstream: dict(self.known)}

        try:
            self._file.change(changed)
        except OSError as error:
            changed(None)
            self._warn("learning_not_kept", error)

    def _warn(self, event: str, error: OSError | ValueError) -> None:
        reason = error.strerror if isinstance(error, OSError) else "not what was written"
        logger().warning(event, file=str(self._file.path), reason=reason)
