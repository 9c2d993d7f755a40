"""Knowledge about one model at one upstream, as stored in the file that all workers share and in Redis, and the merging
of its versions.

Rule: what the requests of one API key teach binds that key, and all others once another key's say the same. A lesson
is believed for a week and then tested again, as a server may come back with a larger window; a count that exceeds a
limit refutes it at once. Counts are kept: each response measures them anew. Of two lessons of one tenant about one
thing the newest wins, so that merging in any order gives the same. Absence never deletes: what no longer holds is
overwritten by an empty lesson.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Self, TypeAlias

import msgspec

from proxy.core.compaction import MAX_RESERVED_REPLY_TOKENS, REPLY_SHARE
from proxy.core.models import Certainty, Fact, Facts, Modality, Search, facts
from proxy.core.overflow import Scope, Unit
from proxy.shell.resources import with_newest
from proxy.wire import LARGEST_TOKENS, MAX_NAME_CHARS, NOTHING, SMALLEST_WINDOW_TOKENS, ModelLimits

MAX_KEYS: Final = 64
"""Keys whose refusals are remembered for one model; the oldest go first."""
STANDS_SECONDS: Final = 7 * 24 * 3600.0
"""Forgetting too early costs one refusal that the client does not see; believing too long costs context."""

_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=SMALLEST_WINDOW_TOKENS, le=LARGEST_TOKENS)]


class Refusals(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lessons about a model from the refusals of one key."""

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
    at: float = 0.0
    """Unix time of the latest change, which may have been a refutation; 0 from releases that did not note it."""

    @property
    def dated(self) -> float:
        """The Unix time from which its age counts."""
        return self.taught or self.at

    def changed_since(self, before: Refusals, now: float) -> Self:
        """With the time of the change if there was one: newer than the version before, whatever the clock says."""
        if _limits(self) == _limits(before):
            return self
        return msgspec.structs.replace(self, at=max(now, (before.at or before.taught) + 0.001))

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
        found = msgspec.structs.replace(self, doubted_tokens=None, unnamed=None)
        if unit is Unit.CHARS:
            return msgspec.structs.replace(found, input_chars=limit)
        return (
            msgspec.structs.replace(found, input_tokens=limit)
            if scope is Scope.INPUT
            else msgspec.structs.replace(found, window_tokens=limit)
        )

    def refuted_by(self, prompt_tokens: int) -> Self:
        """Without the limits that an accepted prompt has exceeded, by the upstream's count."""
        found = self
        if self.window_tokens is not None and prompt_tokens > self.window_tokens:
            found = msgspec.structs.replace(found, window_tokens=None)
        if self.input_tokens is not None and prompt_tokens > self.input_tokens:
            found = msgspec.structs.replace(found, input_tokens=None)
        return found

    def without_under(self, window_tokens: int) -> Self:
        """Without limits in tokens that are smaller than a window that the server itself reports since."""
        limits = (self.window_tokens, self.input_tokens, self.inferred_tokens)
        if not any(limit is not None and limit < window_tokens for limit in limits):
            return self
        return msgspec.structs.replace(self, window_tokens=None, input_tokens=None, doubted_tokens=None, unnamed=None)

    def after_pass(self, size: int) -> Self:
        """After a prompt of this size was accepted, as far as that moves the search for a limit."""
        unnamed = self.unnamed and self.unnamed.after_pass(size)
        return self if unnamed is self.unnamed else msgspec.structs.replace(self, unnamed=unnamed)


class Knowledge(Refusals, frozen=True, omit_defaults=True):
    """Knowledge about one model; its own refusals have been confirmed by two keys."""

    of_keys: dict[str, Refusals] = {}
    """Refusals met by a single key, by tenant."""
    facts: Facts = {}
    """All other lessons, by name and tenant."""

    def limits(self, by: str | None = None, supposed: Search | None = None) -> tuple[ModelLimits, str] | None:
        """The limits from refusals that bind this tenant's requests, and their source; None if there are none. `by`
        None: those of the tenant taught last. `supposed`: taken for what its latest refusal has taught."""
        own = self.newest if by is None else self.of(by)
        own = own if supposed is None else msgspec.structs.replace(own, unnamed=supposed)
        refusals: Refusals = own if own.bounds_tokens else self
        cut = facts.binding(self.facts, facts.CUT_TO, by)
        if cut is not None and refusals.bounds_tokens and int(cut.at) <= refusals.taught:
            cut = None
        if cut is not None:
            refusals = Refusals(window_tokens=int(cut.value))
        is_inferred = refusals.unnamed is not None
        window = refusals.window_tokens if refusals.window_tokens is not None else refusals.input_tokens
        images = facts.values(self.facts, facts.IMAGE, by)
        taken = facts.binding(self.facts, facts.TAKEN, by)
        rate, of_prompts = (facts.binding(self.facts, name, by) for name in (facts.RATE, facts.RATE_OF_PROMPTS))
        limits = ModelLimits(
            window_tokens=window if refusals.unnamed is None else refusals.inferred_tokens,
            input_tokens=refusals.input_tokens if refusals.unnamed is None else refusals.unnamed.guess,
            image_tokens=tuple((image, int(cost)) for image, cost in images.items()) or None,
            input_chars=self.input_chars if own.input_chars is None else own.input_chars,
            refused=frozenset(kind for kind in Modality if facts.binding(self.facts, f"{facts.REFUSES}{kind}", by))
            or None,
            results_hold_text=facts.binding(self.facts, facts.RESULTS_HOLD_TEXT, by) is not None or None,
            refuses_our_tool=facts.binding(self.facts, facts.REFUSES_OUR_TOOL, by) is not None or None,
            refuses_cut_results=facts.binding(self.facts, facts.CUT_RESULTS_REFUSED, by) is not None or None,
            taken_tokens=None if taken is None else int(taken.value),
            rate_tokens=None if rate is None else int(rate.value),
            prompt_rate_tokens=None if of_prompts is None else int(of_prompts.value),
            at_most={name: int(most) for name, most in facts.values(self.facts, facts.AT_MOST, by).items()} or None,
            cuts_silently=cut is not None or None,
            certainty=Certainty.INFERRED if is_inferred else Certainty.STATED if window is None else Certainty.LEARNED,
        )
        if limits == NOTHING:
            return None
        if cut is not None:
            return limits, "learned from usage: the upstream cut a prompt without a word"
        phrase = "inferred from refusals that name no limit" if is_inferred else "learned from a refusal"
        return limits, f"{phrase} (of one API key so far)" if own.binds and len(self.of_keys) > 1 else phrase

    def ratio_of(self, counted_by: str, by: str | None, *, confirmed: bool) -> tuple[float, bool]:
        """(the upstream's tokens for one of this counter, whether that was measured). `confirmed`: over 1 only as far
        as a refusal has confirmed it."""
        measured = facts.binding(self.facts, f"{facts.RATIO}{counted_by}", by) if self.facts else None
        if measured is None:
            return 1.0, False
        proven = facts.binding(self.facts, f"{facts.CONFIRMED}{counted_by}", by) if confirmed else measured
        return min(measured.value, max(1.0, 0.0 if proven is None else proven.value)), True

    def standing(self, now: float) -> Knowledge:
        """The part that is not too old at this Unix time; the clocks of two hosts may differ."""
        of_keys = {by: own for by, own in self.of_keys.items() if abs(now - own.dated) < STANDS_SECONDS}
        others = facts.standing(self.facts, now, STANDS_SECONDS)
        if abs(now - self.dated) < STANDS_SECONDS:
            is_same = len(of_keys) == len(self.of_keys) and others is self.facts
            return self if is_same else msgspec.structs.replace(self, of_keys=of_keys, facts=others)
        return Knowledge(of_keys=of_keys, facts=others)

    @property
    def newest(self) -> Refusals:
        """Lessons of the tenant taught last."""
        return max(self.of_keys.values(), key=lambda own: own.taught, default=_NO_REFUSALS)

    def of(self, by: str) -> Refusals:
        """Lessons of this tenant."""
        return self.of_keys.get(by, _NO_REFUSALS)

    def taught_by(self, by: str, own: Refusals) -> Knowledge:
        """With what a tenant has just met."""
        return msgspec.structs.replace(self, of_keys=with_newest(self.of_keys, {by: own}, MAX_KEYS))

    def is_seen_by_others(self, by: str, limit: int, scope: Scope, unit: Unit) -> bool:
        """Whether another tenant's refusals have printed the same limit."""
        return any(
            limit == own.doubted_tokens or own == own.with_limit(limit, scope, unit)
            for tenant, own in self.of_keys.items()
            if tenant != by
        )

    def adopted(self, limit: int, scope: Scope, unit: Unit) -> Knowledge:
        """With a limit that binds all tenants."""
        of_keys = {
            by: own if own != own.with_limit(limit, scope, unit) else _NO_REFUSALS for by, own in self.of_keys.items()
        }
        return msgspec.structs.replace(self.with_limit(limit, scope, unit), of_keys=of_keys)

    def without_limits_under(self, window_tokens: int) -> Knowledge:
        """Without what the refusals of any tenant have taught that the server's own later word contradicts."""
        of_keys = {by: own.without_under(window_tokens) for by, own in self.of_keys.items()}
        is_same = all(own is self.of_keys[by] for by, own in of_keys.items())
        found = self.without_under(window_tokens)
        return found if is_same else msgspec.structs.replace(found, of_keys=of_keys)

    def after_pass_of(self, by: str, size: int) -> Knowledge:
        """After a prompt of this tenant was accepted, as far as that moves a search for a limit."""
        found, own = self.after_pass(size), self.of(by)
        return found if own.after_pass(size) is own else found.taught_by(by, own.after_pass(size))

    def with_cut(self, by: str, window_tokens: int, stated_tokens: int | None, now: float) -> Knowledge:
        """With a window to which the upstream was found to cut this tenant's prompt, in place of what its refusals
        taught; `stated_tokens`: the certain window at the time. The server's own word binds all."""
        whose = facts.THE_SERVER if window_tokens == stated_tokens else by
        cut = facts.with_values(self.facts, whose, {facts.CUT_TO: window_tokens}, now, stated_tokens or 0)
        return msgspec.structs.replace(
            self, facts=cut, of_keys={**self.of_keys, **dict.fromkeys(self.of_keys.keys() & {by}, _NO_REFUSALS)}
        )

    def without_cuts(self, is_wrong: Callable[[Fact], bool], now: float) -> Knowledge:
        """Without the windows found that way of which this is true."""
        found = self.facts.get(facts.CUT_TO, {})
        wrong = [by for by, cut in found.items() if cut.value and is_wrong(cut)]
        return (
            msgspec.structs.replace(self, facts=facts.refuted(self.facts, facts.CUT_TO, wrong, now)) if wrong else self
        )

    def refuted_by(self, prompt_tokens: int, by: str = "", now: float = 0.0) -> Knowledge:
        """Without the limits that an accepted prompt of this tenant has exceeded, by the upstream's count."""
        found = super().refuted_by(prompt_tokens).without_cuts(lambda cut: cut.value < prompt_tokens, now)
        own = self.of(by)
        for name in (facts.RATE, facts.RATE_OF_PROMPTS):
            rate = facts.binding(self.facts, name, by)
            if rate is not None and rate.value < prompt_tokens:  # of this account, which says nothing of others
                found = msgspec.structs.replace(found, facts=facts.refuted(found.facts, name, [by], now))
        return found if own.refuted_by(prompt_tokens) is own else found.taught_by(by, own.refuted_by(prompt_tokens))

    @property
    def newest_at(self) -> float:
        """The Unix time of the newest lesson."""
        limits = (found.at or found.taught for found in (self, *self.of_keys.values()))
        return max(*limits, 0.0, *(fact.at for of in self.facts.values() for fact in of.values()))

    @property
    def until(self) -> float:
        """The Unix time at which the first lesson is forgotten."""
        ends = [found.dated + STANDS_SECONDS for found in (self, *self.of_keys.values()) if found.dated]
        return min([*ends, facts.until(self.facts, STANDS_SECONDS)])


_NO_REFUSALS: Final = Refusals()
Contents: TypeAlias = dict[str, dict[str, Knowledge]]
"""The file's contents: upstream → key of a model → what is known."""


_EVERY_MODEL: Final = "*"


def key_of(model: str | None) -> str:
    """A model's name as a key in the file and in the log: bounded in length, and UTF-8, which JSON strings need not be.
    None means every model of an upstream: what refuses a body for its bytes sits in front of all of them.



    >>> key_of("gpt-\\ud800"), key_of(None), key_of("*")
    ('gpt-?', '*', '?')
    """
    if model is None:
        return _EVERY_MODEL
    key = model[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()
    return "?" if key == _EVERY_MODEL else key


MAX_MODELS: Final = 512
"""Remembered; the oldest go first. A model's name is foreign input."""

Known = Mapping[str, Knowledge]
"""Knowledge about the models of one upstream, by name."""
_NOTHING: Final = Knowledge()


def with_model(known: Known, model: str | None, change: Callable[[Knowledge], Knowledge], now: float) -> Known:
    """With a change of what is known about one model, and the time of that change."""
    before = known.get(key_of(model), _NOTHING)
    found = change(before)
    of_keys = {by: own.changed_since(before.of(by), now) for by, own in found.of_keys.items()}
    return _newest({**known, key_of(model): msgspec.structs.replace(found.changed_since(before, now), of_keys=of_keys)})


def unexpired(known: Known, now: float) -> Known:
    """The part that is not too old at this Unix time."""
    return {model: found.standing(now) for model, found in known.items()}


def merged(one: Known, other: Known) -> Known:
    """Join both sides; the order of merging does not matter."""
    if one == other:
        return one
    both = {model: _merged_model(one[model], other[model]) for model in one.keys() & other.keys()}
    return _newest({**one, **other, **both})


def _newest(known: Known) -> Known:
    if len(known) <= MAX_MODELS:
        return known
    kept = sorted(known, key=lambda model: (known[model].newest_at, model))[-MAX_MODELS:]
    return {model: known[model] for model in kept}


def _merged_model(one: Knowledge, other: Knowledge) -> Knowledge:
    if one == other:
        return one
    of_keys = {**one.of_keys, **other.of_keys}
    for by in one.of_keys.keys() & other.of_keys.keys():
        of_keys[by] = max(one.of(by), other.of(by), key=_version)
    kept = sorted(of_keys, key=lambda by: (_version(of_keys[by]), by))[-MAX_KEYS:]
    return msgspec.structs.replace(
        max(one, other, key=_version),
        of_keys={by: of_keys[by] for by in kept},
        facts=facts.joined(one.facts, other.facts),
    )


def _version(of: Refusals) -> tuple[float, bytes]:
    """The newest wins; of two of the same moment, always the same one."""
    return of.at or of.taught, msgspec.json.encode(_limits(of))


def _limits(of: Refusals) -> tuple[object, ...]:
    return tuple(getattr(of, name) for name in _LIMITS)


_LIMITS: Final = tuple(name for name in Refusals.__struct_fields__ if name != "at")
