"""Decides when a learned window is tried again: a server may have come back with a larger one.

Rule: a trial costs the client only a moment: if it is refused, a request of the size known to fit follows.
"""

from __future__ import annotations

from typing import Final

from proxy.shell.resources.bounded import BoundedMap

EVERY: Final = 32
"""One in this many requests that had to be cut for a learned window is sent larger: a window that grew is found within
a few dozen turns, and three in a hundred of such requests are sent twice."""
LARGER: Final = 1.5
"""Times the learned window, or what was refused without a number, at most: no more upload than needed to prove that it
grew."""
PROVES: Final = 1.1
"""Times what is known to fit, at least: our count of what is sent may be a little over the upstream's."""
_MAX_MODELS: Final = 512
"""Models whose requests are counted; a model's name is foreign input."""


class Trials:
    """Counts, for each model, the requests that had to be cut for a learned window. Workers do not share it: each tries
    for itself."""

    def __init__(self) -> None:
        self._cut: BoundedMap[str, int] = BoundedMap(_MAX_MODELS)

    def is_due(self, model: str) -> bool:
        """Whether this request, which has to be cut, is the one in EVERY that tries."""
        cut = (self._cut.pop(model) or 0) + 1
        if cut >= EVERY:
            return True
        self._cut.put(model, cut)
        return False
