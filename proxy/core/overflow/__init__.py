"""The meaning of an upstream's response: `judge(report)` → `Verdict`.

Rule: one response, one verdict; nothing outside this package reads the words of an upstream's error, and nothing in it
knows how an error is encoded.
"""

from __future__ import annotations

from proxy.core.overflow.attempts import FIRST, Attempt, AttemptKind, Cure, Outcome, Situation, Terms
from proxy.core.overflow.cures import CURES, MAX_SENDS, Row, best, next_cures, still_stands
from proxy.core.overflow.goals import ALWAYS_SMALLER, ESTIMATED_SHARE, room_in_rate
from proxy.core.overflow.lessons import BYTES, CONTENT, HISTORY, SIZE, Lesson, lessons_of
from proxy.core.overflow.proofs import images_in, may_be_of_a_cut, window_of_a_cut
from proxy.core.overflow.refusal import (
    OversizedPlan,
    empty_twice,
    fixed_tokens,
    lower_reply_helps,
    refused_twice,
    sizes_of,
    unkept,
)
from proxy.core.overflow.report import (
    FAULTS,
    LEAST_WINDOW_TOKENS,
    REPAIRED,
    ROLES_IN_TURN,
    Counted,
    ErrorCode,
    ErrorReport,
    ErrorText,
    Exactness,
    Figures,
    Holds,
    Place,
    Scope,
    Sent,
    Unit,
    Verdict,
    VerdictKind,
    as_words,
    means_cut,
)

__all__ = [
    "ALWAYS_SMALLER",
    "BYTES",
    "CONTENT",
    "CURES",
    "ESTIMATED_SHARE",
    "FAULTS",
    "FIRST",
    "HISTORY",
    "LEAST_WINDOW_TOKENS",
    "MAX_SENDS",
    "REPAIRED",
    "ROLES_IN_TURN",
    "SIZE",
    "Attempt",
    "AttemptKind",
    "Counted",
    "Cure",
    "ErrorCode",
    "ErrorReport",
    "ErrorText",
    "Exactness",
    "Figures",
    "Holds",
    "Lesson",
    "Outcome",
    "OversizedPlan",
    "Place",
    "Row",
    "Scope",
    "Sent",
    "Situation",
    "Terms",
    "Unit",
    "Verdict",
    "VerdictKind",
    "as_words",
    "best",
    "empty_twice",
    "fixed_tokens",
    "images_in",
    "judge",
    "lessons_of",
    "lower_reply_helps",
    "may_be_of_a_cut",
    "means_cut",
    "next_cures",
    "prepare",
    "refused_twice",
    "room_in_rate",
    "sizes_of",
    "still_stands",
    "unkept",
    "window_of_a_cut",
]


def judge(report: ErrorReport, sent: Sent | None = None, request: Holds | None = None) -> Verdict:
    """See `judging.judge`."""
    from proxy.core.overflow.judging import judge as judge_words  # noqa: PLC0415 - as `prepare` says

    return judge_words(report, sent, request)


def prepare() -> None:
    """Load the words of refusals: compiling their patterns takes 70 ms, which no start has to wait for, nor the first
    refusal. May be called from any thread."""
    judge(ErrorReport(status=200))
