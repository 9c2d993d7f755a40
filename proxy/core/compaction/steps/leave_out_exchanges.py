"""Old exchanges are left out, the oldest first; the last of them is only cut if that is enough.

Rule: a compaction step. Calls and results go together. A later user message goes with the last exchange of its turn;
the first one, the last one and the newest exchange stay. What stays of the first turn is cut, the first user message
down to its share, before anything of a later turn goes. Excerpts are made from the whole message: results first, then
very long texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from proxy.core.compaction.budget import Mark
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.compaction.steps.cut_to_fit import CutToFit, excerpted
from proxy.core.compaction.steps.shorten_old_texts import LONG_TEXT_CHARS, TEXT_HEAD_SHARE
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.exchange import Change
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.writing import Notices
from proxy.core.text.excerpt import ExcerptLimits

_TEXT_LIMITS: Final = ExcerptLimits(max_lines=1_000_000, head_share=TEXT_HEAD_SHARE)
_WORTH_CUTTING: Final = 1.25
"""Results and very long texts that exceed the remaining excess by this factor are cut, not left out."""


class LeaveOutExchanges(Struct, frozen=True):
    """Gives up whole units until the kept messages are down to the goal."""

    notices: Notices
    task_tokens: int
    """What the first user message keeps at the least."""

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each unit."""
        tasks, second_turn = window.tasks(), _start_of_second_turn(window)
        for units in window.removable():
            if tasks and units[0].start >= second_turn:
                yield from self._shorter_first_turn(window, goal, tasks)
                tasks = []
            over = window.over(goal)
            if over is None:
                return
            texts = [entry for unit in units for entry in window.in_unit(unit) if _is_long_text(entry)]
            for entries, reason, limits in (
                (window.results(units[0]), Reason.OLD_RESULT, ExcerptLimits()),
                (texts, Reason.LONG_OLD_TEXT, _TEXT_LIMITS),
            ):
                held = sum(entry.size.tokens for entry in entries)
                if held > over.tokens * _WORTH_CUTTING and not over.chars and not over.bytes:
                    yield from excerpted(entries, held - over.tokens, self.notices, reason, limits)
                    if window.over(goal) is None:
                        return
            yield Change(units=units)
        if tasks:
            yield from self._shorter_first_turn(window, goal, tasks)

    def _shorter_first_turn(self, window: ContextWindow, goal: Mark, tasks: list[TrackedMessage]) -> Iterator[Change]:
        """Cuts what stays of the first turn: the results that separate two user messages, and what users asked before
        their last message, as far as needed, but never below its share."""
        yield from CutToFit(self.notices, ContextWindow.separating_results, Reason.OLD_RESULT)(window, goal)
        for entry in tasks:
            over = window.over(goal)
            if over is None:
                return
            tokens = entry.size.tokens - (over.tokens or entry.size.tokens)
            least = max(self.task_tokens, tokens)
            yield from excerpted([entry], least, self.notices, Reason.LONG_OLD_TEXT, _TEXT_LIMITS)


def _start_of_second_turn(window: ContextWindow) -> int:
    users = [unit.start for unit in window.units if unit.role == "user"]
    return users[1] if len(users) > 1 else len(window.entries)


def _is_long_text(entry: TrackedMessage) -> bool:
    """Whether a message is as long as a file: aider, for example, puts all files of a project into one message."""
    return entry.whole.role in ("user", "assistant") and entry.whole_size.chars > LONG_TEXT_CHARS
