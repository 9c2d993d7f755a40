from __future__ import annotations

import gc
import sys
import weakref

from proxy.shell.resources import interpreter


class _Held:
    """An object that only a circle keeps alive."""

    def __init__(self) -> None:
        self.itself = self


def test_a_server_that_starts_scans_nothing_any_more_of_what_it_has_loaded() -> None:
    """The one place where this is tried in the process of the tests: tests_process.py keeps applications from it."""
    tune, forget = interpreter.tune_interpreter, interpreter.forget_what_is_gone
    before = gc.get_threshold(), sys.getswitchinterval()
    try:
        held: list[object] = []
        held.append(held)  # a circle
        assert any(one is held for one in gc.get_objects())
        tune()
        # Read back it has lost some nanoseconds.
        assert abs(sys.getswitchinterval() - interpreter.SWITCH_SECONDS) < 1e-6 < before[1]
        assert not any(one is held for one in gc.get_objects())
        assert (gc.get_threshold(), gc.isenabled()) == ((10_000, 20, 20), True)
        gone = weakref.ref(_Held())
        assert gone() is not None
        forget()
        assert gone() is None
        assert not any(one is held for one in gc.get_objects())
    finally:
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])
