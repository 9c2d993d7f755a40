"""The ladder: what is sent first, and what is sent once more when the upstream refuses it. A generator without I/O.

Rule: two sends at most, whatever happens, and the second one is smaller than what was refused, or the original. The
generator yields what to send and is sent what came of it; when it ends, the last answer stands.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from proxy.core.models.profile import Modality
from proxy.core.overflow import Exactness, Scope, Unit, Verdict, VerdictKind

EMERGENCY_SHARE: Final = 0.6
"""Of the true limit: a second refusal must not come from an estimate that is a third off."""
EMERGENCY_REPLY_SHARE: Final = 0.3
"""Of the true limit at the most, for the reply beside such a prompt: a window bounds both together."""
BLIND_SHARE: Final = 0.5
"""Of what was refused, when the upstream does not say what its limit is: windows come in powers of two."""
ALWAYS_SMALLER: Final = 0.9
"""Of what was refused, whatever the upstream says of its limit."""
MIN_USEFUL_REPLY_TOKENS: Final = 256
"""A reply limit is not lowered under this to make a prompt fit: the answer would break off at once."""
_LIMIT_SHARE: Final = 0.95
"""Of the true limit, for a prompt that cannot be brought down to the share of an emergency: the upstream has just
counted it, so what is left for errors is the margin of an estimate."""
_REPLY_SLACK_TOKENS: Final = 16
"""Between a prompt as the upstream counted it and the limit: servers disagree with themselves by a few tokens."""


class Rung(StrEnum):
    """What kind of send it is."""

    FIRST = "first"
    AS_KNOWN = "as_known"
    SHORTER_REPLY = "shorter_reply"
    EMERGENCY = "emergency"
    WITHOUT_MEDIA = "without_media"
    FITTED = "fitted"
    ORIGINAL = "original"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One send."""

    rung: Rung
    reply_tokens: int | None = None
    """The reply limit at the most, in place of the request's own."""
    goal_tokens: int | None = None
    """Of the prompt at the most, by our estimate."""
    most_tokens: int | None = None
    """Of the prompt where what has to stay is more than the goal: as far under the true limit as the margin asks."""
    least_reply_tokens: int | None = None
    """The reply limit beside such a prompt; None: the one that is sent anyway."""
    sure_tokens: int | None = None
    """Of a prompt that surely fits, as the upstream has counted the one before: the plan that the next turn will go on
    from is better than the goal, where it is that small."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the ladder has to know of a request."""

    estimate_tokens: int
    """Of the prompt that is sent first."""
    chars: int
    """Of its text."""
    reply_tokens: int | None
    """The reply limit that is sent first; None when the request has none."""
    edited: bool
    """Whether what is sent first differs from what came."""
    original_could_fit: bool
    """Whether what came is inside the window by our estimate."""
    tried_over_tokens: int | None = None
    """The learned window, where what is sent first is larger to find out whether it still holds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a send."""

    status: int
    verdict: Verdict
    media: frozenset[Modality] = frozenset()
    """Kinds of input in what was sent; told only when media were refused."""
    is_unpaired: bool = False
    """Whether calls and results do not pair up in the history that the client sent; told only of a refusal for that."""
    fitting_tokens: int | None = None
    """Of a prompt, by our estimate, that the upstream reads whole; told only of an answer whose usage proves that this
    one was cut."""


RetryStrategy: TypeAlias = Generator[Attempt, Outcome, None]


def retry_strategy(situation: Situation) -> RetryStrategy:
    """The sends for one request."""
    outcome = yield Attempt(Rung.FIRST)
    verdict = outcome.verdict
    if verdict.is_overflow and _still_holds(verdict, situation.tried_over_tokens):
        yield Attempt(Rung.AS_KNOWN)
    elif verdict.is_overflow or verdict.is_over_rate:
        reply = _fitting_reply(verdict, situation)
        if reply is not None and (situation.reply_tokens is None or reply < situation.reply_tokens):
            yield Attempt(Rung.SHORTER_REPLY, reply_tokens=reply)
        else:
            shorter, goal = emergency_reply(verdict, situation), emergency_goal(verdict, situation)
            yield Attempt(Rung.EMERGENCY, shorter, goal, *_at_the_limit(verdict, situation))
    elif outcome.fitting_tokens is not None:
        yield Attempt(Rung.FITTED, goal_tokens=outcome.fitting_tokens)
    elif verdict.kind is VerdictKind.MEDIA and outcome.media:
        yield Attempt(Rung.WITHOUT_MEDIA, refused=_not_to_be_sent(verdict.refused, outcome.media))
    elif outcome.is_unpaired and outcome.status in _REFUSING_STATUSES:
        yield Attempt(Rung.REPAIRED)
    elif (
        outcome.status in _REFUSING_STATUSES
        and verdict.kind in _REFUSED_FOR_CONTENT
        and situation.edited
        and situation.original_could_fit
    ):
        yield Attempt(Rung.ORIGINAL)
    elif verdict.is_suspect:
        yield Attempt(Rung.EMERGENCY, goal_tokens=emergency_goal(verdict, situation))


_READ_AS_IMAGES: Final = frozenset({Modality.FILE, Modality.VIDEO})
"""What takes no images hardly takes pages and films."""
_REFUSING_STATUSES: Final = frozenset({400, 422})
"""The request was looked at and not taken; after any other answer it may have been."""
_REFUSED_FOR_CONTENT: Final = frozenset(
    {
        VerdictKind.FIELD,
        VerdictKind.COUNT,
        VerdictKind.PAIRING,
        VerdictKind.POLICY,
        VerdictKind.MEDIA,
        VerdictKind.UNKNOWN,
    }
)
"""Refusals that an edit of ours may have brought about; the others would come for the original, too. COUNT: with the
proxy's own tool a list may have one too many; OpenAI takes 128."""


def _still_holds(verdict: Verdict, tried_over_tokens: int | None) -> bool:
    """Whether a refusal of a larger request says nothing against what is known to fit."""
    return tried_over_tokens is not None and (verdict.limit is None or verdict.limit >= tried_over_tokens)


def _not_to_be_sent(refused: frozenset[Modality], sent: frozenset[Modality]) -> frozenset[Modality]:
    """The kinds of input that the second send does without: no third one could do without the next."""
    named = refused & sent or sent
    return named | (_READ_AS_IMAGES & sent) if Modality.VISION in named else named


def emergency_goal(verdict: Verdict, situation: Situation) -> int:
    """Tokens, by our estimate, for the second send."""
    estimate = situation.estimate_tokens
    if verdict.limit is None:
        return int(estimate * BLIND_SHARE)
    if verdict.unit is Unit.CHARS:
        ours_per_theirs = estimate / max(1, situation.chars)
        return int(min(verdict.limit * EMERGENCY_SHARE * ours_per_theirs, estimate * BLIND_SHARE))
    # The upstream counted the same prompt: what it counts more than we do holds for the next one, too.
    ours_per_theirs = min(1.0, estimate / max(1, _counted(verdict, verdict.limit, situation)))
    return int(min(verdict.limit * EMERGENCY_SHARE * ours_per_theirs, estimate * ALWAYS_SMALLER))


def _at_the_limit(verdict: Verdict, situation: Situation) -> tuple[int | None, int | None, int | None]:
    """Tokens, by our estimate, that a prompt may have beside the shortest useful reply, and that reply; then those of
    a prompt that surely fits. None where nobody knows the limit, where no reply has to be lowered, and where nothing is
    sure."""
    if not verdict.is_overflow or verdict.limit is None or verdict.unit is Unit.CHARS:
        return None, None, None
    asked = None if verdict.limit_scope is Scope.INPUT else situation.reply_tokens
    reply = None if asked is None else min(asked, MIN_USEFUL_REPLY_TOKENS)
    # An exact count has the say, whichever way the estimate is off: nothing is refused on an estimate.
    is_exact = verdict.prompt is not None and verdict.exactness is Exactness.EXACT
    ours_per_theirs = situation.estimate_tokens / max(1, _counted(verdict, verdict.limit, situation))
    ours_per_theirs = ours_per_theirs if is_exact else min(1.0, ours_per_theirs)
    usable = _LIMIT_SHARE * ours_per_theirs
    sure = int(min(verdict.limit * usable, situation.estimate_tokens * ALWAYS_SMALLER)) if is_exact else None
    return int((verdict.limit - (reply or 0)) * usable), reply, sure


def emergency_reply(verdict: Verdict, situation: Situation) -> int | None:
    """The reply limit for the second send, when the one that was sent would not fit beside the prompt."""
    asked = situation.reply_tokens
    if asked is None or verdict.limit_scope is Scope.INPUT or verdict.unit is Unit.CHARS:
        return None
    if verdict.limit is not None:
        reply = int(verdict.limit * EMERGENCY_REPLY_SHARE)
    elif verdict.kind is VerdictKind.PROMPT_PLUS_REPLY:
        reply = int(asked * BLIND_SHARE)
    else:
        return None
    reply = max(MIN_USEFUL_REPLY_TOKENS, reply)
    return reply if reply < asked else None


def _counted(verdict: Verdict, limit: int, situation: Situation) -> int:
    """What the upstream counted for the prompt, at the least: it said so, or it would not have refused."""
    if verdict.prompt is not None and verdict.exactness is Exactness.EXACT:
        return verdict.prompt
    if verdict.kind is VerdictKind.PROMPT_PLUS_REPLY:
        return limit - (verdict.reply or situation.reply_tokens or 0)
    if verdict.kind is VerdictKind.RATE:
        return _counted_by_rate(verdict, situation)
    return limit


def _counted_by_rate(verdict: Verdict, situation: Situation) -> int:
    """The prompt's share of what a rate was asked for: the reply limit counts like tokens that were used, where it can
    be in that sum (github.com/zeeyado/koassistant.koplugin/issues/106)."""
    requested, reply = verdict.requested or 0, situation.reply_tokens or 0
    prompt = requested - reply
    return prompt if prompt >= situation.estimate_tokens * BLIND_SHARE else requested


def _fitting_reply(verdict: Verdict, situation: Situation) -> int | None:
    """The reply limit with which the prompt as it was would be taken, when the upstream's own numbers prove one."""
    if verdict.limit is None or verdict.exactness is not Exactness.EXACT or verdict.unit is not Unit.TOKENS:
        return None
    if verdict.kind is VerdictKind.PROMPT_PLUS_REPLY and verdict.prompt is not None:
        prompt = verdict.prompt
    elif verdict.kind is VerdictKind.RATE and situation.reply_tokens is not None:
        prompt = _counted_by_rate(verdict, situation)
    else:
        return None
    reply = verdict.limit - prompt - _REPLY_SLACK_TOKENS
    return reply if reply >= MIN_USEFUL_REPLY_TOKENS else None
