"""Runs the proxy, and notes what it does with files of its data folder while the event loop waits for it: `python
disk_audit.py NOTES serve --data-dir …`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

TOUCHES: Final = frozenset(
    ["open", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "sqlite3.connect"]
)
"""Events of https://docs.python.org/3/library/audit_events.html."""


def main(notes: str, arguments: list[str]) -> None:
    """Run the proxy with these arguments; each line of `notes` is an event, a file, and where it came from."""
    noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    folder = arguments[arguments.index("--data-dir") + 1]

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event not in TOUCHES or not str(given[0]).startswith(folder):
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        places: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            places.append(frame.f_code.co_qualname)
            frame = frame.f_back
        os.write(noted, f"{event} {given[0]} {' < '.join(places[:8])}\n".encode())

    sys.addaudithook(note)
    from proxy.__main__ import main as proxy

    sys.argv = ["context-proxy", *arguments]
    sys.exit(proxy())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
