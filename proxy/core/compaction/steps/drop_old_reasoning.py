"""Long reasoning of finished turns is left out; a line in its place says where it is kept.

Rule: a compaction step. Reasoning of the current turn stays: DeepSeek and Kimi refuse tool turns without it.
https://api-docs.deepseek.com/guides/thinking_mode
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Mark
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.exchange import Change
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.notices.writing import Notices


class DropOldReasoning(Struct, frozen=True):
    """Goes through the turns before the last user message, the oldest first."""

    notices: Notices
    messages: Callable[[ContextWindow], Iterable[TrackedMessage]] = ContextWindow.finished
    """Which messages."""
    keep_chars: int = 2_000
    """Shorter reasoning stays: the saving would not be worth a changed prefix."""

    def __call__(self, window: ContextWindow, _: Mark) -> Iterator[Change]:
        """One change for each piece of reasoning."""
        for entry in self.messages(window):
            if entry.message.reasoning_bytes < self.keep_chars:
                continue  # JSON is never shorter than its text
            for found in entry.original.reasoning():
                length = len(found.raw if found.text is None else found.text)
                if length > self.keep_chars:
                    whole = Artifact(found.raw, "reasoning", "json")
                    note = self.notices.reasoning(whole, length)
                    edit = Edit(entry.index, found.at, note, Reason.OLD_REASONING, whole, "", length, len(note))
                    yield Change((edit,))
