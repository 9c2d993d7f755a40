"""Files that are written whole: a reader finds one version or another, and a crash leaves the old one.

Rule: only the user that the proxy runs as can read them, even while they are being written; a file that a killed
process left half written is recognised by its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

UNFINISHED: Final = re.compile(r"[a-z-]+\.[0-9a-f]{16}\.unfinished")
"""The name of a file, in the same folder, until it is whole."""


def replace_file(path: Path | str, content: bytes, unfinished: Path | str | None = None) -> os.stat_result:
    """Write a file, or replace it; its new status. Raises OSError, and then leaves nothing behind.

    `unfinished`: where it is written first, if not in the same folder; a unique name on the same file system.
    """
    unfinished = unfinished or _beside(path)
    try:
        written = _write(unfinished, content)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    return written


def create_file(path: Path | str, content: bytes) -> None:
    """Write a file if there is none, and flush it to disk before it gets its name: half a file after a power cut would
    never be replaced. Of several writers at once one wins. Raises OSError, FileExistsError for the others."""
    unfinished = _beside(path)
    try:
        _write(unfinished, content, durable=True)
        os.link(unfinished, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def remove_unfinished(folder: Path | str, name: re.Pattern[str], before: float) -> None:
    """Remove half-written files with such names; `before` is Unix time. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if name.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.path)


def _beside(path: Path | str) -> Path:
    """Not named by process number: in two containers that share a folder it can be the same."""
    return Path(path).with_suffix(f".{secrets.token_hex(8)}.unfinished")


def _write(unfinished: Path | str, content: bytes, *, durable: bool = False) -> os.stat_result:
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
        return os.fstat(file.fileno())
