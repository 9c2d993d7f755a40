"""When a store is left alone, by all who use it.

Rule: a store that hangs delays one request, not every one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COOLDOWN_SECONDS: Final = 30.0
"""After no response; until then nothing is asked of the store and nothing waits for it."""
NO_ANSWER: Final = "no answer in time"


class Cooldown:
    """Begins when the store does not respond. Any thread may use it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds; it may be set back."""
        self._clock = clock
        self._began = float("-inf")
        self._why: str | None = None
        self._held: str | None = None

    @property
    def why(self) -> str | None:
        """Why the store is left alone now; None: it is asked."""
        if self._held is not None:
            return self._held
        return self._why if 0 <= self._clock() - self._began < COOLDOWN_SECONDS else None

    def begin(self, why: str = NO_ANSWER) -> None:
        """The store did not respond."""
        self._began, self._why = self._clock(), why

    def hold(self, why: str) -> None:
        """Leave it alone until `end`, however long that takes."""
        self._held = why

    def end(self) -> None:
        """It may be asked."""
        self._began, self._held = float("-inf"), None
