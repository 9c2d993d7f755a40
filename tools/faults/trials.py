"""The parts of a trial: a promise, what is tried against it, how often, and what was lost.

Rule: a trial that tried nothing is a failure of the program, and a loss names what was lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass
class Tried:
    """One line of the page."""

    promise: str
    what: str
    times: int = 0
    lost: list[str] = field(default_factory=list)

    def note(self, what: str, *, held: bool) -> None:
        """Count one more; `what` describes it, in case it did not hold."""
        self.times += 1
        if not held:
            self.lost.append(what)


@dataclass(frozen=True)
class Extent:
    """How much is tried."""

    every: int = 1
    """Try one in this many positions of a stream."""
    kills: int = 50
    idle_streams: int = 1_000
    large_at_once: int = 100
    waiting: int = 500
    late_starts: int = 5
    """Troubles of a bucket during which a replica starts."""
    cloud_troubles: int = 8
    """Troubles of a bucket of another cloud than S3's."""
    artifacts: int = 300_000
    """In the folder of the store."""
    idle_connections: int = 10_000
    streams: int = 2_000
    clocks: int = 4
    """Clocks that are wrong in another way."""
    patience: float = 1.0
    """Times the limits of how long something may take."""

    @classmethod
    def short(cls) -> Extent:
        """The extent for `make test`."""
        return cls(
            every=29,
            kills=3,
            idle_streams=200,
            large_at_once=12,
            late_starts=2,
            cloud_troubles=3,
            waiting=10,
            clocks=1,
            artifacts=2_000,
            idle_connections=200,
            streams=50,
            patience=10.0,  # tests run on machines that may be slow and busy; a whole run judges times
        )


Trial: TypeAlias = Callable[[Extent], Awaitable[list[Tried]]]
