"""A local folder as an object store, and what only a local folder can do: be created, be private, be inspected.

Rule: only the user that the proxy runs as can read the files, even while they are being written; a reader finds a whole
file or none.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.shell.artifacts.cooldown import Cooldown
from proxy.shell.artifacts.folder import META, Kept, Listed
from proxy.shell.resources.whole_files import create_file, remove_unfinished, replace_file

_STAGED: Final = re.compile(r"[0-9a-f]+\.part(#\d+)?")
"""Names of half-written files; earlier versions wrote them as `NAME#1`."""


class PrivateFolder:
    """A folder that is created when something is first put into it.

    What it creates only its user can read. A folder that already exists keeps its mode, as somebody chose that (it may
    be /tmp); the files in it are private all the same.
    """

    at_once = 4
    """More only queue at the disk."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.abspath(path))
        self.cooldown = Cooldown(time.monotonic)

    @property
    def address(self) -> str:
        """The absolute path."""
        return str(self._path)

    def place_of(self, key: str) -> str:
        """The absolute path of an object."""
        return f"{self._path}{os.sep}{key}"

    def is_used(self) -> bool:
        """Whether anything has been put here."""
        return (self._path / META).is_dir()

    def get(self, key: str) -> Kept:
        """Read an object. Raises OSError."""
        with open(self.place_of(key), "rb") as file:
            return Kept(file.read(), os.fstat(file.fileno()).st_mtime)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Read a part of an object. Raises OSError, and ValueError for a file that ends before it."""
        with open(self.place_of(key), "rb") as file:
            file.seek(start)
            found = file.read(stop - start)
        if not found:
            raise ValueError("the file ends before that")
        return found

    def stat(self, key: str) -> Listed:
        """Its size, and when it last changed. Raises OSError."""
        found = os.stat(self.place_of(key))
        return Listed(key, found.st_mtime, found.st_size)

    def remove(self, key: str) -> None:
        """Remove an object. Raises OSError."""
        os.unlink(self.place_of(key))

    def is_surely_there(self, key: str, size: int) -> bool:
        """Whether the file exists and has that length: somebody may have removed it by hand. 2 µs."""
        try:
            return os.stat(self.place_of(key)).st_size == size
        except OSError:
            return False

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it; the folder is created if needed. Raises OSError, and then leaves nothing
        behind. It is staged in the metadata folder, where nobody looks."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._path / META).mkdir(mode=0o700, exist_ok=True)
        replace_file(self.place_of(key), content, self.place_of(f"{META}/{secrets.token_hex(8)}.part"))

    def agreed(self, key: str, fresh: bytes) -> bytes:
        """The content of an object, which becomes `fresh` if there was none; if several processes offer one at once,
        one of them wins, and none reads half of it. Raises OSError."""
        path = Path(self.place_of(key))
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            create_file(path, fresh)
        return path.read_bytes()

    def try_writing(self) -> None:
        """A folder responds, or is noticed to hang."""

    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The files of the folder and of its metadata whose keys begin like this; no others, and no links.
        Raises OSError."""
        for prefix in (f"{META}/", ""):
            if not prefix and beginning.startswith(f"{META}/"):
                return
            with os.scandir(self.place_of(prefix)) as entries:
                for entry in entries:
                    if not (prefix + entry.name).startswith(beginning):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield Listed(prefix + entry.name, found.st_mtime, found.st_size)

    def remove_staged(self, before: float) -> None:
        """Remove what a worker left behind when it died while writing; `before` is Unix time."""
        remove_unfinished(self._path / META, _STAGED, before)
