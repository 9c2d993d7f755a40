"""Retry strategy: the next send after a refusal, as a pure function of it.

Rule: each refusal is cured for its reason, and no reason twice. A refusal of what was cured that names another reason
proves the cure, and one more send has both: three sends at most. Each is smaller than the one before, or asks for less.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, structs

from proxy.core.models import Modality, Search, size_after_refusal
from proxy.core.notices import NOWHERE, ArtifactAccess
from proxy.core.overflow import Exactness, Scope, Unit, Verdict, VerdictKind

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
MIN_USEFUL_REPLY_TOKENS: Final = 256
"""A reply limit is not lowered below this to make a prompt fit: the reply would break off at once."""
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


_TOO_LARGE: Final = 413
"""Anthropic's `request_too_large` (32 MB), nginx' and express' `Request Entity Too Large`, GitHub Copilot's: a proxy
before the API counts bytes and states no limit in any unit."""


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


_CURED: Final = {
    AttemptKind.REPEATED: VerdictKind.EMPTY,
    AttemptKind.FEWER_BYTES: VerdictKind.BYTES,
    AttemptKind.WITHOUT_MEDIA: VerdictKind.MEDIA,
    AttemptKind.ORIGINAL: VerdictKind.UNKNOWN,
    AttemptKind.WITHOUT_TOOL: VerdictKind.UNKNOWN,
}
"""The reasons that sends answer; PROMPT for the others."""


class Terms(NamedTuple):
    """Inputs of a plan besides the request and the knowledge about its model."""

    access: ArtifactAccess = NOWHERE
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
    without: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text, after a refusal."""
    repairs: Verdict | None = None
    """The refusal whose cause is taken out of the history: PAIRING or SEAL."""

    @property
    def is_for_one_send(self) -> bool:
        """Whether no later plan continues from one on these terms."""
        return self.goal_tokens is not None or self.goal_bytes is not None


class Attempt(Struct, frozen=True):
    """One send."""

    kind: AttemptKind
    terms: Terms | None = None
    """The terms of its plan; None keeps the plan."""
    reply_tokens: int | None = None
    """The maximum reply limit, instead of the request's own."""
    goal_tokens: int | None = None
    """The maximum size of the prompt, by our estimate: a larger one gives way to the next attempt, if there is one."""
    is_sure: bool = False
    """Whether a prompt of that size surely fits, by the upstream's count of the one before: then the room that the plan
    leaves for the reply is better than `reply_tokens`."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text."""

    @property
    def cures(self) -> VerdictKind:
        """The reason that it answers; PROMPT for any length in tokens, UNKNOWN for what an edit of ours may have
        caused."""
        if self.kind is AttemptKind.REPAIRED and self.terms is not None and self.terms.repairs is not None:
            return self.terms.repairs.kind
        return _CURED.get(self.kind, VerdictKind.PROMPT)


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
    passed_bytes: int = 0
    """The largest body that is known to be accepted, if that is smaller; 0 if none is."""
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
        return self.status == _TOO_LARGE and self.verdict.kind in kinds and not self.verdict.is_suspect

    @property
    def reason(self) -> VerdictKind | None:
        """The reason that a refusal names, if there is a cure for it; UNKNOWN for the proxy's own tool."""
        verdict = self.verdict
        if verdict.is_overflow or verdict.is_over_rate:
            return VerdictKind.PROMPT
        if self.is_over_bytes and verdict.kind is VerdictKind.BYTES:
            return VerdictKind.BYTES
        if verdict.kind is VerdictKind.MEDIA and self.media:
            return VerdictKind.MEDIA
        if self.status not in _REFUSING_STATUSES:
            return None
        if self.names_our_tool and verdict.kind in _ABOUT_A_TOOL:
            return VerdictKind.UNKNOWN
        return verdict.kind if self.is_repairable else None

    def proves(self, cures: Sequence[Attempt]) -> bool:
        """Whether the upstream, after these cures, names another reason: then it has none left of theirs. Each kind of
        media is a reason of its own."""
        return self.reason is not None and not any(self._is_cured_by(cure) for cure in cures)

    def _is_cured_by(self, cure: Attempt) -> bool:
        is_other_media = cure.refused and self.verdict.refused and not cure.refused & self.verdict.refused
        return self.reason is cure.cures and not is_other_media

    @property
    def is_final(self) -> bool:
        """Whether nothing follows it in any situation: the upstream has accepted the prompt, and cut nothing that we
        know of."""
        accepted = self.status < 400 and self.verdict.kind is VerdictKind.ACCEPTED
        return accepted and self.fitting_tokens is None and not self.verdict.is_suspect


def next_attempts(outcome: Outcome, situation: Situation, cures: Sequence[Attempt] = ()) -> Sequence[Attempt]:
    """Candidates for the next send: the first attempt whose plan keeps to its goal is sent, or else the last one.
    Empty: the response is final. `cures`: the attempts after the first send."""
    if len(cures) + 2 > MAX_SENDS:
        return ()
    kinds = {cure.kind for cure in cures}
    found = _cure(outcome, situation, may_be_accident=AttemptKind.REPEATED not in kinds)
    if not found or kinds <= {AttemptKind.REPEATED} or found[0].kind is AttemptKind.REPEATED:
        return found
    cure = found[0]
    if cure.kind is AttemptKind.ORIGINAL and kinds == {AttemptKind.WITHOUT_TOOL}:
        return found  # it was not the tool: another edit may be the cause
    if AttemptKind.ORIGINAL in (cure.kind, cures[-1].kind):
        return ()
    names_a_member = outcome.verdict.kind in (VerdictKind.FIELD, VerdictKind.COUNT)
    if not outcome.proves(cures) and not (cure.kind is AttemptKind.WITHOUT_TOOL and names_a_member):
        return ()
    if cure.cures in [earlier.cures for earlier in cures] and not cure.refused:
        return ()
    return [structs.replace(one, reply_tokens=_least_reply(*cures, one)) for one in found]


def _least_reply(*attempts: Attempt) -> int | None:
    return min([one.reply_tokens for one in attempts if one.reply_tokens is not None], default=None)


def _cure(outcome: Outcome, situation: Situation, *, may_be_accident: bool) -> Sequence[Attempt]:
    """Attempts that may be accepted after this refusal. `may_be_accident`: whether silence may be one of the
    connection, as the same bytes have not been met with it twice."""
    verdict, terms = outcome.verdict, situation.terms
    if verdict.is_silent and verdict.is_suspect and may_be_accident:
        return [Attempt(AttemptKind.REPEATED)]
    if verdict.is_overflow or verdict.is_over_rate:
        reply = _fitting_reply(verdict, situation)
        if reply is not None and (situation.reply_tokens is None or reply < situation.reply_tokens):
            return [Attempt(AttemptKind.SHORTER_REPLY, reply_tokens=reply)]
        return _smaller(verdict, situation)
    if outcome.is_over_bytes and (most_bytes := _goal_bytes(verdict, situation)) is not None:
        return [Attempt(AttemptKind.FEWER_BYTES, terms._replace(goal_bytes=most_bytes))]
    if outcome.fitting_tokens is not None:
        goal = outcome.fitting_tokens
        kept_to = terms._replace(goal_tokens=goal, most_tokens=None)
        # Settings that state another window take precedence over what was learned.
        return [Attempt(AttemptKind.FITTED, on, goal_tokens=goal) for on in (terms, kept_to)]
    match outcome.reason:
        case VerdictKind.MEDIA:
            refused = _not_to_be_sent(verdict.refused, outcome.media)
            return [
                Attempt(AttemptKind.WITHOUT_MEDIA, terms._replace(without=terms.without | refused), refused=refused)
            ]
        case VerdictKind.PAIRING | VerdictKind.SEAL:
            return [Attempt(AttemptKind.REPAIRED, terms._replace(repairs=verdict))]
    if situation.edited and verdict.misses_json and situation.original_could_fit:
        return [Attempt(AttemptKind.ORIGINAL)]  # whatever the status: what was cut may be what does not parse
    if outcome.status in _REFUSING_STATUSES and situation.edited:
        if (
            situation.has_our_tool
            and verdict.kind in _ABOUT_A_TOOL
            and (situation.original_could_fit or not verdict.is_suspect)
        ):
            access = structs.replace(terms.access, tool=False)
            return [Attempt(AttemptKind.WITHOUT_TOOL, terms._replace(tools=None, access=access))]
        if verdict.kind in _REFUSED_FOR_CONTENT and situation.original_could_fit:
            return [Attempt(AttemptKind.ORIGINAL)]
    return _smaller(verdict, situation) if verdict.is_suspect else ()


def _smaller(verdict: Verdict, situation: Situation) -> Sequence[Attempt]:
    """Shorter prompts. First the one that the next turn will continue from, if that surely fits or is as small as a
    search requires, so that a prompt cache is lost once, not twice; then one cut down to its goal, or as far below the
    true limit as possible, with the shortest useful reply."""
    goal, reply, terms = emergency_goal(verdict, situation), emergency_reply(verdict, situation), situation.terms
    most, least_reply, sure = _at_the_limit(verdict, situation)
    kept_to = terms._replace(goal_tokens=goal, most_tokens=most)
    attempt = Attempt(AttemptKind.EMERGENCY, kept_to, reply, goal)
    found = [attempt]
    if most is not None:
        found.append(structs.replace(attempt, goal_tokens=most, reply_tokens=least_reply or reply))
    if situation.holds_a_page:
        return found
    if verdict.names_no_limit and situation.search is not None:
        found.insert(0, structs.replace(attempt, terms=terms._replace(supposed=situation.search)))
    if sure is not None:
        found.insert(0, structs.replace(attempt, terms=terms, goal_tokens=sure, is_sure=True))
    return found


def _blind(situation: Situation) -> int:
    """The next size for an upstream that states no limit and of which nothing is known to fit."""
    return size_after_refusal(situation.estimate_tokens, fixed=situation.fixed_tokens)


def _goal_bytes(verdict: Verdict, situation: Situation) -> int | None:
    """Bytes for the next send: under the limit that is stated, or half, or what was accepted before if that is less;
    None if the body is under every known limit."""
    if verdict.limit_bytes is not None and verdict.limit_bytes < situation.bytes:
        return int(min(verdict.limit_bytes * _LIMIT_SHARE, situation.bytes * ALWAYS_SMALLER))
    if situation.bytes < LEAST_LIMIT_BYTES:
        return None
    fixed = min(situation.fixed_tokens, situation.estimate_tokens)
    half = fixed + int((situation.estimate_tokens - fixed) * BLIND_SHARE)
    goal = situation.bytes * half // max(1, situation.estimate_tokens)
    return min(goal, situation.passed_bytes or goal)


_READ_AS_IMAGES: Final = frozenset({Modality.FILE, Modality.VIDEO})
"""A model that accepts no images hardly accepts pages and videos."""
_REFUSING_STATUSES: Final = frozenset({400, 422})
"""The request was examined and rejected; after any other response it may have been accepted."""
_REFUSED_FOR_CONTENT: Final = frozenset(
    {
        VerdictKind.FIELD,
        VerdictKind.COUNT,
        VerdictKind.PAIRING,
        VerdictKind.SEAL,
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
        goal = _blind(situation) if situation.guess_tokens is None else situation.guess_tokens
        if verdict.excess is None or verdict.unit is not Unit.TOKENS or not situation.count_may_be_wrong:
            return goal
        fixed = min(goal, situation.fixed_tokens)
        return min(goal, max(estimate - int(verdict.excess * _MAY_BE_OVER), (fixed + goal) // 2))
    if verdict.unit is Unit.CHARS:
        ours_per_theirs = estimate / max(1, situation.chars)
        return int(min(verdict.limit * EMERGENCY_SHARE * ours_per_theirs, estimate * BLIND_SHARE))
    # The upstream counted the same prompt, so its excess over our count applies to the next one, too.
    ours_per_theirs = min(1.0, estimate / max(1, _counted(verdict, verdict.limit, situation)))
    return int(min(verdict.limit * EMERGENCY_SHARE * ours_per_theirs, estimate * ALWAYS_SMALLER))


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
    """The upstream's minimum count for the prompt: it stated the count, or would not have refused otherwise. The most
    if the count may include the reply: that cuts more, which leaves room for the reply."""
    if verdict.prompt is not None and verdict.exactness is Exactness.EXACT:
        return verdict.prompt
    if verdict.kind is VerdictKind.PROMPT_PLUS_REPLY:
        return limit - (verdict.reply or situation.reply_tokens or 0)
    if verdict.kind is VerdictKind.RATE:
        return _most_by_rate(verdict, situation)
    return max(limit, verdict.requested or 0) if verdict.exactness is Exactness.EXACT else limit


def _most_by_rate(verdict: Verdict, situation: Situation) -> int:
    """The most that the prompt may be of the tokens that a rate counted: all of them if the prompt alone may be as many
    and nothing has confirmed its estimate. That cuts more, which leaves room for the reply if it was counted."""
    requested, estimate = verdict.requested or 0, situation.estimate_tokens
    if situation.count_may_be_wrong and requested <= estimate * _UNCONFIRMED_FACTOR:
        return requested
    return _counted_by_rate(verdict, estimate, situation.reply_tokens)


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


def _fitting_reply(verdict: Verdict, situation: Situation) -> int | None:
    """The reply limit with which the unchanged prompt would be accepted, if the upstream's own numbers prove one."""
    if verdict.limit is None or verdict.exactness is not Exactness.EXACT or verdict.unit is not Unit.TOKENS:
        return None
    if verdict.kind is VerdictKind.PROMPT_PLUS_REPLY and verdict.prompt is not None:
        prompt = verdict.prompt
    elif verdict.kind is VerdictKind.RATE and situation.reply_tokens is not None:
        prompt = _most_by_rate(verdict, situation)
    else:
        return None
    reply = verdict.limit - prompt - _REPLY_SLACK_TOKENS
    return reply if reply >= MIN_USEFUL_REPLY_TOKENS else None
