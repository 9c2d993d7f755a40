"""Old exchanges are left out, the oldest first; the last of them is only cut when that is enough.

Rule: a relief. Calls and results go together. A user message goes with the last of its turn; the last one and the
newest exchange stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.budget import Budget
from proxy.core.edits import Reason
from proxy.core.kept import Change, Kept
from proxy.core.notices import Notices
from proxy.core.steps.excerpt_results import excerpted_results

_WORTH_CUTTING: Final = 1.25
"""Results this much larger than what is still over are cut and not left out."""


@dataclass(frozen=True, slots=True)
class LeaveOutExchanges:
    """Gives up whole units until what is kept is down to the goal."""

    notices: Notices
    budget: Budget
    goal_share: float
    """Of the room: where the cut stops."""

    def __call__(self, kept: Kept) -> Iterator[Change]:
        """One change for each unit."""
        for units in kept.removable():
            over = kept.over(self.budget, self.goal_share)
            if over is None:
                return
            results = kept.results(units[0])
            held = sum(entry.size.tokens for entry in results)
            if held > over.tokens * _WORTH_CUTTING and not over.chars and not over.bytes:
                yield from excerpted_results(results, held - over.tokens, self.notices, Reason.OLD_RESULT)
                if kept.over(self.budget, self.goal_share) is None:
                    return
            yield Change(units=units)
