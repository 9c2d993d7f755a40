"""Runs the proxy, and counts the bytecodes that its main thread executes between two signals: how many there are does
not depend on the machine's speed. `python bytecodes.py RESULT …` takes the command line of the proxy.

Only code that serves requests is counted: not the server's ticks, nor the standard library, whose timers tick, too.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = str(Path(__file__).parents[2])
STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
PACKAGES = sysconfig.get_path("purelib") + os.sep
TICKS = os.path.join("uvicorn", "server.py")


def main(result: Path, arguments: list[str]) -> None:
    """Run the proxy with these arguments; SIGUSR1 begins to count, SIGUSR2 writes the number to `result`."""
    count, counts_in = 0, dict[str, bool]()

    def is_counted(file: str) -> bool:
        if file not in counts_in:
            is_ours = file.startswith((PACKAGES, ROOT)) or not file.startswith((STANDARD_LIBRARY, "<frozen"))
            counts_in[file] = is_ours and not file.endswith(TICKS)
        return counts_in[file]

    def each_opcode(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return each_opcode

    def each_call(frame: FrameType, _: str, __: Any) -> Any:
        if not is_counted(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each_opcode

    def begin(*_: Any) -> None:
        nonlocal count
        count = 0
        result.write_text("begun")
        sys.settrace(each_call)

    def end(*_: Any) -> None:
        sys.settrace(None)
        result.with_suffix(".new").write_text(str(count))
        result.with_suffix(".new").replace(result)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    from proxy.__main__ import main as proxy

    sys.argv = ["context-proxy", *arguments]
    sys.exit(proxy())


if __name__ == "__main__":
    sys.path.insert(0, ROOT)
    main(Path(sys.argv[1]), sys.argv[2:])
