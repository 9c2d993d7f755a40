"""What the artifact store holds, and which of it is removed because it is old or above the size limit.

Rule: only objects with an artifact's name are ever removed, and none that was used within the last hour; another worker
may sweep or write the same store at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from proxy.shell.artifacts.access import Tenants
from proxy.shell.artifacts.folder import TOUCH_SECONDS, ArtifactFolder, Listed, artifact_of
from proxy.shell.resources.whole_files import UNFINISHED, remove_unfinished

PROTECTED_SECONDS: Final = TOUCH_SECONDS + 3600
"""What was noted as used within this time stays: the last use may be TOUCH_SECONDS later than its note."""
MAX_REMOVED: Final = 10_000
"""Artifacts of one sweep, about 2 s of work on a local disk; the rest waits for the next."""

_BLOCK_BYTES: Final = 4096
"""Disk space of a small file on most disks; counted like this, the limit bounds the number of files, too."""


class Swept(Struct, frozen=True):
    """What a sweep did."""

    removed: int = 0
    """Artifacts."""
    removed_bytes: int = 0
    """Their disk space, metadata included."""
    kept: int = 0
    """Artifacts."""
    kept_bytes: int = 0
    """Their disk space, metadata included."""


class _Found(Struct):
    """An artifact, as listed."""

    used: float = 0.0
    """Unix time of the newest of its objects."""
    disk_bytes: int = 0
    keys: list[str] = field(default_factory=list)
    """Of its objects, the content first: after a crash, the rest is still found by its metadata."""


def sweep(
    folder: ArtifactFolder,
    listed: Iterable[Listed],
    now: float,
    *,
    retention_seconds: float,
    max_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Swept:
    """Remove what was last used longer than `retention_seconds` ago, then the least recently used above `max_bytes`.

    Blocks. `listed` is the content of the folder, `now` is Unix time. Raises one of TROUBLE.
    """
    found = _artifacts(listed, stopped)
    total_bytes = sum(artifact.disk_bytes for artifact in found)
    removed = removed_bytes = 0
    for artifact in sorted(found, key=lambda one: one.used):
        idle_seconds = now - artifact.used
        stays = idle_seconds <= retention_seconds and total_bytes - removed_bytes <= max_bytes
        if stays or idle_seconds < PROTECTED_SECONDS or removed == MAX_REMOVED or stopped():
            break
        if _remove(folder, artifact):
            removed += 1
            removed_bytes += artifact.disk_bytes
    return Swept(removed, removed_bytes, len(found) - removed, total_bytes - removed_bytes)


def _artifacts(listed: Iterable[Listed], stopped: Callable[[], bool]) -> list[_Found]:
    found: dict[str, _Found] = {}
    for key, used, size in listed:
        if stopped():
            return []  # half a list does not say when anything was last used
        belongs = artifact_of(key)
        if belongs is None:
            continue
        name, is_content = belongs
        artifact = found.setdefault(name, _Found())
        artifact.used = max(artifact.used, used)
        artifact.disk_bytes += -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        artifact.keys.insert(0 if is_content else len(artifact.keys), key)
    return list(found.values())


def _remove(folder: ArtifactFolder, artifact: _Found) -> bool:
    """Whether it is gone. It is left alone if somebody has used or removed it since it was listed.

    Some 100 µs pass between the check and the removal. A worker that uses it in that time finds it missing at the next
    request of that conversation, and writes it again.
    """
    if any(used > artifact.used for used in _last_uses(folder, artifact.keys)):
        return False
    gone = False
    for key in artifact.keys:
        with contextlib.suppress(FileNotFoundError):
            folder.remove(key)
            gone = True
    return gone


def _last_uses(folder: ArtifactFolder, keys: list[str]) -> Iterator[float]:
    for key in keys:
        with contextlib.suppress(FileNotFoundError):
            yield folder.stat(key).used


LOOK_SECONDS: Final = 2.0
"""Between two checks that the secret exists; a check is one stat."""
UNFINISHED_SECONDS: Final = 60.0
"""A half-written file older than this was left by a killed worker: writing one takes milliseconds."""


async def look_after(folder: Path, tenants: Tenants) -> None:
    """Keep the secret in the folder, and remove what killed workers have left behind; runs for ever."""
    sweep_at = 0.0
    while True:
        if time.monotonic() >= sweep_at:
            sweep_at = time.monotonic() + UNFINISHED_SECONDS
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_unfinished, folder, UNFINISHED, time.time() - UNFINISHED_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(tenants.keep_secret)
