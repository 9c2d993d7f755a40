"""A table of small figures that all workers of one machine read and write, without a lock.

Rule: whoever reads gets what was written under that key, or nothing: an entry carries its key and a checksum, so that
one that another worker is writing, or has overwritten, is not found. The table never grows; an entry gives way to the
next one in its place.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import zlib
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 16
"""Of a hash: 128 bits, because a client that finds two texts with one key would get a wrong count."""
ENTRIES: Final = 65_536
"""Messages and texts; 2 MB in all, of which only what was written takes up memory."""
_ENTRY: Final = struct.Struct("<16s3I")
_CHECK: Final = struct.Struct("<I")
_ENTRY_BYTES: Final = _ENTRY.size + _CHECK.size
_MOST: Final = 2**32 - 1
_FILE_NAME: Final = "sizes"


class SharedTable:
    """Three figures, each under 2³², by key."""

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        """`memory`: shared with other processes; None: this process's own."""
        self._memory = memory or mmap.mmap(-1, ENTRIES * _ENTRY_BYTES)

    @staticmethod
    def create(folder: Path) -> None:
        """Make the memory that `shared` finds. Raises OSError."""
        with (folder / _FILE_NAME).open("xb") as file:
            file.truncate(ENTRIES * _ENTRY_BYTES)

    @classmethod
    def shared(cls, folder: str | None) -> SharedTable | None:
        """The table that was created in a folder; None if there is none."""
        with contextlib.suppress(OSError, ValueError):
            if folder is not None:
                with (Path(folder) / _FILE_NAME).open("r+b") as file:
                    return cls(mmap.mmap(file.fileno(), ENTRIES * _ENTRY_BYTES))
        return None

    def get(self, key: bytes) -> tuple[int, int, int] | None:
        """What was written under a key of KEY_BYTES, if it is still there."""
        at = int.from_bytes(key[:4], "little") % ENTRIES * _ENTRY_BYTES
        entry = self._memory[at : at + _ENTRY_BYTES]
        if not entry.startswith(key):
            return None
        if zlib.crc32(entry[: _ENTRY.size]) != _CHECK.unpack_from(entry, _ENTRY.size)[0]:
            return None
        _, first, second, third = _ENTRY.unpack_from(entry)
        return first, second, third

    def put(self, key: bytes, first: int, second: int = 0, third: int = 0) -> None:
        """Write under a key of KEY_BYTES; larger figures than fit are left out."""
        if max(first, second, third) > _MOST:
            return
        entry = _ENTRY.pack(key, first, second, third)
        at = int.from_bytes(key[:4], "little") % ENTRIES * _ENTRY_BYTES
        self._memory[at : at + _ENTRY_BYTES] = entry + _CHECK.pack(zlib.crc32(entry))
