"""How large the next send of a refused request may be.

Rule: it is always smaller than what was refused, and as large as the numbers of the refusal allow. An exact count wins
over our estimate, whichever way that is off.
"""

from __future__ import annotations

import math
from typing import Final

from proxy.core.models import LimitName, size_after_refusal
from proxy.core.overflow.attempts import Situation
from proxy.core.overflow.report import MIN_USEFUL_REPLY_TOKENS, Exactness, Scope, Unit, Verdict, VerdictKind

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
_ABOUT: Final = 1.1
"""An upstream's count that it calls one of about may be less than the true one by this factor."""
LEAST_LIMIT_BYTES: Final = 65_536
"""No server limits bodies to less unless it says so: express takes 100 KB by default, axum 2 MB, nginx 1 MB."""


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


def at_the_limit(verdict: Verdict, situation: Situation) -> tuple[int | None, int | None, int | None]:
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


def fitting_reply(verdict: Verdict, situation: Situation) -> int | None:
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


def goal_bytes(verdict: Verdict, situation: Situation) -> int | None:
    """Bytes for the next send: under the limit that is stated, or half; None if the body is under every known limit."""
    if verdict.named is LimitName.BODY and 0 < verdict.named_limit < situation.bytes:
        return int(min(verdict.named_limit * _LIMIT_SHARE, situation.bytes * ALWAYS_SMALLER))
    if situation.bytes < LEAST_LIMIT_BYTES:
        return None
    fixed = min(situation.fixed_tokens, situation.estimate_tokens)
    half = fixed + int((situation.estimate_tokens - fixed) * BLIND_SHARE)
    return situation.bytes * half // max(1, situation.estimate_tokens)
