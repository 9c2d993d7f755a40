"""What an upstream answer means: `judge(status, headers, body)` → `Verdict`.

Rule: one answer, one verdict; nothing outside this package reads the words of an upstream's error.
"""

from proxy.core.overflow.echo import may_be_echoed
from proxy.core.overflow.judging import judge
from proxy.core.overflow.unwrap import holds_nothing
from proxy.core.overflow.verdict import Exactness, Scope, Unit, Verdict, VerdictKind

__all__ = ["Exactness", "Scope", "Unit", "Verdict", "VerdictKind", "holds_nothing", "judge", "may_be_echoed"]
