"""Tunes Python's interpreter for a server whose objects live either for ever or as long as a request."""

from __future__ import annotations

import gc
import sys
from typing import Final

from proxy.shell.resources.workload import tune_allocator

SWITCH_SECONDS: Final = 0.0005
"""How long a planning thread may keep the interpreter while the event loop waits for it. Python's default of 5 ms adds
up, because that happens after each read and write of a socket."""


def tune_interpreter() -> None:
    """To be called when everything is loaded."""
    # What is loaded by now stays; every request would pay for scanning it again. It is not scanned once before, which
    # would take a tenth of the start: of 117 000 objects, 1 900 were garbage.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # a request makes hundreds of objects and hardly any cycles
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)
    tune_allocator()


def forget_what_is_gone() -> None:
    """After many of the objects that seemed to live forever are gone."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
