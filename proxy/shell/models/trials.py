"""When a window that was learned is tried again: a server may have come back with a larger one.

Rule: what is tried costs the client nothing but a moment: a trial that is refused is followed by what is known to fit.
"""

from __future__ import annotations

from typing import Final

from proxy.shell.resources.bounded import BoundedMap

EVERY: Final = 32
"""Requests that had to be cut for a learned window, for each that goes up larger: a window that grew is found within a
few dozen turns, and three in a hundred of such requests go up twice."""
LARGER: Final = 1.5
"""Times the learned window, at the most: no more upload than it takes to prove that it grew."""
PROVES: Final = 1.1
"""Times the learned window, at the least: our count of what is sent may be a little over the upstream's."""
_MAX_MODELS: Final = 512
"""Whose requests are counted; a model's name is foreign input."""


class Trials:
    """Counts, for each model, the requests that had to be cut for a learned window. Not shared by workers: each tries
    for itself."""

    def __init__(self) -> None:
        self._cut: BoundedMap[str, int] = BoundedMap(_MAX_MODELS)

    def is_due(self, model: str) -> bool:
        """Whether this request, which has to be cut, is the one of EVERY to try with."""
        cut = (self._cut.pop(model) or 0) + 1
        if cut >= EVERY:
            return True
        self._cut.put(model, cut)
        return False
