"""One history of a request, one table of cures: what is sent next, what the client gets, and what was learned.

Rule: each refusal is cured for its reason, and no reason twice: three sends at most. Each is smaller than the one
before, or asks for less. All three questions are pure functions of the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, structs

from proxy.core.models import LimitName, Modality, Search, facts, size_after_refusal
from proxy.core.notices import UNNAMED, ArtifactAccess
from proxy.core.overflow.report import (
    FAULTS,
    MIN_USEFUL_REPLY_TOKENS,
    REPAIRED,
    TOO_LARGE,
    Exactness,
    Scope,
    Unit,
    Verdict,
    VerdictKind,
)

MAX_SENDS: Final = 3
"""Limit for one request: a model switched in mid-session may refuse it for two reasons at once, and names one at a
time."""
EMERGENCY_SHARE: Final = 0.6
"""Share of the true limit: a second refusal must not result from an estimate that is off by a third."""
EMERGENCY_REPLY_SHARE: Final = 0.3
"""Largest share of the true limit for the reply beside such a prompt: a window limits both together."""
BLIND_SHARE: Final = 0.5
"""Share of what was refused, for a reply, for bytes, and for a prompt whose limit is one of characters."""
ALWAYS_SMALLER: Final = 0.9
"""Share of the refused size, whatever limit the upstream states."""
_LIMIT_SHARE: Final = 0.95
"""Share of the true limit, for a prompt that cannot be reduced to the emergency share: the upstream has just counted
it, so the rest only has to cover the error of an estimate."""
ESTIMATED_SHARE: Final = 0.85
"""Share of the true limit for such a prompt where tokens are only estimated, or were estimated wrongly for the refused
one: one part of a prompt may be a seventh denser than its whole, of which alone the count is known."""
_UNCONFIRMED_FACTOR: Final = 1.5
"""A count may exceed an estimate that nothing has confirmed by this factor: a third of it is missing."""
_MAY_BE_OVER: Final = 1.5
"""An estimate that nothing has confirmed may exceed the count by this factor: prose has two thirds of it. An excess
that a refusal states is then so much larger in our tokens."""
_REPLY_SLACK_TOKENS: Final = 16
"""Between a prompt as the upstream counted it and the limit: servers' own counts vary by a few tokens."""


LEAST_LIMIT_BYTES: Final = 65_536
"""No server limits bodies to less unless it says so: express takes 100 KB by default, axum 2 MB, nginx 1 MB."""


class AttemptKind(StrEnum):
    """The kind of a send."""

    FIRST = "first"
    REPEATED = "repeated"
    SHORTER_REPLY = "shorter_reply"
    EMERGENCY = "emergency"
    WITHOUT_MEDIA = "without_media"
    FITTED = "fitted"
    FEWER_BYTES = "fewer_bytes"
    ORIGINAL = "original"
    WITHOUT_TOOL = "without_tool"
    REPAIRED = "repaired"
    LIMITED = "limited"


class Terms(NamedTuple):
    """Inputs of a plan besides the request and the knowledge about its model."""

    access: ArtifactAccess = UNNAMED
    """How the client gets at artifacts."""
    tools: bytes | None = None
    """The tool list including the proxy's own tool; None if the agent is not offered it."""
    goal_tokens: int | None = None
    """Goal for the prompt after a refusal, by our estimate."""
    most_tokens: int | None = None
    """Limit for the prompt, if what must stay exceeds the goal: as far below the true limit as the margin requires."""
    goal_bytes: int | None = None
    """Goal for the prompt after a refusal for its bytes."""
    keeping: bool = True
    """Whether artifacts can be kept."""
    supposed: Search | None = None
    """Taken for what the latest refusal has taught."""
    window_tokens: int | None = None
    """A window that the client states; a smaller one of the model counts."""
    exactly: bool = False
    """Whether the model's own counter counts, however small the request."""
    without: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text, after a refusal."""
    repairs: Verdict | None = None
    """The refusal whose cause is taken out of the history."""
    at_most: tuple[tuple[LimitName, int], ...] = ()
    """Limits that refusals of this request have named."""

    @property
    def is_for_one_send(self) -> bool:
        """Whether no later plan continues from one on these terms."""
        return self.goal_tokens is not None or self.goal_bytes is not None


class Cure(Struct, frozen=True):
    """How one send differs from the one that was refused."""

    kind: AttemptKind
    terms: Terms | None = None
    """The terms of its plan; None keeps the plan."""
    reply_tokens: int | None = None
    """The maximum reply limit, instead of the request's own."""
    goal_tokens: int | None = None
    """The maximum size of the prompt, by our estimate: a larger one gives way to the next cure, if there is one."""
    is_sure: bool = False
    """Whether a prompt of that size surely fits, by the upstream's count of the one before: then the room that the plan
    leaves for the reply is better than `reply_tokens`."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text."""
    reason: VerdictKind = VerdictKind.PROMPT
    """The reason that it answers; PROMPT for any length in tokens but that of the reply alone, UNKNOWN for what an edit
    of ours may have caused."""
    cause: str = ""
    """The row of the table of cures."""
    keeps_to: LimitName | None = None
    """The named limit that it answers."""

    @property
    def keeps_prompt(self) -> bool:
        """Whether the prompt is the one that was planned first: what the upstream counts of it says how it counts."""
        return self.terms is None and self.kind is not AttemptKind.ORIGINAL


FIRST: Final = Cure(AttemptKind.FIRST, reason=VerdictKind.ACCEPTED)


class Situation(Struct, frozen=True):
    """Facts about a send that decide the next one."""

    estimate_tokens: int
    """Estimated size of the prompt."""
    chars: int
    """Characters of its text."""
    bytes: int
    """Size of the whole body."""
    reply_tokens: int | None
    """The reply limit; None if it has none."""
    edited: bool
    """Whether it differs from the original request."""
    original_could_fit: bool
    """Whether the original request fits the window by our estimate."""
    terms: Terms = Terms()
    """Terms of its plan."""
    search: Search | None = None
    """The search for the limit if this is refused without a number; None: its size is unknown."""
    guess_tokens: int | None = None
    """The size of a prompt, by our estimate, that is sent next in that case; None: nothing is known to fit."""
    has_our_tool: bool = False
    """Whether the proxy's own tool is in its list."""
    fixed_tokens: int = 0
    """Tokens that have to stay: system text, tools, the task, the last user message."""
    holds_a_page: bool = False
    """Whether it holds a page that was read for the model, which gets smaller for a goal alone."""
    count_may_be_wrong: bool = False
    """Whether its size is an estimate that nothing had confirmed."""


class Outcome(Struct, frozen=True):
    """The outcome of a send."""

    status: int
    verdict: Verdict
    media: frozenset[Modality] = frozenset()
    """Kinds of input in what was sent; stated only if media were refused."""
    is_repairable: bool = False
    """Whether the client's history holds what was refused: calls and results that do not pair up, or encrypted or
    signed reasoning."""
    fitting_tokens: int | None = None
    """The size of a prompt, by our estimate, that the upstream reads whole; stated only if the response's usage proves
    that this one was cut."""
    names_our_tool: bool = False
    """Whether a refusal names the proxy's own tool, which was in the list that was sent."""

    @property
    def is_over_bytes(self) -> bool:
        """Whether the body was too large, in whatever words. A 413 without any, for a request that is not long for its
        window, means bytes, too."""
        kinds = (VerdictKind.BYTES, VerdictKind.UNKNOWN)
        return self.status == TOO_LARGE and self.verdict.kind in kinds and not self.verdict.is_suspect

    @property
    def is_too_long(self) -> bool:
        """Whether the request is too long, for a window or alone for a rate."""
        return self.verdict.is_overflow or self.verdict.is_over_rate

    @property
    def reason(self) -> VerdictKind | None:
        """The reason that a refusal names, if there is a cure for it; UNKNOWN for the proxy's own tool."""
        verdict = self.verdict
        if self.is_too_long:
            return VerdictKind.PROMPT
        if verdict.kind is VerdictKind.REPLY_ONLY and (verdict.named or verdict.limit):
            return VerdictKind.REPLY_ONLY
        if verdict.named is not None and verdict.named not in (LimitName.TOOLS, LimitName.BODY):
            return VerdictKind.COUNT
        if self.is_over_bytes and verdict.kind is VerdictKind.BYTES:
            return VerdictKind.BYTES
        if verdict.kind is VerdictKind.MEDIA and self.media:
            return VerdictKind.MEDIA
        if self.status not in _REFUSING_STATUSES and verdict.kind not in FAULTS:  # servers that fail to parse say 500
            return None
        if self.names_our_tool and verdict.kind in _ABOUT_A_TOOL:
            return VerdictKind.UNKNOWN
        return verdict.kind if self.is_repairable else None

    def proves(self, cures: Sequence[Cure]) -> bool:
        """Whether the upstream, after these cures, names another reason: then it has none left of theirs. Each kind of
        media is a reason of its own."""
        return self.reason is not None and not any(self._is_cured_by(cure) for cure in cures)

    def _is_cured_by(self, cure: Cure) -> bool:
        is_other_media = cure.refused and self.verdict.refused and not cure.refused & self.verdict.refused
        is_other_limit = cure.keeps_to is not None and cure.keeps_to is not self.verdict.named
        return self.reason is cure.reason and not (is_other_media or is_other_limit)

    @property
    def is_final(self) -> bool:
        """Whether nothing follows it in any situation: the upstream has accepted the prompt, and cut nothing that we
        know of."""
        return self.is_accepted and self.fitting_tokens is None and not self.verdict.is_suspect

    @property
    def is_accepted(self) -> bool:
        """Whether the response is a reply of the model."""
        return self.status < 400 and self.verdict.kind is VerdictKind.ACCEPTED


class Attempt(Struct, frozen=True):
    """One send and what came of it; a request is the list of its attempts."""

    cure: Cure
    outcome: Outcome
    is_whole: bool = False
    """Whether all of the response was read, so that it can still be passed on after another send."""


_Attempt = TypeVar("_Attempt", bound=Attempt)


def next_cures(history: Sequence[Attempt], situation: Situation) -> Sequence[Cure]:
    """Candidates for the next send: the first whose plan keeps to its goal is sent, or else the last one. Empty: the
    client gets the `best` response. `situation`: of what was sent last.

    No reason is cured twice. A refusal of what was cured that names another reason proves the cure, and one more send
    has both.
    """
    last, cures = history[-1], [attempt.cure for attempt in history[1:]]
    if last.outcome.is_final or len(history) >= MAX_SENDS:
        return ()
    kinds = {cure.kind for cure in cures}
    found = _cures_of(last.outcome, situation, kinds)
    if not found or kinds <= {AttemptKind.REPEATED} or found[0].kind is AttemptKind.REPEATED:
        return found
    cure, verdict = found[0], last.outcome.verdict
    if cure.kind is AttemptKind.ORIGINAL and kinds == {AttemptKind.WITHOUT_TOOL}:
        return found  # it was not the tool: another edit may be the cause
    if AttemptKind.ORIGINAL in (cure.kind, cures[-1].kind):
        return ()
    is_of_a_member = cure.kind is AttemptKind.WITHOUT_TOOL and verdict.kind in (VerdictKind.FIELD, VerdictKind.COUNT)
    if not last.outcome.proves(cures) and not is_of_a_member:
        return ()
    if cure.reason in [earlier.reason for earlier in cures] and not (cure.refused or cure.keeps_to):
        return ()
    return [structs.replace(one, reply_tokens=_least_reply(*cures, one)) for one in found]


def best(history: Sequence[_Attempt]) -> _Attempt:
    """The attempt whose response the client gets: the last one, or the one before if that was only tried. Clients know
    the words of the first refusal, and a reply that the upstream has cut is better than none."""
    last = history[-1]
    in_vain = len(history) > 1 and not last.outcome.is_accepted
    return history[-2] if in_vain and still_stands(history[-2], last.cure) else last


def still_stands(refused: Attempt, cure: Cure) -> bool:
    """Whether the client gets the response to this attempt if its cure is in vain."""
    if cure.kind is AttemptKind.FITTED:
        return True
    is_guess = refused.outcome.verdict.is_suspect and cure.kind is AttemptKind.EMERGENCY
    return (
        (is_guess or cure.reason in (VerdictKind.SEAL, *FAULTS)) and refused.outcome.status >= 400 and refused.is_whole
    )


HISTORY: Final = "history"
"""A lesson about this conversation alone: its history holds what was refused."""
BYTES: Final = "bytes"
"""The size of the body that was refused."""
SIZE: Final = "size"
"""The size of the prompt that was accepted."""


class Lesson(NamedTuple, Generic[_Attempt]):
    """One thing that a history has taught."""

    about: str
    """`HISTORY`, `BYTES`, `SIZE`, or the name of a fact, or its beginning."""
    refused: _Attempt
    sent: _Attempt
    """What the upstream has accepted instead, or refused for another reason."""


def lessons_of(history: Sequence[_Attempt]) -> Sequence[Lesson[_Attempt]]:
    """What the latest attempt proves: a refusal that names no limit is taken as true of the model only after the same
    request without what was refused, or shorter, was accepted, or refused for another reason."""
    last, begin = history[-1], 1
    for index in range(1, len(history) - 1):
        if _proves(history[index], history[begin : index + 1]):
            begin = index + 1
    unproven = range(begin, len(history))
    if not unproven:
        return ()
    if not _proves(last, history[begin:]):
        is_same_seal = last.cure.reason is last.outcome.verdict.kind is VerdictKind.SEAL  # these are others
        return (Lesson(HISTORY, history[-2], last),) if is_same_seal else ()
    undone = last.cure.kind is AttemptKind.ORIGINAL  # so the cures before it prove nothing
    is_accepted = last.outcome.is_accepted
    return [
        Lesson(about, history[index - 1], history[index])
        for index in (unproven[-1:] if undone else unproven)
        for about in _taught(history[index].cure, history[index - 1].outcome.verdict, is_accepted=is_accepted)
    ]


def _proves(attempt: Attempt, cured: Sequence[Attempt]) -> bool:
    return attempt.outcome.is_accepted or attempt.outcome.proves([one.cure for one in cured])


def _taught(cure: Cure, refusal: Verdict, *, is_accepted: bool) -> Iterator[str]:
    """What this cure has taught of this refusal, now that it is proven."""
    if cure.kind is AttemptKind.REPAIRED:
        yield HISTORY
    if refusal.named is not None and (cure.keeps_to or cure.kind is AttemptKind.SHORTER_REPLY):
        yield facts.AT_MOST
    if refusal.is_conditional and cure.kind is not AttemptKind.WITHOUT_MEDIA:
        return
    match cure.kind:
        case AttemptKind.ORIGINAL if refusal.misses_json and is_accepted:
            yield facts.CUT_RESULTS_REFUSED
        case AttemptKind.WITHOUT_TOOL if refusal.named is not LimitName.TOOLS:
            yield facts.REFUSES_OUR_TOOL
        case AttemptKind.FEWER_BYTES:
            yield BYTES
        case AttemptKind.EMERGENCY if refusal.names_no_limit and is_accepted:
            if refusal.is_suspect:
                yield facts.SEARCH
            yield SIZE
        case AttemptKind.WITHOUT_MEDIA if refusal.refuses_in_results and not refusal.is_conditional:
            yield facts.RESULTS_HOLD_TEXT
        case AttemptKind.WITHOUT_MEDIA if refusal.refuses_model:
            yield facts.REFUSES


def _least_reply(*cures: Cure) -> int | None:
    return min([one.reply_tokens for one in cures if one.reply_tokens is not None], default=None)


def _cures_of(outcome: Outcome, situation: Situation, used: set[AttemptKind]) -> Sequence[Cure]:
    """Cures that may be accepted after this refusal: those of the first row that has any."""
    for row in CURES:
        if used.issuperset(row.kinds) and AttemptKind.REPEATED in row.kinds:
            continue  # silence that the same bytes have met with twice is no accident of the connection
        if found := [structs.replace(cure, cause=row.cause) for cure in row.find(outcome, situation)]:
            return found
    return ()


def _repeated(outcome: Outcome, _: Situation) -> Iterator[Cure]:
    if outcome.verdict.is_silent and outcome.verdict.is_suspect:
        yield Cure(AttemptKind.REPEATED, reason=VerdictKind.EMPTY)


def _shorter_reply(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    reply = _fitting_reply(outcome.verdict, situation)
    if reply is not None and (situation.reply_tokens is None or reply < situation.reply_tokens):
        is_alone = outcome.verdict.kind is VerdictKind.REPLY_ONLY
        reason = VerdictKind.REPLY_ONLY if is_alone else VerdictKind.PROMPT
        yield Cure(AttemptKind.SHORTER_REPLY, reply_tokens=reply, reason=reason)


_CURED_OTHERWISE: Final = frozenset({LimitName.REPLY, LimitName.TOOLS, LimitName.BODY})
"""Named limits with a row of their own: a reply limit is lowered, of the tools only our own may go, and a body is
fitted like a prompt."""


def _limited(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    named, terms = outcome.verdict.named, situation.terms
    if named is not None and named not in _CURED_OTHERWISE:
        terms = terms._replace(at_most=(*terms.at_most, (named, outcome.verdict.named_limit)))
        yield Cure(AttemptKind.LIMITED, terms, reason=VerdictKind.COUNT, keeps_to=named)


def _shorter_prompt(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    if outcome.is_too_long:
        yield from _smaller(outcome.verdict, situation)


def _fewer_bytes(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    goal = _goal_bytes(outcome.verdict, situation) if outcome.is_over_bytes else None
    if goal is not None:
        yield Cure(AttemptKind.FEWER_BYTES, situation.terms._replace(goal_bytes=goal), reason=VerdictKind.BYTES)


def _fitted(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    """Settings that state another window take precedence over what was learned."""
    goal, terms = outcome.fitting_tokens, situation.terms
    if goal is not None:
        yield Cure(AttemptKind.FITTED, terms, goal_tokens=goal)
        yield Cure(AttemptKind.FITTED, terms._replace(goal_tokens=goal, most_tokens=None), goal_tokens=goal)


def _without_media(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    if outcome.reason is VerdictKind.MEDIA:
        refused = _not_to_be_sent(outcome.verdict.refused, outcome.media)
        terms = situation.terms._replace(without=situation.terms.without | refused)
        yield Cure(AttemptKind.WITHOUT_MEDIA, terms, refused=refused, reason=VerdictKind.MEDIA)


def _repaired(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    if outcome.reason in REPAIRED:
        terms = situation.terms._replace(repairs=outcome.verdict)
        yield Cure(AttemptKind.REPAIRED, terms, reason=outcome.verdict.kind)


def _whole_results(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    """Whatever the status: what was cut may be what does not parse."""
    if situation.edited and outcome.verdict.misses_json and situation.original_could_fit:
        yield _ORIGINAL


def _without_tool(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    verdict, terms = outcome.verdict, situation.terms
    may_be = outcome.status in _REFUSING_STATUSES and verdict.kind in _ABOUT_A_TOOL
    is_of_length = verdict.is_suspect and not situation.original_could_fit
    if situation.has_our_tool and (verdict.refuses_tools or (may_be and not is_of_length)):
        terms = terms._replace(tools=None, access=structs.replace(terms.access, tool=False))
        yield Cure(AttemptKind.WITHOUT_TOOL, terms, reason=VerdictKind.UNKNOWN)


def _unedited(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    is_ours = outcome.status in _REFUSING_STATUSES and situation.edited and situation.original_could_fit
    if is_ours and outcome.verdict.kind in _REFUSED_FOR_CONTENT:
        yield _ORIGINAL


def _shorter_guess(outcome: Outcome, situation: Situation) -> Iterator[Cure]:
    if outcome.verdict.is_suspect:
        yield from _smaller(outcome.verdict, situation)


_ORIGINAL: Final = Cure(AttemptKind.ORIGINAL, reason=VerdictKind.UNKNOWN)


class Row(NamedTuple):
    """One reason for which requests are refused, and its cure."""

    cause: str
    """Its name in the log."""
    words: str
    """What it means, for people."""
    find: Callable[[Outcome, Situation], Iterator[Cure]]
    """Candidates of its cure; none if it is not the reason."""
    kinds: tuple[AttemptKind, ...]
    """What it may send."""
    learned: tuple[str, ...] = ()
    """What is remembered of the model, at once where a refusal states it, else if the cure is proven: names of facts,
    or their beginnings."""


CURES: Final = (
    Row("silence", "no reply came", _repeated, (AttemptKind.REPEATED,)),
    Row("limit", "a limit was named", _limited, (AttemptKind.LIMITED,), (facts.AT_MOST,)),
    Row(
        "reply",
        "the reply limit was too high",
        _shorter_reply,
        (AttemptKind.SHORTER_REPLY,),
        (facts.WINDOW, facts.AT_MOST),
    ),
    Row(
        "prompt",
        "the prompt was too long",
        _shorter_prompt,
        (AttemptKind.EMERGENCY,),
        (facts.WINDOW, facts.LATE, facts.INPUT, facts.CHARS, facts.SEARCH, facts.RATE),
    ),
    Row("bytes", "the body had too many bytes", _fewer_bytes, (AttemptKind.FEWER_BYTES,), (facts.AT_MOST,)),
    Row("silent_cut", "the prompt was cut by the upstream", _fitted, (AttemptKind.FITTED,), (facts.CUT_TO,)),
    Row(
        "media",
        "media were refused",
        _without_media,
        (AttemptKind.WITHOUT_MEDIA,),
        (facts.REFUSES, facts.RESULTS_HOLD_TEXT),
    ),
    Row("history", "the history was refused", _repaired, (AttemptKind.REPAIRED,), (facts.AT_MOST,)),
    Row(
        "cut_results",
        "a cut result did not parse",
        _whole_results,
        (AttemptKind.ORIGINAL,),
        (facts.CUT_RESULTS_REFUSED,),
    ),
    Row(
        "our_tool",
        "the proxy's own tool was refused",
        _without_tool,
        (AttemptKind.WITHOUT_TOOL,),
        (facts.REFUSES_OUR_TOOL, facts.AT_MOST),
    ),
    Row("edit", "an edit may have been refused", _unedited, (AttemptKind.ORIGINAL,)),
    Row("no_words", "a long request got no reason", _shorter_guess, (AttemptKind.EMERGENCY,), (facts.SEARCH,)),
)
"""The reasons that a refusal can have, in the order in which they are recognised."""


def _smaller(verdict: Verdict, situation: Situation) -> Iterator[Cure]:
    """Shorter prompts. First the one that the next turn will continue from, if that surely fits or is as small as a
    search requires, so that a prompt cache is lost once, not twice; then one cut down to its goal, or as far below the
    true limit as possible, with the shortest useful reply."""
    goal, reply, terms = emergency_goal(verdict, situation), emergency_reply(verdict, situation), situation.terms
    most, least_reply, sure = _at_the_limit(verdict, situation)
    cure = Cure(AttemptKind.EMERGENCY, terms._replace(goal_tokens=goal, most_tokens=most), reply, goal)
    if sure is not None and not situation.holds_a_page:
        yield structs.replace(cure, terms=terms, goal_tokens=sure, is_sure=True)
    if verdict.names_no_limit and situation.search is not None and not situation.holds_a_page:
        yield structs.replace(cure, terms=terms._replace(supposed=situation.search))
    yield cure
    if most is not None:
        yield structs.replace(cure, goal_tokens=most, reply_tokens=least_reply or reply)


def _goal_bytes(verdict: Verdict, situation: Situation) -> int | None:
    """Bytes for the next send: under the limit that is stated, or half; None if the body is under every known limit."""
    if verdict.named is LimitName.BODY and verdict.named_limit < situation.bytes:
        return int(min(verdict.named_limit * _LIMIT_SHARE, situation.bytes * ALWAYS_SMALLER))
    if situation.bytes < LEAST_LIMIT_BYTES:
        return None
    fixed = min(situation.fixed_tokens, situation.estimate_tokens)
    half = fixed + int((situation.estimate_tokens - fixed) * BLIND_SHARE)
    return situation.bytes * half // max(1, situation.estimate_tokens)


_READ_AS_IMAGES: Final = frozenset({Modality.FILE, Modality.VIDEO})
"""A model that accepts no images hardly accepts pages and videos."""
_REFUSING_STATUSES: Final = frozenset({400, 422})
"""The request was examined and rejected; after any other response it may have been accepted."""
_REFUSED_FOR_CONTENT: Final = frozenset(
    {
        *REPAIRED,
        VerdictKind.FIELD,
        VerdictKind.COUNT,
        VerdictKind.POLICY,
        VerdictKind.MEDIA,
        VerdictKind.UNKNOWN,
    }
)
"""Refusals that an edit of ours may have caused; the others would happen to the original, too."""
_ABOUT_A_TOOL: Final = frozenset({VerdictKind.FIELD, VerdictKind.COUNT, VerdictKind.POLICY, VerdictKind.UNKNOWN})
"""Refusals that the proxy's own tool may have caused. COUNT: it may make a list one too long; OpenAI accepts 128."""


def _not_to_be_sent(refused: frozenset[Modality], sent: frozenset[Modality]) -> frozenset[Modality]:
    """The kinds of input that the next send omits, because media are refused and omitted once."""
    named = refused & sent or sent
    return named | (_READ_AS_IMAGES & sent) if Modality.VISION in named else named


def emergency_goal(verdict: Verdict, situation: Situation) -> int:
    """Tokens, by our estimate, for the next send."""
    estimate = situation.estimate_tokens
    if verdict.limit is None:
        goal = situation.guess_tokens  # None: nothing is known to fit
        goal = size_after_refusal(estimate, fixed=situation.fixed_tokens) if goal is None else goal
        if verdict.excess is None or verdict.unit is not Unit.TOKENS or not situation.count_may_be_wrong:
            return goal
        fixed = min(goal, situation.fixed_tokens)
        return min(goal, max(estimate - int(verdict.excess * _MAY_BE_OVER), (fixed + goal) // 2))
    # The upstream counted the same prompt, so its excess over our count applies to the next one, too.
    ours_per_theirs = min(1.0, estimate / max(1, _counted(verdict, verdict.limit, situation)))
    most = estimate * (BLIND_SHARE if verdict.unit is Unit.CHARS else ALWAYS_SMALLER)
    return int(min(verdict.limit * EMERGENCY_SHARE * ours_per_theirs, most))


def _at_the_limit(verdict: Verdict, situation: Situation) -> tuple[int | None, int | None, int | None]:
    """Tokens, by our estimate, that a prompt may have beside the shortest useful reply; that reply; and the tokens of a
    prompt that surely fits. None where the limit is unknown, where no reply has to be lowered, and where nothing is
    sure."""
    if verdict.limit is None or verdict.unit is Unit.CHARS:
        return None, None, None
    reply_tokens = None if verdict.limit_scope is Scope.INPUT else situation.reply_tokens
    reply = None if reply_tokens is None else min(reply_tokens, MIN_USEFUL_REPLY_TOKENS)
    # An exact count wins, whichever way the estimate is off: nothing is refused because of an estimate.
    is_counted = verdict.prompt is not None or verdict.is_over_rate
    is_exact = is_counted and verdict.exactness is Exactness.EXACT
    ours_per_theirs = situation.estimate_tokens / max(1, _counted(verdict, verdict.limit, situation))
    is_off = abs(ours_per_theirs - 1) > 1 - _LIMIT_SHARE
    ours_per_theirs = ours_per_theirs if is_exact else min(1.0, ours_per_theirs)
    most = int((verdict.limit - (reply or 0)) * _LIMIT_SHARE * ours_per_theirs)
    share = ESTIMATED_SHARE if situation.count_may_be_wrong or is_off else _LIMIT_SHARE
    sure = min(verdict.limit * share * ours_per_theirs, situation.estimate_tokens * ALWAYS_SMALLER)
    return most, reply, int(sure) if is_exact else None


def emergency_reply(verdict: Verdict, situation: Situation) -> int | None:
    """The reply limit for the next send: lower if the one that was refused would not fit beside the prompt, and never
    higher, although a shorter prompt would leave room for that."""
    reply_tokens = situation.reply_tokens
    if reply_tokens is None or verdict.limit_scope is Scope.INPUT or verdict.unit is Unit.CHARS:
        return None
    if verdict.limit is not None:
        reply = int(verdict.limit * EMERGENCY_REPLY_SHARE)
    elif verdict.kind is VerdictKind.PROMPT_PLUS_REPLY:
        reply = int(reply_tokens * BLIND_SHARE)
    elif reply_tokens > situation.estimate_tokens:  # rather both together are too much: then half of each
        reply = emergency_goal(verdict, situation)
    else:
        reply = reply_tokens
    return min(reply_tokens, max(MIN_USEFUL_REPLY_TOKENS, reply))


def _counted(verdict: Verdict, limit: int, situation: Situation) -> int:
    """The upstream's minimum count for the prompt, in the unit of its limit: it stated the count, or would not have
    refused otherwise. The most if the count may include the reply: that cuts more, which leaves room for the reply."""
    requested, estimate = verdict.requested or 0, situation.estimate_tokens
    if verdict.unit is Unit.CHARS:
        return situation.chars
    if verdict.prompt is not None and verdict.exactness is Exactness.EXACT:
        return verdict.prompt
    if verdict.kind is VerdictKind.PROMPT_PLUS_REPLY:
        return limit - (verdict.reply or situation.reply_tokens or 0)
    if verdict.kind is VerdictKind.RATE:
        may_be_all = situation.count_may_be_wrong and requested <= estimate * _UNCONFIRMED_FACTOR
        return requested if may_be_all else _counted_by_rate(verdict, estimate, situation.reply_tokens)
    return max(limit, requested) if verdict.exactness is Exactness.EXACT else limit


def _counted_by_rate(verdict: Verdict, estimate_tokens: int, reply_tokens: int | None) -> int:
    """The prompt's share of the tokens that a rate counted. Some count the reply limit as used tokens
    (github.com/zeeyado/koassistant.koplugin/issues/106): of the two readings, the one nearer to our estimate."""
    requested = verdict.requested or 0
    prompt = requested - (reply_tokens or 0)
    return prompt if prompt > 0 and estimate_tokens**2 <= prompt * requested else requested


def room_in_rate(verdict: Verdict, estimate_tokens: int, reply_tokens: int | None) -> tuple[int, bool]:
    """Room of a request under a rate limit that this one alone exceeded, in estimated tokens, and whether that includes
    its reply limit."""
    counted = _counted_by_rate(verdict, estimate_tokens, reply_tokens)
    room = int((verdict.limit or 0) * min(1.0, estimate_tokens / max(1, counted)))
    return room, counted + (reply_tokens or 0) == verdict.requested


_ABOUT: Final = 1.1
"""An upstream's count that it calls one of about may be less than the true one by this factor."""


def _fitting_reply(verdict: Verdict, situation: Situation) -> int | None:
    """The reply limit that a refusal states, or that its window leaves beside the unchanged prompt; None if its own
    numbers prove neither."""
    if verdict.named is LimitName.REPLY:
        return verdict.named_limit
    if verdict.limit is None or verdict.unit is not Unit.TOKENS:
        return None
    prompt, is_exact = verdict.prompt, verdict.exactness is Exactness.EXACT
    match verdict.kind:
        case VerdictKind.REPLY_ONLY if situation.reply_tokens is not None:
            prompt = math.ceil(situation.estimate_tokens * _ABOUT) if prompt is None else prompt
        case VerdictKind.RATE if situation.reply_tokens is not None:
            prompt = _counted(verdict, verdict.limit, situation)
        case VerdictKind.PROMPT_PLUS_REPLY if prompt is not None and verdict.exactness is not Exactness.AT_LEAST:
            prompt = prompt if is_exact else math.ceil(prompt * _ABOUT)
        case _:
            return None
    reply = verdict.limit - prompt - _REPLY_SLACK_TOKENS
    return reply if reply >= MIN_USEFUL_REPLY_TOKENS else None
