"""What upstreams teach about their models: limits out of refusals, and how far our estimate is off.

Rule: only what was printed exactly is believed, and a limit under half of what everybody else says needs two
sightings; the ratio moves in coarse steps, as every step moves the cuts of running conversations. What is adopted is
shared by all workers through one small file; without a file to write it lasts as long as the process.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.core.overflow import Scope, Verdict
from proxy.core.profile import Modality
from proxy.shell.models.shared_file import SharedFile
from proxy.shell.telemetry.logs import logger
from proxy.wire.model_list import LARGEST_TOKENS, MAX_NAME_CHARS, NOTHING, SMALLEST_WINDOW_TOKENS, Limits

MAX_MODELS: Final = 512
"""Remembered, the oldest go first; a model's name is foreign input."""
RATIO_STEP: Final = 0.05
MIN_SAMPLES: Final = 3
"""Answers before a ratio is adopted."""
MIN_SAMPLE_TOKENS: Final = 1_000
"""Shorter prompts are mostly frames."""
_SMOOTHING: Final = 0.3
"""Weight of the newest sample."""
_PLAUSIBLE: Final = (0.5, 3.0)
"""Tokenizers differ by less. What lies outside is something else: counts without what was cached, a prompt that the
upstream has cut, another model behind a router."""
_SILENT_SHARE: Final = 0.7
"""Of a calibrated estimate: an upstream that counted so little has cut the prompt itself."""

_UNDER_REFUSED: Final = 0.9
"""Of the smallest request that was refused: a window of half of what was believed is found in seven refusals, and at
most a tenth of it stays unused."""

_Value = TypeVar("_Value")
_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)]


class Knowledge(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has been adopted of one model, as it stands in the file."""

    window_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    doubted_tokens: _Tokens | None = None
    """A limit that was seen once and needs a second sighting."""
    refused_tokens: _Tokens | None = None
    """The smallest request, prompt and reply, that was refused without a word about the limit, by our count."""
    inferred_tokens: _Tokens | None = None
    """The window, concluded from such refusals."""
    refused: tuple[Modality, ...] = ()
    """Kinds of input that were refused, and without which the same request was taken."""
    results_hold_text: bool = False
    """Whether media were refused in the results of tools."""
    ratio: Annotated[float, msgspec.Meta(ge=_PLAUSIBLE[0], le=_PLAUSIBLE[1] + RATIO_STEP)] = 1.0
    """The upstream's tokens for one of ours."""
    calibrated: bool = False
    """Whether the ratio was measured."""


_NOTHING: Final = Knowledge()
_Contents: TypeAlias = dict[str, dict[str, Knowledge]]
"""Upstream → model → what is known."""


@dataclass(frozen=True, slots=True)
class _Samples:
    """The ratio as it is seen; each worker has its own, as only what is adopted is worth a write."""

    count: int
    mean: float
    """Smoothed."""

    def with_sample(self, ratio: float) -> _Samples:
        """After one more answer."""
        return _Samples(self.count + 1, self.mean + _SMOOTHING * (ratio - self.mean))


class Learning:
    """What is known of the models at one upstream. `limits` and `ratio` may be called from any thread."""

    def __init__(self, folder: Path, upstream: str, *, enabled: bool = True) -> None:
        self._file = SharedFile(folder / "learned.json", _Contents)
        self._upstream = upstream
        self._enabled = enabled
        self._known: dict[str, Knowledge] = {}
        """Replaced as a whole, never changed: planning threads read it."""
        self._samples: dict[str, _Samples] = {}
        self._log = logger()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a limit or a ratio is new, from here or from another worker."""
        self.refresh()

    @property
    def models(self) -> tuple[str, ...]:
        """The models of which anything is known."""
        return tuple(self._known)

    def limits(self, model: str) -> tuple[Limits, str] | None:
        """What refusals have taught, and who says so, for the resolver of profiles."""
        known = self._of(model)
        media = Limits(refused=frozenset(known.refused) or None, results_hold_text=known.results_hold_text or None)
        if known.inferred_tokens is not None:
            limits = dataclasses.replace(media, window_tokens=known.inferred_tokens, input_tokens=known.input_tokens)
            return limits, "inferred from refusals that name no limit"
        window = known.window_tokens if known.window_tokens is not None else known.input_tokens
        limits = dataclasses.replace(media, window_tokens=window, input_tokens=known.input_tokens)
        return None if limits == NOTHING else (limits, "learned from a refusal")

    def ratio(self, model: str) -> tuple[float, bool]:
        """(the upstream's tokens for one of ours, whether that was measured)."""
        known = self._of(model)
        return known.ratio, known.calibrated

    def note_refusal(self, model: str, verdict: Verdict, believed_window_tokens: int) -> None:
        """Keep the limit that a refusal printed, when it may be believed."""
        limit = verdict.limit
        if not self._enabled or not verdict.limit_is_learnable or limit is None:
            return
        if not SMALLEST_WINDOW_TOKENS <= limit <= LARGEST_TOKENS:
            return
        self.refresh()  # the first sighting may have been another worker's
        known = self._of(model)
        if limit < believed_window_tokens // 2 and known.doubted_tokens != limit:
            self._adopt(model, lambda found: replace(found, doubted_tokens=limit))
            return
        of_input = verdict.limit_scope is Scope.INPUT
        if limit == (known.input_tokens if of_input else known.window_tokens):
            return

        def learned(found: Knowledge) -> Knowledge:
            found = replace(found, doubted_tokens=None, refused_tokens=None, inferred_tokens=None)
            return replace(found, input_tokens=limit) if of_input else replace(found, window_tokens=limit)

        self._adopt(model, learned)
        self._log.info("limit_learned", model=_key(model), limit_tokens=limit, scope=verdict.limit_scope.value)
        self.on_change()

    def note_unnamed_refusal(self, model: str, requested_tokens: int) -> None:
        """Conclude the window from refusals that name no limit: a little less than the smallest request that was
        refused, from the second on. Else every long request of such an upstream would go up twice for ever.

        `requested_tokens`: the prompt and the reply that was asked for; it may be the latter that is too much.
        """
        if not self._enabled or not SMALLEST_WINDOW_TOKENS <= requested_tokens <= LARGEST_TOKENS:
            return
        self.refresh()
        known = self._of(model)
        if known.refused_tokens is None:
            self._adopt(model, lambda found: replace(found, refused_tokens=requested_tokens))
            return
        smallest = min(known.refused_tokens, requested_tokens)
        inferred = max(SMALLEST_WINDOW_TOKENS, int(smallest * _UNDER_REFUSED))
        if known.inferred_tokens is not None and known.inferred_tokens <= inferred:
            return
        self._adopt(model, lambda found: replace(found, refused_tokens=smallest, inferred_tokens=inferred))
        self._log.info(
            "limit_learned", model=_key(model), limit_tokens=inferred, scope=Scope.WINDOW.value, inferred=True
        )
        self.on_change()

    def note_refused_media(self, model: str, modalities: frozenset[Modality]) -> None:
        """Keep what a model does not read, once the same request was taken without it."""
        self.refresh()
        new = modalities - set(self._of(model).refused)
        if not self._enabled or not new:
            return
        self._adopt(model, lambda found: replace(found, refused=tuple(sorted({*found.refused, *new}))))
        self._log.info("media_refusal_learned", model=_key(model), refused=sorted(new))
        self.on_change()

    def note_media_refused_in_results(self, model: str) -> None:
        """Keep that an upstream takes text alone in the results of tools."""
        self.refresh()
        if not self._enabled or self._of(model).results_hold_text:
            return
        self._adopt(model, lambda found: replace(found, results_hold_text=True))
        self._log.info("media_refusal_learned", model=_key(model), refused=["tool_results"])
        self.on_change()

    def note_usage(self, model: str, estimate_tokens: int, prompt_tokens: int, request_id: str) -> None:
        """Hold what the upstream counted against our own estimate of the same prompt, the ratio not applied."""
        if not self._enabled or estimate_tokens < MIN_SAMPLE_TOKENS or prompt_tokens <= 0:
            return
        ratio, adopted = prompt_tokens / estimate_tokens, self._of(model)
        if ratio < (adopted.ratio * _SILENT_SHARE if adopted.calibrated else _PLAUSIBLE[0]):
            self._log.warning(
                "upstream_truncated_silently",
                request_id=request_id,
                model=_key(model),
                estimate_tokens=int(estimate_tokens * adopted.ratio),
                prompt_tokens=prompt_tokens,
            )
            return
        if not _PLAUSIBLE[0] <= ratio <= _PLAUSIBLE[1]:
            return
        samples = self._sampled(model, ratio)
        if samples.count < MIN_SAMPLES or not _is_news(samples.mean, adopted):
            return
        step = _rounded_up(samples.mean)
        self._adopt(model, lambda found: replace(found, ratio=step, calibrated=True))
        self._log.info("ratio_learned", model=_key(model), ratio=step)
        self.on_change()

    def refresh(self) -> None:
        """Take over what other workers have adopted or erased since; one look at the file, no more, when nothing is."""
        if not self._enabled or not self._file.is_news():
            return
        try:
            everything = self._file.read()
        except (OSError, ValueError) as error:
            self._warn("learning_not_read", error)
            return
        self._known = (everything or {}).get(self._upstream, {})
        if everything is None:
            self._samples = {}
        self.on_change()

    def erase(self) -> None:
        """Forget everything, of every upstream."""
        self._known, self._samples = {}, {}
        try:
            self._file.remove()
        except OSError as error:
            self._warn("learning_not_erased", error)
        self.on_change()

    def _of(self, model: str) -> Knowledge:
        return self._known.get(_key(model), _NOTHING)

    def _sampled(self, model: str, ratio: float) -> _Samples:
        before = self._samples.get(_key(model))
        samples = before.with_sample(ratio) if before else _Samples(1, ratio)
        self._samples = _with(self._samples, _key(model), samples)
        return samples

    def _adopt(self, model: str, change: Callable[[Knowledge], Knowledge]) -> None:
        """Change what is known of a model, here and in the file; trouble with the file costs only the file."""

        def changed(everything: _Contents | None) -> _Contents:
            # What could not be written earlier is known here alone; what stands in the file is as new or newer.
            known = {**self._known, **(everything or {}).get(self._upstream, {})}
            self._known = _with(known, _key(model), change(known.get(_key(model), _NOTHING)))
            return {**(everything or {}), self._upstream: self._known}

        try:
            self._file.change(changed)
        except OSError as error:
            changed(None)
            self._warn("learning_not_kept", error)

    def _warn(self, event: str, error: OSError | ValueError) -> None:
        reason = error.strerror if isinstance(error, OSError) else "not what was written"
        self._log.warning(event, file=str(self._file.path), reason=reason)


def _is_news(mean: float, adopted: Knowledge) -> bool:
    """Whether a ratio is worth moving the cuts of running conversations: under-counting is, as it ends in refusals;
    over-counting by two steps is, as it wastes context. In between it may wander."""
    return not adopted.calibrated or mean > adopted.ratio or mean < adopted.ratio - 2 * RATIO_STEP


def _rounded_up(ratio: float) -> float:
    """To a whole step; a trillionth over one is a rounding error.

    >>> _rounded_up(1.0), _rounded_up(1.01), _rounded_up(1.1500000000000001)
    (1.0, 1.05, 1.15)
    """
    return round(math.ceil(round(ratio / RATIO_STEP, 6)) * RATIO_STEP, 2)


def _key(model: str) -> str:
    """A model's name as a key in the file and in the log: of bounded length, and UTF-8, which JSON strings may not be.

    >>> _key("gpt-\\ud800")
    'gpt-?'
    """
    return model[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()


def _with(known: dict[str, _Value], key: str, value: _Value) -> dict[str, _Value]:
    """A copy with one value more, the oldest left out past MAX_MODELS."""
    found = {name: kept for name, kept in known.items() if name != key} | {key: value}
    return dict(list(found.items())[-MAX_MODELS:])
