"""Where the artifacts are kept: what is taken out of a request lies here, whole, before the request is sent.

Rule: a reader sees a whole file or none; only the user that the proxy runs as can read it; trouble with the store
never breaks a request: `keep` says what could not be kept, and the log says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import mimetypes
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import msgspec
import obstore

from proxy.core.artifact import Artifact
from proxy.core.text.lines import LineIndex
from proxy.shell.artifacts.cooldown import Cooldown
from proxy.shell.artifacts.folder import (
    TOUCH_SECONDS,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    Metadata,
    index_key,
    metadata_key,
    reason_of,
)
from proxy.shell.artifacts.sweep import PROTECTED_SECONDS, sweep
from proxy.shell.resources.bounded import BoundedMap
from proxy.shell.resources.logs import logger
from proxy.shell.resources.threads import DaemonThreads, TooSlow

KEEP_SECONDS: Final = 10.0
"""Longest that the store may take for one artifact, from when a thread is free for it; a request goes on without it
then. How long a thread was waited for says nothing about the store."""
INDEXED_BYTES: Final = 1024 * 1024
"""Shorter texts are read whole to find their lines; longer ones get an index."""
SWEEP_SECONDS: Final = 3600.0
"""From one pass to the next."""
FIRST_SWEEP_SECONDS: Final = (5.0, 60.0)
"""From the start to the first pass, drawn at random: workers that start together do not sweep together."""
WARN_SECONDS: Final = 60.0
"""A full disk fails every request; one line a minute says so."""
MAX_KNOWN: Final = 10_000
"""Artifacts whose keeping is remembered, about 3 MB."""
MAX_TOOL_CHARACTERS: Final = 200
"""Of a tool's name in metadata and logs; it comes from outside and may have any length."""

_NO_ANSWER: Final = "no answer in time"


class _Outcome(Enum):
    SAVED = auto()
    """It was new."""
    THERE = auto()
    """It had been kept before."""


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str


class NameTaken(ValueError):
    """Another content lies under the name of an artifact, and is rightly called so."""


class ArtifactStore:
    """Keeps artifacts in a folder, each under its own name, and removes what is old or too much."""

    def __init__(
        self,
        folder: ArtifactFolder,
        *,
        retention_days: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        on_saved: Callable[[int], None] = lambda _: None,
        on_swept: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._folder = folder
        self._retention_seconds = retention_days * 24 * 3600
        self._max_bytes = max_bytes
        self._clock = clock
        """Unix time."""
        self._known: BoundedMap[tuple[str, str], float] = BoundedMap(MAX_KNOWN)
        """Name and owner of what was kept: when that was last made sure of."""
        self._threads = _threads()
        self._cooldown = Cooldown(clock)
        self._warned = float("-inf")
        self._sweeping: asyncio.Task[None] | None = None
        self._closing = threading.Event()
        self._log = logger()
        self._on_saved = on_saved
        """Called when an artifact of so many bytes is new."""
        self._on_swept = on_swept
        """Called after a pass, from another thread: how many artifacts are left, and their bytes."""

    def place_of(self, artifact: Artifact) -> str:
        """Where its operator finds it: a path or a URL, whether or not it is kept by now."""
        return f"{self._folder.address}/{artifact.id}"

    async def keep(self, artifacts: Sequence[Artifact], owner: str) -> frozenset[str]:
        """Make sure that these lie in the store. Returns the names of those that do not; empty: all are safe."""
        wanted = {artifact.id: artifact for artifact in artifacts}
        new = {name: artifact for name, artifact in wanted.items() if not self._is_known(name, owner, artifact)}
        if not new:
            return frozenset()
        tried = await asyncio.gather(*(self._tried(name, artifact, owner) for name, artifact in new.items()))
        outcomes = dict(zip(new, tried, strict=True))
        failures = {name: outcome.reason for name, outcome in outcomes.items() if isinstance(outcome, _Failure)}
        for name, outcome in outcomes.items():
            if name not in failures:
                self._note_kept(name, owner, new[name], outcome)
        if failures:
            self._warn("keep", len(failures), next(iter(failures.values())))
        return frozenset(failures)

    async def _tried(self, name: str, artifact: Artifact, owner: str) -> _Outcome | _Failure:
        """What came of keeping it."""
        if self._cooldown.is_on:
            return _Failure(_NO_ANSWER)
        try:
            return await self._threads.run(KEEP_SECONDS, self._keep_one, name, artifact, owner)
        except TooSlow:
            self._cooldown.begin()
            return _Failure(_NO_ANSWER)
        except TROUBLE as error:
            return _Failure(reason_of(error))

    async def trouble(self) -> str | None:
        """Why nothing can be written; None when it can. It is tried out, with one small object that stays."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._folder.put, TRIAL_KEY, b"ok\n")
        except TROUBLE as error:
            return f"the artifact store cannot be written: {reason_of(error)}"
        return None

    async def start(self) -> None:
        """Begin to sweep, soon and then every hour."""
        self._closing.clear()
        self._sweeping = asyncio.create_task(self._sweep_for_ever(), name="artifact-sweep")

    async def close(self) -> None:
        """Stop sweeping and let go of the threads; what is kept stays."""
        self._closing.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
            self._sweeping = None
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = _threads()

    def _is_known(self, name: str, owner: str, artifact: Artifact) -> bool:
        """Whether it was kept a short time ago and is there still: a look at one file, no more."""
        made_sure = self._known.get((name, owner))
        if made_sure is None or not 0 <= self._clock() - made_sure < TOUCH_SECONDS:
            return False
        return self._folder.is_surely_there(name, len(artifact.content))

    def _note_kept(self, name: str, owner: str, artifact: Artifact, outcome: _Outcome | _Failure) -> None:
        if outcome is _Outcome.SAVED and (name, owner) not in self._known:
            self._log.info("artifact_saved", artifact=name, tool=_readable(artifact.tool), bytes=len(artifact.content))
            self._on_saved(len(artifact.content))
        self._known.put((name, owner), self._clock())

    def _keep_one(self, name: str, artifact: Artifact, owner: str) -> _Outcome:
        """Note the use, then see to the content: a sweep that is under way looks at the note before it removes."""
        note = metadata_key(name, owner)
        is_noted = self._has_noted(note)
        stands = self._stands(name, artifact, is_noted=is_noted)
        if not (is_noted and stands):
            self._folder.put(note, msgspec.json.encode(self._described(name, artifact, owner)))
        if stands:
            return _Outcome.THERE
        self._folder.put(name, artifact.content)
        if len(artifact.content) > INDEXED_BYTES:
            with contextlib.suppress(*TROUBLE):  # whoever reads lines first makes it then
                self._folder.put(index_key(name), msgspec.json.encode(LineIndex.of_text(artifact.content)))
        return _Outcome.SAVED

    def _has_noted(self, note: str) -> bool:
        """Whether this owner has brought the artifact before; the use is noted."""
        store = self._folder.opened()
        try:
            noted = obstore.head(store, note)["last_modified"].timestamp()
            if self._clock() - noted >= TOUCH_SECONDS:
                self._folder.put(note, bytes(obstore.get(store, note).bytes()))
        except FileNotFoundError:
            return False
        return True

    def _stands(self, name: str, artifact: Artifact, *, is_noted: bool) -> bool:
        """Whether what lies under the name stays there. Raises NameTaken, so that nobody replaces what another owner
        reads: two contents with one name can be made on purpose, as the name holds 64 bits of a hash.

        A file of another length, or of other bytes than its name says, is what a crash of the machine left behind; it
        is written again.
        """
        store = self._folder.opened()
        try:
            size = obstore.head(store, name)["size"]
            if artifact.named_by:  # by what only its owner knows, and the first one stands
                return is_noted and size > 0
            if is_noted and size == len(artifact.content):
                return True
            found = bytes(obstore.get(store, name).bytes())
        except FileNotFoundError:
            return False
        if found != artifact.content and replace(artifact, content=found).id == name:
            raise NameTaken("another content has this name")
        return found == artifact.content

    def _described(self, name: str, artifact: Artifact, owner: str) -> Metadata:
        created = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).isoformat(timespec="seconds")
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Metadata(_readable(artifact.tool), created, len(artifact.content), media_type, owner)

    async def _sweep_for_ever(self) -> None:
        await asyncio.sleep(random.uniform(*FIRST_SWEEP_SECONDS))  # noqa: S311 - spreads load, guards nothing
        while True:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._sweep_once)
            await asyncio.sleep(SWEEP_SECONDS)

    def _sweep_once(self) -> None:
        if not self._folder.is_used():
            return
        try:
            now = self._clock()
            self._folder.remove_staged(now - PROTECTED_SECONDS)
            swept = sweep(
                self._folder.opened(),
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
            return  # the pass was cut short: its figures say nothing
        self._log.info(
            "artifacts_swept",
            removed=swept.removed,
            removed_bytes=swept.removed_bytes,
            kept=swept.kept,
            kept_bytes=swept.kept_bytes,
        )
        self._on_swept(swept.kept, swept.kept_bytes)

    def _warn(self, during: str, artifacts: int, reason: str) -> None:
        now = self._clock()
        if not 0 <= now - self._warned < WARN_SECONDS:
            self._warned = now
            self._log.warning(
                "artifact_store_failed",
                during=during,
                artifacts=artifacts,
                folder=self._folder.address,
                reason=reason,
            )


def _threads() -> DaemonThreads:
    """Of its own: a disk that hangs must not take those that plan requests. None is made before it is needed."""
    return DaemonThreads(4, "artifacts")


def _readable(tool: str) -> str:
    """A tool's name, fit for JSON: it may be long, and JSON can carry half a surrogate pair into a string."""
    return tool[:MAX_TOOL_CHARACTERS].encode("utf-8", "replace").decode()
