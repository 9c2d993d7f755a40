"""The body of an error, in whatever shape → `ErrorReport`, which the core judges.

Rule: nothing outside this package parses an error; nothing in it decides what an error means.
"""

from proxy.wire.error_bodies.body import holds_nothing
from proxy.wire.error_bodies.judging import judge_answer
from proxy.wire.error_bodies.report import report_of

__all__ = ["holds_nothing", "judge_answer", "report_of"]
