"""What lies where in the artifact store, and what of it goes when it is old or too much.

Rule: only what carries an artifact's name is ever removed, never what was used within the last hour; another worker
may sweep or write the same store at the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import obstore
from obstore.store import ObjectStore

from proxy.shell.artifacts.folder import TOUCH_SECONDS, Listed, artifact_of

PROTECTED_SECONDS: Final = TOUCH_SECONDS + 3600
"""What was noted as used within this time stays: by then a use may be TOUCH_SECONDS older than the note of it."""
MAX_REMOVED: Final = 10_000
"""Artifacts of one pass, about 2 s of work on a local disk; what is left over waits for the next."""

_BLOCK_BYTES: Final = 4096
"""What a small file takes on most disks; counted so, the quota bounds the number of files, too."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a pass did."""

    removed: int = 0
    """Artifacts."""
    removed_bytes: int = 0
    """What they took on disk, metadata included."""
    kept: int = 0
    """Artifacts."""
    kept_bytes: int = 0
    """What they take on disk, metadata included."""


@dataclass(slots=True)
class _Found:
    """An artifact, as listed."""

    used: float = 0.0
    """Unix time of the newest of its objects."""
    disk_bytes: int = 0
    keys: list[str] = field(default_factory=list)
    """Of its objects, the content first: what is left after a crash is still found by its metadata."""


def sweep(
    store: ObjectStore,
    listed: Iterable[Listed],
    now: float,
    *,
    retention_seconds: float,
    max_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Swept:
    """Remove what was last used longer than `retention_seconds` ago, then the least recently used beyond `max_bytes`.

    Blocks. `listed` is what the store holds, `now` is Unix time. Raises what obstore and the listing raise.
    """
    found = _artifacts(listed, stopped)
    total_bytes = sum(artifact.disk_bytes for artifact in found)
    removed = removed_bytes = 0
    for artifact in sorted(found, key=lambda one: one.used):
        idle_seconds = now - artifact.used
        stays = idle_seconds <= retention_seconds and total_bytes - removed_bytes <= max_bytes
        if stays or idle_seconds < PROTECTED_SECONDS or removed == MAX_REMOVED or stopped():
            break
        if _remove(store, artifact):
            removed += 1
            removed_bytes += artifact.disk_bytes
    return Swept(removed, removed_bytes, len(found) - removed, total_bytes - removed_bytes)


def _artifacts(listed: Iterable[Listed], stopped: Callable[[], bool]) -> list[_Found]:
    found: dict[str, _Found] = {}
    for key, used, size in listed:
        if stopped():
            return []  # of half a list nobody can say what was last used when
        belongs = artifact_of(key)
        if belongs is None:
            continue
        name, is_content = belongs
        artifact = found.setdefault(name, _Found())
        artifact.used = max(artifact.used, used)
        artifact.disk_bytes += -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        artifact.keys.insert(0 if is_content else len(artifact.keys), key)
    return list(found.values())


def _remove(store: ObjectStore, artifact: _Found) -> bool:
    """Whether it is gone. It is left alone when somebody has used it, or removed it, since it was listed.

    Between the look and the deed lie some 100 µs. A worker that uses it just then finds it missing at the next request
    of that conversation, and writes it again.
    """
    if any(used > artifact.used for used in _last_uses(store, artifact.keys)):
        return False
    gone = False
    for key in artifact.keys:
        with contextlib.suppress(FileNotFoundError):
            obstore.delete(store, key)
            gone = True
    return gone


def _last_uses(store: ObjectStore, keys: list[str]) -> Iterator[float]:
    for key in keys:
        with contextlib.suppress(FileNotFoundError):
            yield obstore.head(store, key)["last_modified"].timestamp()
