"""Lessons about the models of one upstream.

Rule: a lesson is a row. It binds the tenant that has met it, and everybody if the server itself said it; the newest
wins, so that any order of merging gives the same; it lapses a day after it was last met if a refusal before the first
byte would show it again, otherwise after 30. What has lapsed is where the next search begins. An unnamed limit lies
between what was accepted and what was refused: what was refused is never sent again. Only first sends search: what
follows a refusal has the size of what was accepted before, or else six tenths of what was refused. Only a prompt that
comes near the guess raises it, so that running conversations are seldom cut again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Meta, Struct, structs

WINDOW: Final = "window"
"""The tokens of prompt and reply together, as a refusal has stated them."""
INPUT: Final = "input"
"""The tokens of the prompt alone."""
CHARS: Final = "chars"
"""The characters of the prompt."""
LATE: Final = "window, stated late"
"""Like `WINDOW`, stated after content had begun."""
SEARCH: Final = "search"
"""The `Search` for a limit that no refusal has named: in tokens, or in bytes for all models."""
CUT_TO: Final = "cut to"
"""The window to which the upstream silently cut a prompt, in tokens."""
STATED: Final = "stated"
"""The window that the server itself stated: older and smaller limits in tokens no longer hold."""
RESULTS_HOLD_TEXT: Final = "results hold text"
"""Media were refused in tool results."""
REFUSES_OUR_TOOL: Final = "our tool is refused"
"""The proxy's own tool was refused while the same request without it was accepted."""
CUT_RESULTS_REFUSED: Final = "cut results are refused"
"""A request with cut results was refused, as something in it did not parse as JSON, and accepted as it came."""
REFUSES: Final = "refuses "
"""Followed by a kind of input that was refused while the same request without it was accepted, or by the digest of one
such content."""
MAY_REFUSE: Final = "may refuse "
"""Followed by a kind of input that was refused once under a condition, and not accepted since."""
RATE: Final = "rate"
"""The tokens per minute that one request exceeded alone; its reply limit counts."""
RATE_OF_PROMPTS: Final = "rate of prompts"
"""The tokens per minute where its reply limit does not count."""
RATIO: Final = "ratio "
"""Followed by a counter: the upstream's tokens for one of this counter."""
AT_MOST: Final = "at most "
"""Followed by the name of any other limit that a refusal has stated."""
FORGOTTEN: Final = "forgotten"
"""What was met about the model until then was forgotten on purpose; about all models, if it names none."""

THE_SERVER: Final = "*"
"""In place of a tenant: the server itself said it."""
DAY: Final = 24 * 3600.0
KEPT_SECONDS: Final = 30 * DAY
"""Rows are kept for this long after they were last met, lapsed or not."""
MAX_ROWS: Final = 8192
"""About all models of one upstream; the oldest go first. Models and tenants are foreign input."""
_NO_REFUSAL_SHOWS: Final = (RATIO, LATE, CUT_TO, STATED)
_SOURCES: Final = ((WINDOW, INPUT), (LATE,), (SEARCH,), (CUT_TO,))
"""Sources of limits in tokens; the newest word counts."""
IN_TOKENS: Final = frozenset(name for source in _SOURCES for name in source)

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


class Search(Struct, frozen=True, array_like=True):
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


def size_of(value: float | Search) -> float:
    """A value as one number."""
    return value.guess if isinstance(value, Search) else value


class Key(NamedTuple):
    """Whose lesson it is, and about what."""

    model: str
    tenant: str
    name: str


class Lesson(Struct, frozen=True, array_like=True):
    """What was learned."""

    value: Annotated[float, Meta(ge=0, le=2**31)] | Search
    """0: it no longer holds."""
    at: float
    """Unix time at which it was last met."""

    @property
    def size(self) -> float:
        """As one number."""
        return size_of(self.value)


Rows: TypeAlias = Mapping[Key, Lesson]
Lessons: TypeAlias = Mapping[str, Lesson]
"""By name."""
ByTenant: TypeAlias = Mapping[tuple[str, str], Lessons]
"""By model and tenant."""


def joined(one: Rows, other: Rows) -> Rows:
    """Join both; of two lessons about one thing, the newer one. In whatever order, the result is the same."""
    newer = {key: lesson for key, lesson in other.items() if key not in one or _age(lesson) > _age(one[key])}
    found = {**one, **newer} if newer else one
    if len(found) <= MAX_ROWS:
        return found
    return dict(sorted(found.items(), key=lambda row: (*_age(row[1]), row[0]))[-MAX_ROWS:])


def forgetting(rows: Rows, now: float, model: str = "") -> Rows:
    """The row by which all that is known of a model counts no longer, or of every model if it is empty."""
    latest = max((one.at for key, one in rows.items() if model in ("", key.model)), default=now)
    return {Key(model, THE_SERVER, FORGOTTEN): Lesson(1, max(now, latest))}


def forgotten_at(rows: Rows) -> Mapping[str, float]:
    """When models were forgotten on purpose, by name; all of them by the empty one."""
    return {key.model: one.at for key, one in rows.items() if key.name == FORGOTTEN}


def kept(rows: Rows, now: float) -> Rows:
    """The rows that are not forgotten yet, neither by their age nor on purpose. The clocks of two hosts may differ by a
    day."""
    ends = forgotten_at(rows)
    return {
        key: one
        for key, one in rows.items()
        if -DAY < now - one.at < KEPT_SECONDS
        and (key.name == FORGOTTEN or not any(one.at <= ends[of] for of in ("", key.model) if of in ends))
    }


def in_force(rows: Rows, now: float) -> Rows:
    """The lessons that have not lapsed."""
    return {key: one for key, one in rows.items() if key.name != FORGOTTEN and now < lapses_at(key.name, one)}


def lapses_at(name: str, lesson: Lesson) -> float:
    """The Unix time at which it lapses."""
    is_long = not lesson.value or name.startswith(_NO_REFUSAL_SHOWS)
    return lesson.at + (KEPT_SECONDS if is_long else DAY)


def by_tenant(rows: Rows) -> ByTenant:
    """The rows, to be looked up."""
    found: dict[tuple[str, str], dict[str, Lesson]] = {}
    for (model, tenant, name), lesson in rows.items():
        found.setdefault((model, tenant), {})[name] = lesson
    return found


def binding(rows: ByTenant, model: str, by: str | None) -> Lessons:
    """The lessons about a model that bind this tenant; `by` None: the newest of all, to show to people."""
    if by is None:
        wanted = [_holding(lessons) for (about, _), lessons in rows.items() if about == model]
    else:
        wanted = [lessons for whose in (by, THE_SERVER) if (lessons := rows.get((model, whose)))]
    found: dict[str, Lesson] = {}
    for lessons in wanted:
        found |= {name: max(lesson, found.get(name, lesson), key=_age) for name, lesson in lessons.items()}
    return _holding(found)


def _holding(found: Lessons) -> Lessons:
    """Those that still hold: of the limits in tokens, the newest word."""
    stated = found.get(STATED)
    sources = [
        {
            name: lesson
            for name in source
            if (lesson := found.get(name)) is not None
            and lesson.value
            and not (stated is not None and lesson.at < stated.at and lesson.size < stated.size)
        }
        for source in _SOURCES
    ]
    newest = max(sources, key=lambda source: max((lesson.at for lesson in source.values()), default=0))
    return newest | {name: lesson for name, lesson in found.items() if lesson.value and name not in IN_TOKENS}


def _age(lesson: Lesson) -> tuple[float, str]:
    return lesson.at, str(lesson.value)
