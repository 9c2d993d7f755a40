"""What upstreams teach about their models: limits out of refusals, and how far our estimate is off.

Rule: only what was printed exactly is believed, at the first sighting; a limit under half of what others surely know
needs a second one, and one that the client may have written itself teaches nothing. What one owner has met binds nobody
else before another one meets it. A limit that others state need not be kept. What is adopted is shared by all workers
through one small file; without a file to write it lasts as long as the process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.core.models.profile import Modality
from proxy.core.overflow import Scope, Unit, Verdict
from proxy.shell.models.calibration import (
    MIN_SAMPLE_TOKENS,
    MIN_SAMPLES,
    RATIO_STEP,
    Samples,
    is_plausible,
    tells_of_truncation,
)
from proxy.shell.models.knowledge import STANDS_SECONDS, Contents, Knowledge, Refusals, key_of
from proxy.shell.models.shared_file import SharedFile
from proxy.shell.resources.bounded import with_newest
from proxy.shell.resources.logs import logger
from proxy.wire.model_list import LARGEST_TOKENS, SMALLEST_WINDOW_TOKENS, ModelLimits

MAX_MODELS: Final = 512
"""Remembered, the oldest go first; a model's name is foreign input."""
_CONFIRMED_SECONDS: Final = 24 * 3600.0
"""A limit that is met again is noted as new at most this often."""
_UNDER_REFUSED: Final = 0.9
"""Of the smallest request that was refused: a window of half of what was believed is found in seven refusals, and at
most a tenth of it stays unused."""

_FAR_OVER: Final = 1.25
"""Times a guess: a prompt that grows from turn to turn does not move it with each."""

_NOTHING: Final = Knowledge()


class Learning:
    """What is known of the models at one upstream. `limits` and `ratio` may be called from any thread."""

    def __init__(
        self, folder: Path, upstream: str, *, enabled: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = SharedFile(folder / "learned.json", Contents)
        self._upstream = upstream
        self._enabled = enabled
        self._clock = clock
        """Unix time."""
        self._known: dict[str, Knowledge] = {}
        """Replaced as a whole, never changed: planning threads read it."""
        self._until = math.inf
        """Unix time at which something of it is too old."""
        self._samples: dict[str, Samples] = {}
        """Each worker has its own: only what is adopted is worth a write."""
        self._log = logger()
        self.version = 0
        """Another number when a limit or a ratio is new, from here or from another worker."""
        self.refresh()

    @property
    def models(self) -> tuple[str, ...]:
        """The models of which anything is known."""
        return tuple(self._known)

    def limits(self, model: str, by: str | None = None) -> tuple[ModelLimits, str] | None:
        """What refusals have taught that binds this owner's requests, and who says so, for the resolver of profiles;
        `by` None: of the owner who was taught last, to tell people."""
        return self._of(model).limits(by)

    def taught_apart(self, model: str, by: str) -> str:
        """The owner, when other limits bind his requests than all others'; else nobody."""
        return by if self._of(model).of(by).binds else ""

    def ratio(self, model: str, counted_by: str) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured)."""
        return self._of(model).ratio_of(counted_by)

    def note_refusal(self, model: str, verdict: Verdict, certain_window_tokens: int | None, by: str = "") -> None:
        """Keep the limit that a refusal printed, when it may be believed: for the owner who met it, and for all others
        once another one has.

        `certain_window_tokens`: what others state, None when that is a guess and no evidence against it. `by`: whose
        request it was.
        """
        limit, scope, unit = verdict.limit, verdict.limit_scope, verdict.unit or Unit.TOKENS
        if not self._enabled or not verdict.limit_is_learnable or limit is None:
            return
        if not SMALLEST_WINDOW_TOKENS <= limit <= LARGEST_TOKENS:
            return
        self.refresh()  # the first sighting may have been another worker's
        known = self._of(model)
        own = known.of(by)
        if known == known.with_limit(limit, scope, unit) and not own.binds:
            if self._clock() - known.taught >= _CONFIRMED_SECONDS:
                self._teach(model, lambda found: found)
            return
        if own == own.with_limit(limit, scope, unit):
            if self._clock() - own.taught >= _CONFIRMED_SECONDS:
                self._teach_owner(model, by, lambda found: found)
            return
        if scope is Scope.WINDOW and limit == certain_window_tokens:
            return  # whoever says so will say what is new, too
        is_seen_by_others = known.is_seen_by_others(by, limit, scope, unit)
        is_unlikely = certain_window_tokens is not None and limit < certain_window_tokens // 2
        if is_unlikely and not is_seen_by_others and own.doubted_tokens != limit:
            self._teach_owner(model, by, lambda found: replace(found, doubted_tokens=limit))
            return
        if is_seen_by_others:
            self._teach(model, lambda found: found.adopted(limit, scope, unit))
        else:
            self._teach_owner(model, by, lambda found: found.with_limit(limit, scope, unit))
        named = {"limit_chars": limit} if unit is Unit.CHARS else {"limit_tokens": limit}
        self._log.info("limit_learned", model=key_of(model), **named, scope=scope.value, for_all=is_seen_by_others)
        self.version += 1

    def note_cut(self, model: str, window_tokens: int, certain_window_tokens: int | None) -> None:
        """Keep the window to which the upstream has cut a prompt without a word, as its usage proves."""
        if not self._enabled or not SMALLEST_WINDOW_TOKENS <= window_tokens <= LARGEST_TOKENS:
            return
        self.refresh()
        known = self._of(model)
        if known.cuts_silently and known.window_tokens == window_tokens:
            return
        self._teach(model, lambda found: found.with_cut(window_tokens, certain_window_tokens))
        self._log.info(
            "limit_learned", model=key_of(model), limit_tokens=window_tokens, scope=Scope.WINDOW.value, witness="usage"
        )
        self.version += 1

    def note_taken(self, model: str, prompt_tokens: int, guessed_window_tokens: int) -> None:
        """Keep that a prompt was taken that is far over a guess: so much fits at the least."""
        if not self._enabled or not guessed_window_tokens * _FAR_OVER <= prompt_tokens <= LARGEST_TOKENS:
            return
        self._teach(model, lambda found: replace(found, taken_tokens=max(prompt_tokens, found.taken_tokens or 0)))
        self._log.info("limit_learned", model=key_of(model), limit_tokens=None, taken_tokens=prompt_tokens)
        self.version += 1

    def note_prompt(self, model: str, prompt_tokens: int, by: str = "") -> None:
        """Hold a prompt that was taken against the learned limits."""
        if self._enabled:
            self._refute(model, prompt_tokens, by)

    def note_allocated(self, model: str, window_tokens: int) -> None:
        """The server says itself what it has allocated: what was seen of a smaller window is over, unless it said the
        same then."""
        known = self._of(model)
        if not known.cuts_silently or known.window_tokens is None or window_tokens == known.stated_tokens:
            return
        if window_tokens > known.window_tokens:
            self._adopt(model, Knowledge.without_cut)
            self._log.info("limit_learned", model=key_of(model), limit_tokens=None, allocated_tokens=window_tokens)
            self.version += 1

    def note_count(self, model: str, counted_by: str, estimate_tokens: int, prompt_tokens: int) -> None:
        """Hold the prompt of a refusal, as the upstream counted it exactly, against our own estimate of it, the ratio
        not applied. It is as long as prompts get, so that one is enough, and waiting for more would cost as many
        refusals."""
        ratio, (known, calibrated) = prompt_tokens / max(1, estimate_tokens), self.ratio(model, counted_by)
        if not self._enabled or estimate_tokens < MIN_SAMPLE_TOKENS or not is_plausible(ratio):
            return
        if calibrated and ratio <= known:
            self._note_sample(model, counted_by, self._sampled(model, ratio))
            return
        samples = Samples(MIN_SAMPLES, ratio + RATIO_STEP / 2)  # the next prompts may be a little over it
        self._samples = with_newest(self._samples, {key_of(model): samples}, MAX_MODELS)
        self._note_sample(model, counted_by, samples)

    def note_images(self, model: str, tokens: Mapping[str, int]) -> None:
        """Keep what images were seen to cost, by `image_key`."""
        if not self._enabled or not tokens:
            return
        self._adopt(model, lambda found: found.with_images(tokens))
        self._log.info("image_cost_learned", model=key_of(model), tokens=dict(tokens))
        self.version += 1

    def note_unnamed_refusal(self, model: str, requested_tokens: int, by: str = "") -> None:
        """Conclude the window from refusals that name no limit: a little less than the smallest request that was
        refused, from the second on. Else every long request of such an upstream would go up twice for ever.

        `requested_tokens`: the prompt and the reply that was asked for; it may be the latter that is too much. `by`:
        whose request it was.
        """
        if not self._enabled or not SMALLEST_WINDOW_TOKENS <= requested_tokens <= LARGEST_TOKENS:
            return
        self.refresh()
        known = self._of(model)
        own = known.of(by)
        if own.refused_tokens is None:
            self._teach_owner(model, by, lambda found: replace(found, refused_tokens=requested_tokens))
            return
        smallest = min(own.refused_tokens, requested_tokens)
        inferred = max(SMALLEST_WINDOW_TOKENS, int(smallest * _UNDER_REFUSED))
        if own.inferred_tokens is not None and own.inferred_tokens <= inferred:
            return
        others = [found.inferred_tokens for owner, found in known.of_keys.items() if owner != by]
        seen = max((tokens for tokens in others if tokens is not None), default=None)
        self._teach_owner(model, by, lambda found: replace(found, refused_tokens=smallest, inferred_tokens=inferred))
        if seen is not None:  # what all of them have met is under the larger one at the least
            self._teach(model, lambda found: replace(found, inferred_tokens=max(seen, inferred)))
        self._log.info(
            "limit_learned",
            model=key_of(model),
            limit_tokens=inferred,
            scope=Scope.WINDOW.value,
            inferred=True,
            for_all=seen is not None,
        )
        self.version += 1

    def note_refused_media(self, model: str, modalities: frozenset[Modality]) -> None:
        """Keep what a model does not read, once the same request was taken without it."""
        self.refresh()
        new = modalities - set(self._of(model).refused)
        if not self._enabled or not new:
            return
        self._teach(model, lambda found: replace(found, refused=tuple(sorted({*found.refused, *new}))))
        self._log.info("media_refusal_learned", model=key_of(model), refused=sorted(new))
        self.version += 1

    def note_media_refused_in_results(self, model: str) -> None:
        """Keep that an upstream takes text alone in the results of tools."""
        self.refresh()
        if not self._enabled or self._of(model).results_hold_text:
            return
        self._teach(model, lambda found: replace(found, results_hold_text=True))
        self._log.info("media_refusal_learned", model=key_of(model), refused=["tool_results"])
        self.version += 1

    def note_tool_refused(self, model: str) -> None:
        """Keep that an upstream does not take the proxy's own tool."""
        self.refresh()
        if not self._enabled or self._of(model).refuses_our_tool:
            return
        self._teach(model, lambda found: replace(found, refuses_our_tool=True))
        self._log.info("tool_refusal_learned", model=key_of(model))
        self.version += 1

    def note_usage(
        self, model: str, counted_by: str, estimate_tokens: int, prompt_tokens: int, request_id: str, by: str = ""
    ) -> None:
        """Hold what the upstream counted against what is known, and against our own estimate of the same prompt, the
        ratio not applied; `counted_by`: the counter that made it. `by`: whose request it was."""
        if not self._enabled:
            return
        self._refute(model, prompt_tokens, by)
        if estimate_tokens < MIN_SAMPLE_TOKENS or prompt_tokens <= 0:
            return
        ratio, (known, calibrated) = prompt_tokens / estimate_tokens, self.ratio(model, counted_by)
        adopted = known if calibrated else None
        if tells_of_truncation(ratio, adopted):
            self._log.warning(
                "upstream_truncated_silently",
                request_id=request_id,
                model=key_of(model),
                estimate_tokens=int(estimate_tokens * known),
                prompt_tokens=prompt_tokens,
            )
        elif is_plausible(ratio):
            self._note_sample(model, counted_by, self._sampled(model, ratio))

    def refresh(self) -> None:
        """Take over what other workers have adopted or erased since, and let go of what is too old: one look at the
        file and one at the clock when nothing is."""
        if not self._enabled:
            return
        is_news = self._file.is_news()
        if not is_news and self._clock() < self._until:
            return
        if is_news:
            try:
                everything = self._file.read()
            except (OSError, ValueError) as error:
                self._warn("learning_not_read", error)
                return
            if everything is None:
                self._samples = {}
            self._known = (everything or {}).get(self._upstream, {})
        self._let_go()
        self.version += 1

    def erase(self) -> None:
        """Forget everything, of every upstream."""
        self._known, self._samples = {}, {}
        try:
            self._file.remove()
        except OSError as error:
            self._warn("learning_not_erased", error)
        self.version += 1

    def _of(self, model: str) -> Knowledge:
        return self._known.get(key_of(model), _NOTHING) if self._known else _NOTHING

    def _sampled(self, model: str, ratio: float) -> Samples:
        before = self._samples.get(key_of(model))
        samples = before.with_sample(ratio) if before else Samples(1, ratio)
        self._samples = with_newest(self._samples, {key_of(model): samples}, MAX_MODELS)
        return samples

    def _note_sample(self, model: str, counted_by: str, samples: Samples) -> None:
        """Adopt the ratio that was seen, when it is news."""
        known, calibrated = self.ratio(model, counted_by)
        if (news := samples.news(known if calibrated else None)) is not None:
            self._adopt(model, lambda found: replace(found, ratio=news, calibrated=True, counted_by=counted_by))
            self._log.info("ratio_learned", model=key_of(model), ratio=news)
            self.version += 1

    def _refute(self, model: str, prompt_tokens: int, by: str) -> None:
        known = self._of(model)
        if known.refuted_by(prompt_tokens, by) is known:
            return
        self._adopt(model, lambda found: found.refuted_by(prompt_tokens, by))
        self._log.info("limit_learned", model=key_of(model), limit_tokens=None, refuted_by_tokens=prompt_tokens)
        self.version += 1

    def _let_go(self) -> None:
        """Forget what is too old; the file forgets it with the next lesson."""
        now = self._clock()
        self._known = {model: known.standing(now) for model, known in self._known.items()}
        taught = [
            found.taught for known in self._known.values() for found in (known, *known.of_keys.values()) if found.taught
        ]
        self._until = min(taught, default=math.inf) + STANDS_SECONDS

    def _teach(self, model: str, change: Callable[[Knowledge], Knowledge]) -> None:
        """Change what refusals have taught of a model."""
        now = self._clock()
        self._adopt(model, lambda found: replace(change(found.standing(now)), taught=int(now)))

    def _teach_owner(self, model: str, by: str, change: Callable[[Refusals], Refusals]) -> None:
        """Change what the refusals that one owner met have taught of a model."""
        now = self._clock()

        def changed(found: Knowledge) -> Knowledge:
            found = found.standing(now)
            return found.taught_by(by, replace(change(found.of(by)), taught=int(now)))

        self._adopt(model, changed)

    def _adopt(self, model: str, change: Callable[[Knowledge], Knowledge]) -> None:
        """Change what is known of a model, here and in the file; trouble with the file costs only the file."""
        self.refresh()  # what was erased elsewhere must not be written again

        def changed(everything: Contents | None) -> Contents:
            # What could not be written earlier is known here alone; what stands in the file is as new or newer.
            known = {**self._known, **(everything or {}).get(self._upstream, {})}
            self._known = with_newest(known, {key_of(model): change(known.get(key_of(model), _NOTHING))}, MAX_MODELS)
            self._let_go()
            return {**(everything or {}), self._upstream: self._known}

        try:
            self._file.change(changed)
        except OSError as error:
            changed(None)
            self._warn("learning_not_kept", error)

    def _warn(self, event: str, error: OSError | ValueError) -> None:
        reason = error.strerror if isinstance(error, OSError) else "not what was written"
        self._log.warning(event, file=str(self._file.path), reason=reason)
