"""How long a store that did not respond is left alone; writers, readers and look-ups each go by what they have met.

Rule: a store that hangs delays one request, not every one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COOLDOWN_SECONDS: Final = 30.0
"""After no response; until then nothing is asked of the store and nothing waits for it."""


class Cooldown:
    """Begins when the store does not respond."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds; it may be set back."""
        self._clock = clock
        self._began = float("-inf")

    @property
    def is_on(self) -> bool:
        """Whether the store is left alone now."""
        return 0 <= self._clock() - self._began < COOLDOWN_SECONDS

    def begin(self) -> None:
        """The store did not respond."""
        self._began = self._clock()
