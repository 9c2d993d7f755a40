"""Very long user and assistant texts of finished turns are cut in the middle, once.

Rule: a compaction step. The last user message and everything after it are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from proxy.core.compaction.budget import Mark
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.exchange import Change
from proxy.core.notices.writing import Notices, is_ours
from proxy.core.text.excerpt import ExcerptLimits
from proxy.core.text.lines import utf8_length
from proxy.core.truncation.truncate_tool_output import shortened_result

LONG_TEXT_CHARS: Final = 30_000
"""Texts up to this length stay: documents that people paste are meant to be read."""
TEXT_HEAD_SHARE: Final = 0.75
"""Share of the kept text that is its beginning: unlike a program, a document says first what it is about."""


class ShortenOldTexts(Struct, frozen=True):
    """Goes through the turns before the last user message, the oldest first."""

    notices: Notices
    over_chars: int = LONG_TEXT_CHARS
    keep_share: float = 0.8
    """Share of a cut text that is kept: its beginning and its end."""

    def __call__(self, window: ContextWindow, _: Mark) -> Iterator[Change]:
        """One change for each text."""
        for entry in window.finished():
            if entry.message.role not in ("user", "assistant") or len(entry.message.raw) <= self.over_chars:
                continue
            for path, text in entry.message.texts():
                if len(text) > self.over_chars and not is_ours(text):
                    limits = ExcerptLimits(
                        len(text), int(utf8_length(text) * self.keep_share), head_share=TEXT_HEAD_SHARE
                    )
                    edit = shortened_result(entry.index, path, text, "", limits, self.notices, Reason.LONG_OLD_TEXT)
                    if edit is not None:
                        yield Change((edit,))
