"""The meaning of an upstream's response: `judge(report)` → `Verdict`.

Rule: one response, one verdict; nothing outside this package reads the words of an upstream's error, and nothing in it
knows how an error is encoded.
"""

from proxy.core.overflow.echo import SentText
from proxy.core.overflow.judging import judge
from proxy.core.overflow.plausibility import Sent
from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText, Place, Stated
from proxy.core.overflow.verdict import Exactness, Scope, Unit, Verdict, VerdictKind

__all__ = [
    "ErrorCode",
    "ErrorReport",
    "ErrorText",
    "Exactness",
    "Place",
    "Scope",
    "Sent",
    "SentText",
    "Stated",
    "Unit",
    "Verdict",
    "VerdictKind",
    "judge",
]
