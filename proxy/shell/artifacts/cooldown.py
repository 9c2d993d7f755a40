"""How long a store that gave no answer is left alone: who keeps, who reads and who looks up, each by what it has met.

Rule: a store that hangs holds up one request and not every one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COOLDOWN_SECONDS: Final = 30.0
"""After no answer; what comes up until then is not asked of the store and waits for nothing."""


class Cooldown:
    """After the last time that the store gave no answer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds; it may be set back."""
        self._clock = clock
        self._began = float("-inf")

    @property
    def is_on(self) -> bool:
        """Whether the store is left alone now."""
        return 0 <= self._clock() - self._began < COOLDOWN_SECONDS

    def begin(self) -> None:
        """The store gave no answer."""
        self._began = self._clock()
