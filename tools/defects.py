"""Defects of a proxy that its clients may not notice.

Rule: a failed plan or judgement, and a traceback, are found in its log.
"""

from __future__ import annotations

import re
from typing import Final

_DEFECT: Final = re.compile(
    r"^.*\b(?:planning|judging)_failed\b.*$|^Traceback \(most recent call last\):.*(?:\n.*)+", re.MULTILINE
)


class HasDefect(Exception):
    """A proxy has failed inside, although its client may have seen nothing of it; the text is the end of its log."""


def raise_defects(log: str) -> None:
    """Raise HasDefect if a proxy's output reports a failed plan, or ends in a traceback."""
    found = _DEFECT.search(log)
    if found is not None:
        raise HasDefect(f"the proxy has a defect: {found[0][-2000:]}")
