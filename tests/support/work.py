"""Counts how much a call does: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PROXY = str(Path(__file__).parents[2] / "proxy")


def bytecodes_of(call: Callable[[], object]) -> Counter[str]:
    """The bytecodes that a call executes in functions of the proxy, by function."""
    counts, before = Counter[str](), sys.gettrace()

    def each(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PROXY):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            counts[f"{frame.f_code.co_filename.removeprefix(PROXY)}:{frame.f_code.co_firstlineno}"] += 1
        return each

    sys.settrace(each)
    try:
        call()
    finally:
        sys.settrace(before)
    return counts
