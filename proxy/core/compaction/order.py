"""The order in which things are given up for room, defined only here.

Rule: what an agent can do without goes first, its task goes last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from proxy.core.compaction.budget import Budget
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.compaction.plan import CompactionStep, task_tokens
from proxy.core.compaction.steps.cut_to_fit import TEXT_LIMITS, CutArguments, CutToFit
from proxy.core.compaction.steps.describe_media import DescribeImages, DescribeOldMedia, Showing
from proxy.core.compaction.steps.drop_old_reasoning import DropOldReasoning
from proxy.core.compaction.steps.leave_out_exchanges import LeaveOutExchanges
from proxy.core.compaction.steps.shorten_old_texts import ShortenOldTexts
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.writing import Notices
from proxy.core.tokens.counters import Counter

MAY_BE_OVER: Final = 1.5
"""Factor by which an estimate may exceed the true count: for English prose, one was 1.47 times the count by a
vocabulary that knows it well. Text that people wrote is not cut because of such an estimate, nor is a tool's newest
result cut to nothing: the upstream is asked first."""


def compaction_steps(
    notices: Notices, budget: Budget, showing: Showing, counter: Counter
) -> tuple[CompactionStep, ...]:
    """Tried in order until the low mark is reached."""
    return (
        DescribeOldMedia(showing, notices, counter),
        DropOldReasoning(notices),
        ShortenOldTexts(notices),
        LeaveOutExchanges(notices, task_tokens(budget)),
    )


def last_resorts(
    notices: Notices,
    budget: Budget,
    showing: Showing,
    counter: Counter,
    *,
    was_refused: bool = False,
) -> tuple[CompactionStep, ...]:
    """Tried in order before a request is refused: only system texts and tools are never cut. `was_refused`: whether the
    upstream has refused a larger request."""
    times = MAY_BE_OVER if budget.count_may_be_wrong and not was_refused else 1.0

    def texts(of: Callable[[ContextWindow], Sequence[TrackedMessage]], least_tokens: int = 0) -> CutToFit:
        return CutToFit(notices, of, Reason.NEWEST_TEXT, TEXT_LIMITS, least_tokens, times)

    least = task_tokens(budget)
    results = CutToFit(notices, ContextWindow.newest_results, Reason.NEWEST_RESULT)
    some_of_them = replace(results, least_tokens=least)
    return (
        CutToFit(notices, ContextWindow.separating_results, Reason.OLD_RESULT),
        DropOldReasoning(notices, ContextWindow.separating_thoughts, keep_chars=0),
        CutToFit(notices, ContextWindow.separating_words, Reason.LONG_OLD_TEXT, TEXT_LIMITS),
        CutArguments(notices, ContextWindow.separating_words),
        some_of_them,
        DescribeImages(showing, notices, counter),
        some_of_them,  # messages just prepared anew are whole again
        texts(ContextWindow.newest_words),
        CutArguments(notices, ContextWindow.newest_words),
        texts(ContextWindow.tasks, least),
        texts(ContextWindow.last_request, budget.usable_tokens // 2),  # or a model reads the newest result in vain
        replace(results, times=times),
        texts(ContextWindow.last_request),
        texts(ContextWindow.tasks),
    )
