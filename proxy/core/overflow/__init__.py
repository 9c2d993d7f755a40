"""What an upstream answer means: `judge(status, headers, body)` → `Verdict`.

Rule: one answer, one verdict; nothing outside this package reads the words of an upstream's error.
"""

from proxy.core.overflow.judging import judge
from proxy.core.overflow.verdict import Exactness, Kind, Scope, Unit, Verdict

__all__ = ["Exactness", "Kind", "Scope", "Unit", "Verdict", "judge"]
