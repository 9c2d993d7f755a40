"""The meaning of an upstream's response: `judge(report)` → `Verdict`.

Rule: one response, one verdict; nothing outside this package reads the words of an upstream's error, and nothing in it
knows how an error is encoded.
"""

from __future__ import annotations

from proxy.core.overflow.report import (
    Counted,
    ErrorCode,
    ErrorReport,
    ErrorText,
    Exactness,
    Figures,
    Place,
    Scope,
    Sent,
    SentText,
    Unit,
    Verdict,
    VerdictKind,
)

__all__ = [
    "Counted",
    "ErrorCode",
    "ErrorReport",
    "ErrorText",
    "Exactness",
    "Figures",
    "Place",
    "Scope",
    "Sent",
    "SentText",
    "Unit",
    "Verdict",
    "VerdictKind",
    "judge",
    "prepare",
]


def judge(report: ErrorReport, sent: Sent | None = None, request: SentText | None = None) -> Verdict:
    """See `judging.judge`."""
    from proxy.core.overflow.judging import judge as judge_words  # noqa: PLC0415 - as `prepare` says

    return judge_words(report, sent, request)


def prepare() -> None:
    """Load the words of refusals: compiling their patterns takes 70 ms, which no start has to wait for, nor the first
    refusal. May be called from any thread."""
    judge(ErrorReport(status=200))
