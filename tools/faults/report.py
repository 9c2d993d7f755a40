"""The page of trials: promises on the left, what was tried on the right.

Rule: generated from one run; what was not run is not listed.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final

from tools.faults.trials import Tried

_HEAD: Final = """# Reliability

Written by `make faults`, which tries all of this on a running proxy: real sockets, a real process, a scripted upstream.
A loss is named below, and fails the command. `make test` runs a short form of it.

| promise | what was tried | times | lost |
|---|---|---|---|
"""

_NOT_DRIVEN: Final = """
## What was not driven

* The clouds themselves: S3 and Google's storage are moto's server, Azure's is azurite, behind a relay that makes the
  trouble. Credentials that expire were tried on S3 alone.
* The clock of a disk: libfaketime shifts the clock of the process, and files keep the true time.
* A name server: the resolver's answers are put in their place inside the process.
* Networks between machines: everything runs on one, so no packet is lost or late.
* A front that adds no header; [threat model](threat-model.md#what-does-not-hold) says what that opens.
* More than two versions, and two that run at once over one folder.
"""


def page(found: Sequence[Tried], section: str = "") -> str:
    """The page in Markdown; `section` follows the table."""
    rows = [f"| {one.promise} | {one.what} | {one.times:,} | {len(one.lost)} |" for one in found]
    lost = [f"* {one.promise}: {what}" for one in found for what in one.lost]
    reported = ["", "## Lost", "", *lost] if lost else []
    where = f"\nPython {platform.python_version()}, {platform.system()} {platform.machine()}.\n"
    below = f"\n{section}" if section else ""
    return _HEAD + "\n".join([*rows, *reported]) + "\n" + below + _NOT_DRIVEN + where
