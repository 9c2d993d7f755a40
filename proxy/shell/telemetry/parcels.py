"""Finished requests as replicas hand them to each other: packed for the way, and checked when they arrive.

Rule: what the history has of a request, and nothing else: never a key and never content. A parcel is bounded in bytes,
packed and unpacked, and one that could not be kept as a row is nobody's.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from proxy.core.text import jsontext
from proxy.shell.telemetry.ledger import Entry

MAX_BYTES: Final = 16 * 1024
"""Of a parcel; a request with more goes without its messages."""
MAX_UNPACKED_BYTES: Final = 1024 * 1024
MAX_WAITING: Final = 2_000
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Of parcels that wait for the way to be open."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Sum = Annotated[float, msgspec.Meta(ge=0, lt=2**53)]


class _Line(msgspec.Struct):
    """What a row needs of a log line."""

    request_id: str
    ended: str
    outcome: str
    model: str = ""
    upstream: str = ""
    conversation: str = ""
    edits: dict[str, _Count] = {}
    first_byte_ms: _Sum | None = None
    tokens_before: _Count | None = None
    tokens_after: _Count | None = None
    room_tokens: _Count | None = None


class _Parcel(msgspec.Struct):
    """An entry as JSON."""

    id: _Count
    ended: _Sum
    trouble: Annotated[int, msgspec.Meta(ge=0, le=2)]
    summary: dict[str, Any]
    sums: dict[str, _Sum]
    blocks: list[dict[str, Any]] | None


def packed(entry: Entry, number: int) -> bytes | None:
    """A request and its id; None if even its line is too large."""
    sums = {name: +found for name, found in entry.sums.items() if found}  # the sign makes numbers of truths
    for blocks in (entry.blocks, None):
        whole = jsontext.dump({**entry._asdict(), "id": number, "sums": sums, "blocks": blocks})
        if len(whole) <= MAX_UNPACKED_BYTES and len(parcel := zlib.compress(whole, 1)) <= MAX_BYTES:
            return parcel
    return None


def unpacked(parcel: bytes) -> Entry | None:
    """The request; None if this is no parcel."""
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(parcel, MAX_UNPACKED_BYTES)
        found = msgspec.convert(jsontext.value(whole), _Parcel)
        msgspec.convert(found.summary, _Line)
    except (zlib.error, jsontext.NotJson, msgspec.ValidationError):
        return None
    return Entry(found.ended, found.summary, found.blocks, found.sums, found.trouble, found.id)


class Outbox:
    """Parcels that wait for the way to be open; the oldest go first. For two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, parcels: Iterable[bytes]) -> None:
        """Add new ones."""
        with self._lock:
            for parcel in parcels:
                self._waiting.append(parcel)
                self._held_bytes += len(parcel)
            while len(self._waiting) > MAX_WAITING or self._held_bytes > MAX_WAITING_BYTES:
                self._held_bytes -= len(self._waiting.popleft())

    def take(self, limit: int) -> list[bytes]:
        """Take out the oldest."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            self._held_bytes -= sum(map(len, taken))
            return taken

    def give_back(self, parcels: list[bytes]) -> None:
        """Put back what could not be sent, as the oldest."""
        with self._lock:
            self._waiting.extendleft(reversed(parcels))
            self._held_bytes += sum(map(len, parcels))
        self.put(())
