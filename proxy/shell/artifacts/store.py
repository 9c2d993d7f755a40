"""Stores artifacts before the request is sent that they were taken from. It removes old ones, and above the size limit
those used least recently.

Rule: a reader sees a whole file or none; only the user that the proxy runs as can read it. Trouble with the store never
breaks a request: `keep` returns what could not be stored, and the log says why. Only objects with an artifact's name
are ever removed, and none that was used since it was listed: another worker may sweep or write the same store. No
tenant loses anything because another one fills the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
import mimetypes
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from proxy.core.artifact import Artifact
from proxy.core.text import LineIndex
from proxy.shell.artifacts.folder import (
    TOUCH_SECONDS,
    TRIAL_BYTES,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    Listed,
    Metadata,
    NoAnswer,
    artifact_of,
    index_key,
    metadata_key,
    reason_of,
    remove_all,
)
from proxy.shell.resources import BoundedMap, Threads, TooSlow, logger

KEEP_SECONDS: Final = 10.0
"""Limit for one artifact, from when a thread is free for it; the request then continues without those that are not
stored."""
INDEXED_BYTES: Final = 1024 * 1024
"""Shorter texts are read whole to find their lines; longer ones get an index."""
SWEEP_SECONDS: Final = 3600.0
"""Longest interval between sweeps."""
EARLY_SHARE: Final = 0.05
"""Share of the size limit that is stored before a sweep need not wait for its hour: the store may exceed its limit by
this much, and a sweep lists all of it."""
FIRST_SWEEP_SECONDS: Final = (5.0, 60.0)
"""Delay from the start to the first sweep, drawn at random: workers that start together do not sweep together."""
WARN_SECONDS: Final = 60.0
"""A full disk fails for every request; one line a minute reports it."""
MAX_KNOWN: Final = 10_000
"""Artifacts remembered as stored, about 3 MB."""
MAX_TOOL_CHARACTERS: Final = 200
"""Limit for a tool's name in metadata and logs, which clients choose."""


class NameTaken(ValueError):
    """The name of an artifact is taken by other content whose hash gives the same name."""


class ArtifactStore:
    """Keeps artifacts in a folder, each under its own name, and removes old ones and those above the size limit."""

    def __init__(
        self,
        folder: ArtifactFolder,
        *,
        retention_days: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        on_saved: Callable[[int], None] = lambda _: None,
        on_swept: Callable[[int, int], None] = lambda *_: None,
        on_failed: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._retention_seconds = retention_days * 24 * 3600
        self._max_bytes = max_bytes
        self._clock = clock
        """Unix time."""
        self._known: BoundedMap[tuple[str, str], float] = BoundedMap(MAX_KNOWN)
        """Name and tenant of what was stored → when that was last verified."""
        self._threads = Threads(folder.at_once, "artifacts")
        """Its own: a disk that hangs must not take the threads that plan requests."""
        self._looking: asyncio.Task[None] | None = None
        self._warned = float("-inf")
        self._swept_bytes = 0
        """What the last sweep left."""
        self._new_bytes = 0
        """Stored since."""
        self._is_full = asyncio.Event()
        self._closing = threading.Event()
        self._on_saved = on_saved
        """Called with the size in bytes when an artifact is new."""
        self._on_failed = on_failed
        """Called with how many artifacts a request could not keep."""
        self._on_swept = on_swept
        """Called after a sweep, from another thread: how many artifacts are left, and their bytes."""

    def place_of(self, artifact: Artifact) -> str:
        """Where its operator finds it, a path or a URL, whether or not it is stored yet."""
        return f"{self._folder.address}/{artifact.id}"

    async def keep(self, artifacts: Sequence[Artifact], tenant: str) -> frozenset[str]:
        """Make sure that these are in the store. Returns the names of those that are not; empty: all are safe."""
        wanted = {artifact.id: artifact for artifact in artifacts}.values()
        found = [(artifact, self._is_there(artifact, tenant)) for artifact in wanted]
        new = [artifact for artifact, is_there in found if is_there is False]
        unsure = [artifact for artifact, is_there in found if is_there is None]
        if unsure and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_again(unsure, tenant), name="artifacts-looked-at")
        return await self._kept(new, tenant) if new else frozenset()

    async def _kept(self, new: Sequence[Artifact], tenant: str) -> frozenset[str]:
        failures: dict[str, str] = {}
        for artifact, outcome in zip(new, await self._outcomes(new, tenant), strict=True):
            if isinstance(outcome, bool):
                self._note_kept(artifact, tenant, outcome)
            elif isinstance(outcome, TROUBLE):
                failures[artifact.id] = reason_of(outcome)
            else:
                raise outcome
        if failures:
            self._warn("keep", len(failures), next(iter(failures.values())))
            self._on_failed(len(failures))
        return frozenset(failures)

    async def _outcomes(self, new: Sequence[Artifact], tenant: str) -> Sequence[bool | BaseException]:
        """Whether each was new, or why it is not stored."""
        if (why := self._folder.cooldown.why) is not None:
            return [NoAnswer(why)] * len(new)
        keeping = (self._threads.run(KEEP_SECONDS, partial(self._keep_one, artifact, tenant)) for artifact in new)
        outcomes = await asyncio.gather(*keeping, return_exceptions=True)
        if all(isinstance(outcome, TooSlow) for outcome in outcomes):
            self._folder.cooldown.begin()
        return outcomes

    async def _look_again(self, stored: Sequence[Artifact], tenant: str) -> None:
        """Beside a request that relies on them, look up the first of the artifacts stored a while ago: if the store was
        emptied, all that is known of it is wrong."""
        name = stored[0].id
        try:
            await self._threads.run(KEEP_SECONDS, partial(self._folder.stat, name))
        except FileNotFoundError:
            self._known.clear()
            logger().warning("artifacts_gone", folder=self._folder.address, artifact=name)
            await self._kept(stored, tenant)
        except TROUBLE:
            pass  # the next artifact to be stored meets and reports it

    async def trouble(self) -> str | None:
        """Why nothing can be written; None if it can. It is tested with one object that stays, small in a bucket."""
        content = os.urandom(TRIAL_BYTES) if self._folder.place_of(TRIAL_KEY) is not None else b"ok\n"
        try:
            await self._threads.run(math.inf, partial(self._folder.put, TRIAL_KEY, content))
        except TROUBLE as error:
            return f"the artifact store cannot be written: {reason_of(error)}"
        return None

    async def close(self) -> None:
        """End a sweep that is under way; stored artifacts stay."""
        self._closing.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _is_there(self, artifact: Artifact, tenant: str) -> bool | None:
        """Whether it was stored a short time ago and still exists: a look at one file, no more. None: it probably
        does."""
        made_sure = self._known.get((artifact.id, tenant))
        if made_sure is None or not 0 <= self._clock() - made_sure < TOUCH_SECONDS:
            return False
        return self._folder.is_surely_there(artifact.id, len(artifact.content))

    def _note_kept(self, artifact: Artifact, tenant: str, is_new: bool) -> None:
        name = artifact.id
        if is_new:
            self._new_bytes += _disk_bytes(len(artifact.content))
            if self._new_bytes > max(self._max_bytes * EARLY_SHARE, self._max_bytes - self._swept_bytes):
                self._is_full.set()
        if is_new and (name, tenant) not in self._known:
            logger().info("artifact_saved", artifact=name, tool=_readable(artifact.tool), bytes=len(artifact.content))
            self._on_saved(len(artifact.content))
        self._known.put((name, tenant), self._clock())

    def _keep_one(self, artifact: Artifact, tenant: str) -> bool:
        """Whether it was new. Its use is noted first: a running sweep looks at the note before it removes anything."""
        name = artifact.id
        note = metadata_key(name, tenant)
        is_noted = self._has_noted(note)
        is_stored = self._is_stored(name, artifact, is_noted=is_noted)
        if not (is_noted and is_stored):
            self._folder.put(note, msgspec.json.encode(self._described(name, artifact, tenant)))
        if is_stored:
            return False
        self._folder.put(name, artifact.content)
        if len(artifact.content) > INDEXED_BYTES:
            with contextlib.suppress(*TROUBLE):  # then the first reader of its lines makes it
                self._folder.put(index_key(name), msgspec.json.encode(LineIndex.of_text(artifact.content)))
        return True

    def _has_noted(self, note: str) -> bool:
        """Whether this tenant has brought the artifact before; notes the use."""
        try:
            if self._clock() - self._folder.stat(note).used >= TOUCH_SECONDS:
                self._folder.put(note, self._folder.get(note).content)
        except FileNotFoundError:
            return False
        return True

    def _is_stored(self, name: str, artifact: Artifact, *, is_noted: bool) -> bool:
        """Whether the object under this name stays. Raises NameTaken, so that no tenant replaces what another one
        reads: two contents with one name can be made on purpose, as the name holds 64 bits of a hash.

        A file whose length is wrong, or whose bytes do not match its name, was left by a crash of the machine; it is
        written again.
        """
        try:
            size = self._folder.stat(name).size
            if artifact.named_by:  # named by something only its tenant knows; the first content stays
                return is_noted and size > 0
            if is_noted and size == len(artifact.content):
                return True
            found = self._folder.get(name).content
        except FileNotFoundError:
            return False
        if found != artifact.content and replace(artifact, content=found).id == name:
            raise NameTaken("another content has this name")
        return found == artifact.content

    def _described(self, name: str, artifact: Artifact, tenant: str) -> Metadata:
        created = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).isoformat(timespec="seconds")
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Metadata(_readable(artifact.tool), created, len(artifact.content), media_type, tenant)

    async def sweep_for_ever(self) -> None:
        """Sweep soon, then every hour, and whenever the store is full."""
        wait_seconds = random.uniform(*FIRST_SWEEP_SECONDS)  # noqa: S311 - spreads load, guards nothing
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), wait_seconds)
            self._is_full.clear()
            self._new_bytes = 0
            await self._threads.run(math.inf, self._sweep_once)
            wait_seconds = SWEEP_SECONDS

    def _sweep_once(self) -> None:
        if not self._folder.is_used():
            return
        try:
            now = self._clock()
            self._folder.remove_staged(now - PROTECTED_SECONDS)
            swept = sweep(
                self._folder,
                self._folder.listed(),
                now,
                retention_seconds=self._retention_seconds,
                max_bytes=self._max_bytes,
                stopped=self._closing.is_set,
            )
        except TROUBLE as error:
            self._warn("sweep", 0, reason_of(error))
            return
        if self._closing.is_set():
            return  # the sweep was cut short: its figures mean nothing
        logger().info(
            "artifacts_swept",
            removed=swept.removed,
            removed_bytes=swept.removed_bytes,
            kept=swept.kept,
            kept_bytes=swept.kept_bytes,
        )
        self._swept_bytes = swept.kept_bytes
        self._on_swept(swept.kept, swept.kept_bytes)

    def _warn(self, during: str, artifacts: int, reason: str) -> None:
        now = self._clock()
        if not 0 <= now - self._warned < WARN_SECONDS:
            self._warned = now
            logger().warning(
                "artifact_store_failed",
                during=during,
                artifacts=artifacts,
                folder=self._folder.address,
                reason=reason,
            )


def _readable(tool: str) -> str:
    """A tool's name, fit for JSON: it may be long, and JSON can put half a surrogate pair into a string."""
    return tool[:MAX_TOOL_CHARACTERS].encode("utf-8", "replace").decode()


PROTECTED_SECONDS: Final = TOUCH_SECONDS + 3600
"""Artifacts noted as used within this time do not expire, and go last when the store is full: the last use may be
TOUCH_SECONDS later than its note."""
SEEN_SECONDS: Final = 24 * 3600
"""A tenant that has used nothing for this long has no share of the size limit."""
MAX_REMOVED: Final = 10_000
"""Artifacts of one sweep, about 2 s of work on a local disk; the rest waits for the next."""

_BLOCK_BYTES: Final = 4096
"""Disk space of a small file on most disks; counted like this, the limit bounds the number of files, too."""


class Swept(msgspec.Struct, frozen=True):
    """How many artifacts a sweep removed and kept, and their disk space with metadata."""

    removed: int = 0
    removed_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0


class Found(msgspec.Struct):
    """An artifact, as listed."""

    used: float = 0.0
    """Unix time of the newest of its objects."""
    noted: float = 0.0
    """Unix time of the newest note."""
    tenant: str = ""
    """Who made that note; empty if there is none."""
    size: int | None = None
    """Bytes of the content; None if it is not there."""
    disk_bytes: int = 0
    keys: list[str] = msgspec.field(default_factory=list)
    """Its objects, the content first: after a crash, the rest is still found by its metadata."""


def sweep(
    folder: ArtifactFolder,
    listed: Iterable[Listed],
    now: float,
    *,
    retention_seconds: float,
    max_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Swept:
    """Remove what was last used longer than `retention_seconds` ago; then, as long as the store is above `max_bytes`,
    what tenants over their share used least recently: first what nobody has used within the last hour, then the rest.
    A share is `max_bytes` divided by the number of tenants of the last day. An artifact of several tenants belongs to
    the one that used it last.

    Blocks. `listed` is the content of the folder, `now` is Unix time. Raises one of TROUBLE.
    """
    found = artifacts_in(listed, stopped).values()
    held = Counter[str]()
    for artifact in found:
        held[artifact.tenant] += artifact.disk_bytes
    seen = {artifact.tenant for artifact in found if now - artifact.used <= SEEN_SECONDS}
    share = max_bytes // max(1, len(seen))
    total_bytes = held.total()
    removed = removed_bytes = 0
    for artifact in sorted(found, key=lambda one: (now - one.used < PROTECTED_SECONDS, one.used)):
        is_expired = now - artifact.used > max(retention_seconds, PROTECTED_SECONDS)
        is_surplus = total_bytes - removed_bytes > max_bytes
        is_over = artifact.tenant not in seen or held[artifact.tenant] > share
        if removed == MAX_REMOVED or stopped():
            break
        if (is_expired or (is_surplus and is_over)) and _remove(folder, artifact):
            removed += 1
            removed_bytes += artifact.disk_bytes
            held[artifact.tenant] -= artifact.disk_bytes
    return Swept(removed, removed_bytes, len(found) - removed, total_bytes - removed_bytes)


def _disk_bytes(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def artifacts_in(listed: Iterable[Listed], stopped: Callable[[], bool] = lambda: False) -> dict[str, Found]:
    """The artifacts to which these objects belong, by their names."""
    artifacts: dict[str, Found] = {}
    for key, used, size in listed:
        if stopped():
            return {}  # half a list does not say when anything was last used
        name, is_content, tenant = artifact_of(key)
        if not name:
            continue
        artifact = artifacts.setdefault(name, Found())
        artifact.used = max(artifact.used, used)
        if tenant and used >= artifact.noted:
            artifact.noted, artifact.tenant = used, tenant
        artifact.disk_bytes += _disk_bytes(size)
        artifact.keys.insert(0 if is_content else len(artifact.keys), key)
        artifact.size = size if is_content else artifact.size
    return artifacts


def _remove(folder: ArtifactFolder, artifact: Found) -> bool:
    """Delete it unless it was used or removed since it was listed; whether it was deleted.

    A worker that uses it in the 100 µs between the check and the removal writes it again with the next request.
    """
    if any(used > artifact.used for used in _last_uses(folder, artifact.keys)):
        return False
    return remove_all(folder, artifact.keys)


def _last_uses(folder: ArtifactFolder, keys: list[str]) -> Iterator[float]:
    for key in keys:
        with contextlib.suppress(FileNotFoundError):
            yield folder.stat(key).used
