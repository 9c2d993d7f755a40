"""`make fuzz` looks for cases that break a rule until the time is up, and puts what it finds into the corpus."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fuzz.targets import TARGETS, Target
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from proxy.config import LogSettings
from proxy.shell.resources import configure_logging

DATABASE: Final = Path(__file__).parents[2] / ".hypothesis" / "fuzz"
"""Earlier failures run first."""
_AT_A_TIME: Final = 20
"""Cases of one target, before it is the next one's turn: on a busy machine, too, all have theirs within minutes."""


class Hunt:
    """The search of one target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tried = 0
        self.found: Path | None = None
        self._last: bytes | None = None

    def look(self, until: float) -> None:
        """Try cases; the smallest one that breaks a rule goes into the corpus. Nothing more is looked for then, as it
        would be found again and again until it is cured."""
        try:
            self._looking(until)()
        except Exception:  # whatever a case makes of it is what is looked for
            if self._last is None:
                raise
            self.found = self.target.keep(self._last)
            traceback.print_exc()
            print(f"{self.target.name}: {self.found}", flush=True)

    def _looking(self, until: float) -> Callable[[], None]:
        @settings(
            max_examples=_AT_A_TIME,
            deadline=None,
            derandomize=False,
            database=DirectoryBasedExampleDatabase(DATABASE / self.target.name),
            suppress_health_check=list(HealthCheck),
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
        )
        @given(self.target.cases)
        def one(case: bytes) -> None:
            if time.monotonic() > until:
                return
            self.tried += 1
            try:
                self.target.check(case)
            except Exception:
                self._last = case
                raise

        return one


def main() -> int:
    """The exit code: 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", choices=sorted(TARGETS), action="append", help="this target; may be given again")
    options = parser.parse_args()
    configure_logging(LogSettings(level="error"))
    until = time.monotonic() + 60 * options.minutes
    hunts = [Hunt(TARGETS[name]) for name in options.only or TARGETS]
    while time.monotonic() < until and (open_ones := [hunt for hunt in hunts if hunt.found is None]):
        for hunt in open_ones:
            hunt.look(until)
    for hunt in hunts:
        print(f"{hunt.target.name}: {hunt.tried:,} cases, {hunt.found or 'nothing found'}")
    return 1 if any(hunt.found for hunt in hunts) else 0


if __name__ == "__main__":
    sys.exit(main())
