"""Waits between cuts that free no room.

Rule: the watermark replay. What it does depends on the messages alone: their number, and the cuts made so far.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_PATIENCE: Final = 16
"""Desperate cuts in a row before the next one waits for a sixteenth more messages; after twice as many, for two
sixteenths. Without it, 300 results of 400 bytes without a call took 40 s in a window of 8 000."""


class CutPacing(Struct, frozen=True):
    """When a conversation that goes on may be cut again.

    A cut of messages that must stay reads all of them and frees no room, so that it would be made again with each
    message: after some in a row, the next waits for more and more of them.
    """

    desperate_cuts: int = 0
    """How many of the last cuts, one after the other, were of messages that must stay."""
    resting: range = range(0)
    """The numbers of messages at which nothing is cut."""

    def after_cut(self, messages: int, *, is_desperate: bool) -> CutPacing:
        """A cut was made at this number of messages."""
        in_a_row = self.desperate_cuts + 1 if is_desperate else 0
        wait = messages * (in_a_row // _PATIENCE) // _PATIENCE
        return CutPacing(in_a_row, range(messages + 1, messages + wait))

    def rests_at(self, messages: int) -> bool:
        """Whether nothing is cut at this number of messages.

        >>> pacing = CutPacing(desperate_cuts=15).after_cut(100, is_desperate=True)
        >>> [pacing.rests_at(messages) for messages in (100, 101, 105, 106)]
        [False, True, True, False]
        """
        return messages in self.resting
