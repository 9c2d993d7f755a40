"""What has been adopted of one model at one upstream, as it stands in the file that all workers share.

Rule: a refusal is believed for a week and then asked for again, as a server may come back with a larger window; a count
that passes a limit refutes it at once. The ratio stays: each answer measures it anew.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.core.overflow import Scope, Unit
from proxy.core.profile import Modality
from proxy.shell.models.calibration import PLAUSIBLE, RATIO_STEP
from proxy.wire.model_list import LARGEST_TOKENS, MAX_NAME_CHARS, NOTHING, SMALLEST_WINDOW_TOKENS, Limits

STANDS_SECONDS: Final = 7 * 24 * 3600.0
"""What is forgotten too early costs one refusal that the client does not see; what stands too long, context."""

_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)]


class Knowledge(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one model."""

    window_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    input_chars: _Tokens | None = None
    """A limit of the input in characters."""
    doubted_tokens: _Tokens | None = None
    """A limit that was seen once and needs a second sighting."""
    doubted_by: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Whose request it was seen with."""
    refused_tokens: _Tokens | None = None
    """The smallest request, prompt and reply, that was refused without a word about the limit, by our count."""
    inferred_tokens: _Tokens | None = None
    """The window, concluded from such refusals."""
    cuts_silently: bool = False
    """Whether the window was seen in what the upstream counted: it cuts longer prompts without a word."""
    stated_tokens: _Tokens | None = None
    """What was certain of the window when that was seen."""
    taken_tokens: _Tokens | None = None
    """A prompt that was taken while the window was a guess, and was far over it."""
    refused: tuple[Modality, ...] = ()
    """Kinds of input that were refused, and without which the same request was taken."""
    results_hold_text: bool = False
    """Whether media were refused in the results of tools."""
    refuses_our_tool: bool = False
    """Whether the proxy's own tool was refused, and the same request taken without it."""
    taught: int = 0
    """Unix time of the last refusal that taught any of the above."""
    ratio: Annotated[float, msgspec.Meta(ge=PLAUSIBLE[0], le=PLAUSIBLE[1] + RATIO_STEP)] = 1.0
    """The upstream's tokens for one of ours."""
    calibrated: bool = False
    """Whether the ratio was measured."""
    counted_by: str = ""
    """The counter whose tokens are ours; by another one, the ratio says nothing."""

    @property
    def limits(self) -> tuple[Limits, str] | None:
        """What refusals have taught, and who says so; None when they have taught nothing."""
        window = self.window_tokens if self.window_tokens is not None else self.input_tokens
        limits = Limits(
            window_tokens=self.inferred_tokens if self.inferred_tokens is not None else window,
            input_tokens=self.input_tokens,
            input_chars=self.input_chars,
            refused=frozenset(self.refused) or None,
            results_hold_text=self.results_hold_text or None,
            refuses_our_tool=self.refuses_our_tool or None,
            taken_tokens=self.taken_tokens,
            cuts_silently=self.cuts_silently or None,
            window_is_inferred=self.inferred_tokens is not None,
        )
        if limits == NOTHING:
            return None
        if self.cuts_silently:
            return limits, "learned from usage: the upstream cut a prompt without a word"
        is_inferred = self.inferred_tokens is not None
        return limits, "inferred from refusals that name no limit" if is_inferred else "learned from a refusal"

    def ratio_of(self, counted_by: str) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured)."""
        return (self.ratio, self.calibrated) if self.calibrated and self.counted_by == counted_by else (1.0, False)

    def standing(self, now: float) -> Knowledge:
        """What of it is not too old at this Unix time; the clocks of two hosts may differ."""
        if abs(now - self.taught) < STANDS_SECONDS:
            return self
        return Knowledge(ratio=self.ratio, calibrated=self.calibrated, counted_by=self.counted_by)

    def with_limit(self, limit: int, scope: Scope, unit: Unit = Unit.TOKENS) -> Knowledge:
        """With one that a refusal printed, which takes the place of what was doubted or inferred."""
        found = self.without_cut() if self.cuts_silently else self
        found = replace(found, doubted_tokens=None, doubted_by="", refused_tokens=None, inferred_tokens=None)
        if unit is Unit.CHARS:
            return replace(found, input_chars=limit)
        return replace(found, input_tokens=limit) if scope is Scope.INPUT else replace(found, window_tokens=limit)

    def with_cut(self, window_tokens: int, stated_tokens: int | None) -> Knowledge:
        """With a window to which the upstream was seen to cut a prompt, while so much was certain."""
        return replace(
            self, window_tokens=window_tokens, inferred_tokens=None, cuts_silently=True, stated_tokens=stated_tokens
        )

    def without_cut(self) -> Knowledge:
        """Without the window that was seen so."""
        return replace(self, window_tokens=None, cuts_silently=False, stated_tokens=None)

    def refuted_by(self, prompt_tokens: int) -> Knowledge:
        """Without the limits that a prompt has passed which was taken, as the upstream counted it."""
        found = self
        if self.window_tokens is not None and prompt_tokens > self.window_tokens:
            found = found.without_cut()
        if self.input_tokens is not None and prompt_tokens > self.input_tokens:
            found = replace(found, input_tokens=None)
        unnamed = self.inferred_tokens if self.inferred_tokens is not None else self.refused_tokens
        if unnamed is not None and prompt_tokens > unnamed:
            found = replace(found, inferred_tokens=None, refused_tokens=None)
        return found


Contents: TypeAlias = dict[str, dict[str, Knowledge]]
"""Of the file: upstream → key of a model → what is known."""


def key_of(model: str) -> str:
    """A model's name as a key in the file and in the log: of bounded length, and UTF-8, which JSON strings may not be.

    >>> key_of("gpt-\\ud800")
    'gpt-?'
    """
    return model[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()
