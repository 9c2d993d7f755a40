"""Files that are written whole, such as a JSON file that several workers share.

Rule: a reader sees one whole version; a crash leaves the old one. Only the user that the proxy runs as can read them,
and half-written ones are recognised by their names. Changes of a shared file are serialised by a lock; without one, if
the file system has none or a stopped worker holds it, one of two changes may be lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

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


_LOCK_TRIES: Final = 10
"""Attempts, a millisecond apart; a change holds the lock for less than one."""

Contents = TypeVar("Contents")
_Stamp: TypeAlias = tuple[int, int, int]
"""Inode, time and size: each write makes a new file, and a file system's clock may not advance for 10 ms."""


class SharedFile(Generic[Contents]):
    """One file, seen by one worker."""

    def __init__(self, path: Path, kind: type[Contents]) -> None:
        self.path = path
        self._kind = kind
        self._stamp: _Stamp | None = None
        """The version last read or written; None: there was no file."""

    def is_news(self) -> bool:
        """Whether the file is not the one last read or written, which includes its removal. 3 µs."""
        return _stamp_of(self.path) != self._stamp

    def read(self) -> Contents | None:
        """Its content; None if there is no file. Raises OSError, and ValueError for content of another kind."""
        self._stamp = _stamp_of(self.path)  # an unreadable file is not news the next time
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            self._stamp = _stamp_of(file.fileno())
            return msgspec.json.decode(file.read(), type=self._kind)
        return None

    def change(self, changed: Callable[[Contents | None], Contents]) -> None:
        """Replace its content by what `changed` makes of it; None: it is missing or broken. Raises OSError."""
        with self._locked():
            try:
                found = self.read()
            except ValueError:
                found = None
            self._stamp = _stamp(replace_file(self.path, msgspec.json.encode(changed(found))))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locked against other workers, or after a short wait without the lock. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(_LOCK_TRIES):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.001)
                except OSError:
                    break  # a file system without locks
            yield
        finally:
            os.close(handle)


def _stamp_of(file: Path | int) -> _Stamp | None:
    try:
        return _stamp(os.stat(file))
    except OSError:
        return None


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_ino, found.st_mtime_ns, found.st_size
