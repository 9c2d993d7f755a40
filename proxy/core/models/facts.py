"""Facts learned about a model, the tenants they bind, and the search for a limit that no refusal names.

Rule: what one tenant has met binds that tenant; it binds all others once a second tenant has met it, or the server
itself has said so. The newest lesson of a tenant counts, so that any order of merging gives the same. An unnamed limit
lies between what was accepted and what was refused: what was refused is never sent again. Only first sends search: what
follows a refusal has the size of what was accepted before, or else six tenths of what was refused. Only a prompt that
comes near the guess raises it, so that running conversations are seldom cut again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct, structs

CUT_TO: Final = "cut to"
"""The window to which the upstream silently cut a prompt, in tokens."""
TAKEN: Final = "taken"
"""The tokens of a prompt that was accepted although far larger than the window, which was a guess."""
RESULTS_HOLD_TEXT: Final = "results hold text"
"""Media were refused in tool results."""
REFUSES_OUR_TOOL: Final = "our tool is refused"
"""The proxy's own tool was refused while the same request without it was accepted."""
CUT_RESULTS_REFUSED: Final = "cut results are refused"
"""A request with cut results was refused, as something in it did not parse as JSON, and accepted as it came."""
REFUSES: Final = "refuses "
"""Followed by a kind of input that was refused while the same request without it was accepted."""
RATE: Final = "rate"
"""The tokens per minute that one request exceeded alone; its reply limit counts."""
RATE_OF_PROMPTS: Final = "rate of prompts"
"""The tokens per minute where its reply limit does not count."""
RATIO: Final = "ratio "
"""Followed by a counter: the upstream's tokens for one of this counter."""
CONFIRMED: Final = "confirmed "
"""Followed by a counter: the same, as far as a refusal has confirmed it."""
AT_MOST: Final = "at most "
"""Followed by the name of any other limit that a refusal has stated."""
IMAGE: Final = "image "
"""Followed by an `image_key`: the tokens of such an image."""

THE_SERVER: Final = "*"
"""In place of a tenant: what the server itself reports needs no confirmation."""
MAX_TENANTS: Final = 64
"""Remembered for one fact; the oldest go first."""
MAX_NAMES: Final = 128
"""Facts about one model: image sizes, mostly; those renewed longest ago go first."""
_COUNTS: Final = (RATIO, CONFIRMED, IMAGE)
_LIFETIMES: Final = {RATE: 4 * 3600.0, RATE_OF_PROMPTS: 4 * 3600.0, CUT_RESULTS_REFUSED: 24 * 3600.0}
"""Seconds, where they are fewer than for the rest: a rate rises as soon as the account is upgraded, and trying
again costs one refusal that the client does not see."""
_AT_MOST: Final = frozenset({CUT_TO, RATE, RATE_OF_PROMPTS})
"""Facts of which a smaller value is the stronger claim."""


class Fact(Struct, frozen=True, array_like=True):
    """A value met by one tenant."""

    value: Annotated[float, Meta(ge=0, le=2**31)]
    """0: it was refuted."""
    at: float
    """Unix time."""
    stated: float = 0
    """Stated by other sources at that time; 0: nothing."""


Facts: TypeAlias = Mapping[str, Mapping[str, Fact]]
"""Facts by name and tenant."""


def binding(facts: Facts, name: str, by: str | None) -> Fact | None:
    """The fact that binds this tenant: its own, or the strongest claim in which two agree. `by` None: the newest of
    all, to show to people.

    >>> of = {"a": Fact(1.1, 5), "b": Fact(1.3, 6), "c": Fact(1.2, 7)}
    >>> [found and found.value for found in (binding({"ratio ": of}, "ratio ", by) for by in ("a", "new", None))]
    [1.1, 1.2, 1.2]
    >>> binding({"cut to": {"a": Fact(4096, 5)}}, "cut to", "new")
    """
    of = facts.get(name)
    if not of:
        return None
    if by is not None and (own := of.get(by)) is not None:
        return own if own.value else None
    standing = [fact for fact in of.values() if fact.value]
    if by is None:
        return max(standing, key=lambda fact: fact.at, default=None)
    if (stated := of.get(THE_SERVER)) is not None and stated.value:
        return stated
    claims = sorted(standing, key=lambda fact: (fact.value, fact.at), reverse=name not in _AT_MOST)
    return claims[1] if len(claims) > 1 else None


def values(facts: Facts, kind: str, by: str | None) -> dict[str, float]:
    """The facts of one kind that bind this tenant, by the rest of their names."""
    found = {name: binding(facts, name, by) for name in facts if name.startswith(kind)}
    return {name.removeprefix(kind): fact.value for name, fact in found.items() if fact is not None}


def has_lessons_of(facts: Facts, by: str) -> bool:
    """Whether a tenant has met anything that its profile of the model contains, which ratios are not."""
    return any(by in of for name, of in facts.items() if not name.startswith((RATIO, CONFIRMED)))


def with_values(facts: Facts, by: str, new: Mapping[str, float], now: float, stated: float = 0) -> Facts:
    """Add what a tenant has just met: newer than its earlier lessons, whatever the clock of that host says."""
    found: dict[str, Mapping[str, Fact]] = {}
    for name, value in new.items():
        before = facts.get(name, {}).get(by)
        found[name] = {by: Fact(value, now if before is None else max(now, before.at + 0.001), stated)}
    return joined(facts, found)


def refuted(facts: Facts, name: str, is_wrong: Iterable[str], now: float) -> Facts:
    """The facts with this one refuted for these tenants."""
    for by in is_wrong:
        facts = with_values(facts, by, {name: 0}, now)
    return facts


def standing(facts: Facts, now: float, seconds: float) -> Facts:
    """Facts that are not too old; the clocks of two hosts may differ. Counts stay: each response compares them."""
    kept = {
        name: {by: fact for by, fact in of.items() if abs(now - fact.at) < _lifetime(name, seconds)}
        for name, of in facts.items()
    }
    return facts if kept == facts else {name: of for name, of in kept.items() if of}


def until(facts: Facts, seconds: float) -> float:
    """The Unix time at which the first of them is too old."""
    ends = (fact.at + _lifetime(name, seconds) for name, of in facts.items() for fact in of.values())
    return min(ends, default=math.inf)


def _lifetime(name: str, seconds: float) -> float:
    return math.inf if name.startswith(_COUNTS) else min(seconds, _LIFETIMES.get(name, seconds))


def joined(one: Facts, other: Facts) -> Facts:
    """The facts of both; of two lessons of one tenant, the newer one. Whatever is joined in whatever order, the result
    is the same."""
    found: dict[str, Mapping[str, Fact]] = dict(one)
    for name, of in other.items():
        known = found.get(name, {})
        newer = {by: fact for by, fact in of.items() if by not in known or _age(fact) > _age(known[by])}
        if newer:
            found[name] = _newest({**known, **newer}, MAX_TENANTS)
    if len(found) <= MAX_NAMES:
        return found
    kept = sorted(found, key=lambda name: (max(map(_age, found[name].values())), name))[-MAX_NAMES:]
    return {name: found[name] for name in found if name in kept}


def _newest(of: Mapping[str, Fact], most: int) -> Mapping[str, Fact]:
    if len(of) <= most:
        return of
    return dict(sorted(of.items(), key=lambda item: (_age(item[1]), item[0]))[-most:])


def _age(fact: Fact) -> tuple[float, float, float]:
    return fact.at, -fact.value, fact.stated


_Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=2**31)]

_NEAR: Final = 0.9
"""Share of the guess: a conversation that has grown to this would be cut next, so a larger room costs no prompt
cache."""
_WORTH: Final = 1 / 32
"""Share of what was refused: a smaller step is not worth another cut of running conversations."""


_AFTER_REFUSAL: Final = 0.6
"""Share of what was refused, where nothing is known to be accepted."""
_LEFT_BESIDE_FIXED: Final = 0.2
"""Least share of the rest beside what has to stay: the newest results are part of it."""


def size_after_refusal(refused: int, passed: int = 0, fixed: int = 0) -> int:
    """The size to send after a refusal of this size that names no limit: what was accepted before, if that holds the
    `fixed` part, which has to stay.

    >>> size_after_refusal(40_000, 17_835), size_after_refusal(40_000), size_after_refusal(40_000, 17_835, 30_000)
    (17835, 24000, 32000)
    """
    fixed = min(fixed, refused)
    if passed > fixed:
        return passed
    least = fixed + int((refused - fixed) * _LEFT_BESIDE_FIXED)
    return least if passed else max(least, int(refused * _AFTER_REFUSAL))


class Search(Struct, frozen=True, omit_defaults=True):
    """Sizes of prompts in the model's tokens."""

    refused: _Tokens
    """The smallest that was refused."""
    guess: _Tokens
    """The largest that is sent next."""
    passed: _Tokens = 0
    """The largest that was accepted; 0 if none is known."""
    reply: _Tokens = 0
    """The reply limit that the window holds beside such a prompt."""

    @classmethod
    def begun(cls, refused: int, passed: int = 0, reply: int = 0, fixed: int = 0) -> Search:
        """After a refusal of this size, `fixed` of which had to stay. A `passed` that is no smaller was accepted by
        another window.

        >>> Search.begun(40_000, 17_835).guess, Search.begun(40_000).guess, Search.begun(40_000, 50_000).guess
        (17835, 24000, 24000)
        """
        passed = passed if passed < refused else 0
        return cls(refused, size_after_refusal(refused, passed, fixed), passed, reply)

    def after_refusal(self, size: int, passed: int = 0, reply: int = 0, fixed: int = 0) -> Search:
        """After one more refusal; `passed` was accepted since the last one."""
        if size >= self.refused:
            size, reply = self.refused, self.reply
        return Search.begun(size, max(passed, self.passed), reply, fixed)

    def after_pass(self, size: int) -> Search | None:
        """After a prompt was accepted: the same object unless that moves the guess; None if it disproves the search.

        >>> found = Search.begun(40_000)
        >>> found.after_pass(10_000) is found, found.after_pass(22_000).guess, found.after_pass(40_000)
        (True, 31000, None)
        """
        if size >= self.refused:
            return None
        passed = max(size, self.passed)
        guess = (passed + self.refused) // 2
        is_worth_it = size >= _NEAR * self.guess and guess - self.guess >= _WORTH * self.refused
        return structs.replace(self, guess=guess, passed=passed) if is_worth_it else self
