"""Descriptions in place of media that a request has no room for; the content is kept whole.

Rule: media cost bytes by the megabyte and tokens by the hundred, so where bytes are short, the oldest go before any
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from proxy.core.compaction.budget import Mark
from proxy.core.compaction.context_window import ContextWindow
from proxy.core.conversation.exchange import Change
from proxy.core.conversation.message import TOOL_ROLES
from proxy.core.conversation.tracked_message import LocalStep, TrackedMessage
from proxy.core.notices.writing import Notices
from proxy.core.tokens.counters import Counter

Showing: TypeAlias = Callable[[int], Sequence[LocalStep]]
"""The local steps for a message that keeps a given number of images, its last ones; none at all with 0."""


class DescribeOldMedia(Struct, frozen=True):
    """Where bytes are short: media in tool results are described, the oldest first, but for the newest exchange."""

    showing: Showing
    notices: Notices
    counter: Counter

    def __call__(self, window: ContextWindow, goal: Mark) -> Iterator[Change]:
        """One change for each message."""
        for entry in window.before(window.units[-1].start):
            excess = window.over(goal)
            if excess is None or not excess.bytes:
                return
            if _holds_media(entry):
                steps = self.showing(0)
                yield Change(redone=entry.prepared_again(steps, self.notices, self.counter))


def _holds_media(entry: TrackedMessage) -> bool:
    """Whether a tool result brought media, wherever they are sent."""
    return entry.original.role in TOOL_ROLES and bool(entry.moved or entry.message.media())


class DescribeImages(Struct, frozen=True):
    """A last resort: images in messages that must stay are described, the oldest first, and no more than needed."""

    showing: Showing
    notices: Notices
    counter: Counter

    def __call__(self, window: ContextWindow, _: Mark) -> Iterator[Change]:
        """One change for each message and each number of images that stay: half as many each time."""
        for entry in window.staying():
            shown = entry.images
            while shown:
                shown //= 2
                steps = self.showing(shown)
                yield Change(redone=entry.prepared_again(steps, self.notices, self.counter))
