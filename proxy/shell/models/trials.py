"""Decides when a learned window is tried again: a server may have come back with a larger one.

Rule: a trial costs the client only a moment: if it is refused, a request of the size known to fit follows.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from proxy.shell.resources.bounded import BoundedMap

EVERY: Final = 32
"""At first, one in this many requests that had to be cut for a learned window is sent larger: a window that grew is
found within a few dozen turns, and three in a hundred of such requests are sent twice."""
LARGER: Final = 1.5
"""Times the learned window, or what was refused without a number, at most: no more upload than needed to prove that it
grew."""
PROVES: Final = 1.1
"""Times what is known to fit, at least: our count of what is sent may be a little over the upstream's."""
SELDOM: Final = 1024
"""The most requests between two trials of a window that its server confirms in figures each time: each is an upload for
nothing."""
_MAX_WINDOWS: Final = 512
"""Windows whose requests are counted; a model's name is foreign input."""

Window: TypeAlias = tuple[str, str, int]
"""A model, the tenant, and the size of the window: what is learned anew is tried anew. No model: a limit in bytes."""


class Trials:
    """Counts, for each window, the requests that had to be cut for it. Workers do not share it: each tries for
    itself."""

    def __init__(self) -> None:
        self._cut: BoundedMap[Window, tuple[int, int]] = BoundedMap(_MAX_WINDOWS)
        """The requests since the last trial, and how many there are between two."""

    def is_due(self, window: Window) -> bool:
        """Whether this request, which has to be cut, is one that tries."""
        cut, every = self._cut.pop(window) or (0, EVERY)
        is_due = cut + 1 >= every
        self._cut.put(window, (0 if is_due else cut + 1, every))
        return is_due

    def note_confirmed(self, window: Window) -> None:
        """A trial was refused by the window's own figures: the next comes after twice as many requests."""
        cut, every = self._cut.pop(window) or (0, EVERY)
        self._cut.put(window, (cut, min(SELDOM, 2 * every)))
