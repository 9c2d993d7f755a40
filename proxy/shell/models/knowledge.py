"""What has been adopted about one model at one upstream, as stored in the file that all workers share.

Rule: what the refusals of one API key teach binds that key's requests, and all others once another key's refusals say
the same. A refusal is believed for a week and then tested again, as a server may come back with a larger window; a
count that exceeds a limit refutes it at once. The ratio is kept: each response measures it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.budget import MAX_RESERVED_REPLY_TOKENS, REPLY_SHARE
from proxy.core.models.profile import Modality, Witness
from proxy.core.models.search import Search
from proxy.core.overflow import Scope, Unit
from proxy.core.overflow.image_costs import LARGEST_IMAGE_TOKENS
from proxy.shell.models.calibration import PLAUSIBLE, RATIO_STEP
from proxy.shell.resources.bounded import with_newest
from proxy.wire.model_list import LARGEST_TOKENS, MAX_NAME_CHARS, NOTHING, SMALLEST_WINDOW_TOKENS, ModelLimits

_ImageTokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_IMAGE_TOKENS)]

MAX_IMAGES: Final = 64
"""Image sizes remembered for one model; the oldest go first."""
MAX_KEYS: Final = 64
"""Keys whose refusals are remembered for one model; the oldest go first."""
STANDS_SECONDS: Final = 7 * 24 * 3600.0
"""Forgetting too early costs one refusal that the client does not see; believing too long costs context."""

_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)]


class Refusals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the refusals of one key have taught about a model."""

    window_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    input_chars: _Tokens | None = None
    """A limit on the input in characters."""
    doubted_tokens: _Tokens | None = None
    """A limit that was seen once and must be seen again."""
    unnamed: Search | None = None
    """The search for a limit that no refusal has named."""
    taught: int = 0
    """Unix time of the latest of them."""

    @property
    def inferred_tokens(self) -> int | None:
        """The window in which a prompt of the size that is searched for, and its reply, fit."""
        if self.unnamed is None:
            return None
        reserve = min(self.unnamed.guess // REPLY_SHARE, MAX_RESERVED_REPLY_TOKENS)
        return min(LARGEST_TOKENS, self.unnamed.guess + max(self.unnamed.reply, reserve))

    @property
    def bounds_tokens(self) -> bool:
        """Whether it has a limit in tokens."""
        return (self.window_tokens, self.input_tokens, self.inferred_tokens) != (None,) * 3

    @property
    def binds(self) -> bool:
        """Whether requests are fitted to any of these limits."""
        return self.bounds_tokens or self.input_chars is not None

    def with_limit(self, limit: int, scope: Scope, unit: Unit = Unit.TOKENS) -> Self:
        """With a limit that a refusal printed; it replaces what was doubted or inferred."""
        found = replace(self, doubted_tokens=None, unnamed=None)
        if unit is Unit.CHARS:
            return replace(found, input_chars=limit)
        return replace(found, input_tokens=limit) if scope is Scope.INPUT else replace(found, window_tokens=limit)

    def refuted_by(self, prompt_tokens: int) -> Self:
        """Without the limits that an accepted prompt has exceeded, by the upstream's count."""
        found = self
        if self.window_tokens is not None and prompt_tokens > self.window_tokens:
            found = replace(found, window_tokens=None)
        if self.input_tokens is not None and prompt_tokens > self.input_tokens:
            found = replace(found, input_tokens=None)
        return found

    def after_pass(self, size: int) -> Self:
        """After a prompt of this size was accepted, as far as that moves the search for a limit."""
        unnamed = self.unnamed and self.unnamed.after_pass(size)
        return self if unnamed is self.unnamed else replace(self, unnamed=unnamed)


class Knowledge(Refusals, frozen=True, omit_defaults=True):
    """What is known about one model; its own refusals have been confirmed by two keys."""

    of_keys: dict[str, Refusals] = {}
    """What a single key has met, by tenant."""
    cuts_silently: bool = False
    """Whether the window was found in the upstream's counts: it silently cuts longer prompts."""
    stated_tokens: _Tokens | None = None
    """The certain window at the time that was found."""
    taken_tokens: _Tokens | None = None
    """A prompt that was accepted although far larger than the window, which was a guess."""
    image_tokens: dict[str, _ImageTokens] = {}
    """Costs of images, by `image_key`."""
    refused: tuple[Modality, ...] = ()
    """Kinds of input that were refused while the same request without them was accepted."""
    results_hold_text: bool = False
    """Whether media were refused in tool results."""
    refuses_our_tool: bool = False
    """Whether the proxy's own tool was refused while the same request without it was accepted."""
    ratio: Annotated[float, msgspec.Meta(ge=PLAUSIBLE[0], le=PLAUSIBLE[1] + RATIO_STEP)] = 1.0
    """The upstream's tokens for one of ours."""
    calibrated: bool = False
    """Whether the ratio was measured."""
    counted_by: str = ""
    """The counter whose tokens are ours; for another counter, the ratio means nothing."""

    def limits(self, by: str | None = None, supposed: Search | None = None) -> tuple[ModelLimits, str] | None:
        """The limits from refusals that bind this tenant's requests, and their source; None if there are none. `by`
        None: those of the tenant taught last. `supposed`: taken for what its latest refusal has taught."""
        newest = max(self.of_keys, key=lambda tenant: self.of_keys[tenant].taught, default="")
        own = self.of(newest if by is None else by)
        own = own if supposed is None else replace(own, unnamed=supposed)
        refusals: Refusals = own if own.bounds_tokens else self
        cuts_silently = self.cuts_silently and not own.bounds_tokens
        is_inferred = refusals.unnamed is not None
        window = refusals.window_tokens if refusals.window_tokens is not None else refusals.input_tokens
        limits = ModelLimits(
            window_tokens=window if refusals.unnamed is None else refusals.inferred_tokens,
            input_tokens=refusals.input_tokens if refusals.unnamed is None else refusals.unnamed.guess,
            image_tokens=tuple(self.image_tokens.items()) or None,
            input_chars=self.input_chars if own.input_chars is None else own.input_chars,
            refused=frozenset(self.refused) or None,
            results_hold_text=self.results_hold_text or None,
            refuses_our_tool=self.refuses_our_tool or None,
            taken_tokens=self.taken_tokens,
            cuts_silently=cuts_silently or None,
            witness=Witness.INFERRED if is_inferred else Witness.STATED if window is None else Witness.LEARNED,
        )
        if limits == NOTHING:
            return None
        if cuts_silently:
            return limits, "learned from usage: the upstream cut a prompt without a word"
        said = "inferred from refusals that name no limit" if is_inferred else "learned from a refusal"
        return limits, f"{said} (of one API key so far)" if own.binds and len(self.of_keys) > 1 else said

    def ratio_of(self, counted_by: str) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured)."""
        return (self.ratio, self.calibrated) if self.calibrated and self.counted_by == counted_by else (1.0, False)

    def standing(self, now: float) -> Knowledge:
        """The part that is not too old at this Unix time; the clocks of two hosts may differ."""
        of_keys = {by: own for by, own in self.of_keys.items() if abs(now - own.taught) < STANDS_SECONDS}
        if abs(now - self.taught) < STANDS_SECONDS:
            return self if len(of_keys) == len(self.of_keys) else replace(self, of_keys=of_keys)
        return Knowledge(
            ratio=self.ratio,
            calibrated=self.calibrated,
            counted_by=self.counted_by,
            image_tokens=self.image_tokens,
            of_keys=of_keys,
        )

    def of(self, by: str) -> Refusals:
        """What this tenant's refusals have taught."""
        return self.of_keys.get(by, _NO_REFUSALS)

    def taught_by(self, by: str, own: Refusals) -> Knowledge:
        """With what a tenant has just met."""
        return replace(self, of_keys=with_newest(self.of_keys, {by: own}, MAX_KEYS))

    def is_seen_by_others(self, by: str, limit: int, scope: Scope, unit: Unit) -> bool:
        """Whether another tenant's refusals have printed the same limit."""
        return any(
            limit == own.doubted_tokens or own == own.with_limit(limit, scope, unit)
            for tenant, own in self.of_keys.items()
            if tenant != by
        )

    def adopted(self, limit: int, scope: Scope, unit: Unit) -> Knowledge:
        """With a limit that binds all tenants."""
        of_keys = {by: own for by, own in self.of_keys.items() if own != own.with_limit(limit, scope, unit)}
        found = self.without_cut() if self.cuts_silently else self
        return replace(found.with_limit(limit, scope, unit), of_keys=of_keys)

    def after_pass_of(self, by: str, size: int) -> Knowledge:
        """After a prompt of this tenant was accepted, as far as that moves a search for a limit."""
        found, own = self.after_pass(size), self.of(by)
        return found if own.after_pass(size) is own else found.taught_by(by, own.after_pass(size))

    def with_images(self, tokens: Mapping[str, int]) -> Knowledge:
        """With measured costs of images."""
        return replace(self, image_tokens=with_newest(self.image_tokens, tokens, MAX_IMAGES))

    def with_cut(self, window_tokens: int, stated_tokens: int | None) -> Knowledge:
        """With a window to which the upstream was found to cut a prompt; `stated_tokens`: the certain window at the
        time."""
        return replace(
            self,
            window_tokens=window_tokens,
            unnamed=None,
            cuts_silently=True,
            stated_tokens=stated_tokens,
            of_keys={},
        )

    def without_cut(self) -> Knowledge:
        """Without the window found that way."""
        return replace(self, window_tokens=None, cuts_silently=False, stated_tokens=None)

    def refuted_by(self, prompt_tokens: int, by: str = "") -> Knowledge:
        """Without the limits that an accepted prompt of this tenant has exceeded, by the upstream's count."""
        is_past = self.window_tokens is not None and prompt_tokens > self.window_tokens
        found = super().refuted_by(prompt_tokens)
        found = found.without_cut() if is_past else found
        own = self.of(by)
        return found if own.refuted_by(prompt_tokens) is own else found.taught_by(by, own.refuted_by(prompt_tokens))


_NO_REFUSALS: Final = Refusals()
Contents: TypeAlias = dict[str, dict[str, Knowledge]]
"""Of the file: upstream → key of a model → what is known."""


def key_of(model: str) -> str:
    """A model's name as a key in the file and in the log: bounded in length, and UTF-8, which JSON strings need not be.

    >>> key_of("gpt-\\ud800")
    'gpt-?'
    """
    return model[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()
