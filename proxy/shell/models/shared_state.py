"""Shares what each process learns with all replicas through a server of Redis or Valkey.

Rule: no request ever waits for it. Each process learns as it would alone and syncs, at once after a lesson and
otherwise every few seconds; if the server is down, slow or empty, we only skip a sync. Only replicas
with one secret of tenants share lessons, as a lesson binds the tenants that have met it.

The server holds the same rows as the file, in one value with a token that changes with it. Of two rows about one thing
the newer one counts, so a replica that finds another one's value joins both and writes them in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
import redis
from msgspec import Struct
from pydantic import SecretStr
from redis.asyncio.client import Pipeline

from proxy.core.models import Rows, facts
from proxy.shell.models.knowledge import Contents
from proxy.shell.models.learning import Learning
from proxy.shell.resources import Recurring
from proxy.shell.resources.state_contact import (
    ANSWER_SECONDS,
    TROUBLE,
    StateContact,
    key_of,
    place_of,
    reason_of,
)

COMPARE_SECONDS: Final = 2.0
"""Between two looks at the token; a look is one request for two small values."""
KEPT_SECONDS: Final = int(facts.KEPT_SECONDS)
"""Redis TTL, refreshed on every write."""
USER: Final = "learning"
"""This user's name at `StateContact`."""
_VERSION: Final = "version"
"""Field of the hash: a random token that every change replaces."""
_LESSONS: Final = "lessons"
"""Field of the hash, and its name: `Shared` as JSON."""


class Shared(Struct, frozen=True):
    """What replicas with one secret have learned."""

    rows: Contents = {}
    forgotten: float = 0.0
    """Unix time at which everything was last forgotten on purpose: older rows no longer count."""


class SharedLearning:
    """Compares what this process knows about its upstreams with the server."""

    def __init__(self, contact: StateContact, learning: Mapping[str, Learning]) -> None:
        """`learning`: by upstream."""
        self._contact = contact
        self._server = contact.server
        self._learning = learning
        self._shared: dict[str, Rows] = {}
        """Lessons known here after the last sync, by upstream."""
        self._version: bytes | str | None = None
        """At that time; None: the server had nothing."""
        self._forgotten = 0.0
        """The last forgetting that this process has followed."""
        self._lesson = asyncio.Event()
        self._comparisons = Recurring(self._compare_when_due, "shared-state")

    @property
    def problem(self) -> str | None:
        """Why the last comparison failed; None if it did not."""
        return self._contact.problem_of(USER)

    async def start(self) -> None:
        """Compare for the first time, which may fail, and from now on."""
        for learning in self._learning.values():
            learning.on_lesson = self._lesson.set
        await self.compare()
        self._comparisons.start()

    async def close(self) -> None:
        """Stop comparing, after one more sync if the server responds."""
        await self._comparisons.stop()
        if self.problem is None:
            await self.compare()
        for learning in self._learning.values():
            learning.on_lesson = lambda: None

    async def compare(self) -> None:
        """Sync both sides; never raises."""
        self._lesson.clear()
        await self._contact.speak(USER, self._compare)

    async def _compare_when_due(self) -> None:
        if self.problem is not None:
            await asyncio.sleep(COMPARE_SECONDS)  # no lesson makes a server come back
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMPARE_SECONDS):  # unlike wait_for before Python 3.12, never loses a cancel
                await self._lesson.wait()
        await self.compare()

    async def _compare(self) -> None:
        for learning in self._learning.values():
            await asyncio.to_thread(learning.refresh)
        version = await self._server.hget(self._key, _VERSION)
        if version is None or version != self._version or self._known != self._shared:
            await self._server.transaction(self._join, self._key)  # again if another replica was faster

    @property
    def _key(self) -> str:
        return key_of(self._contact.fleet, _LESSONS)

    @property
    def _known(self) -> dict[str, Rows]:
        return {upstream: learning.known for upstream, learning in self._learning.items()}

    async def _join(self, pipe: Pipeline) -> None:
        """Join both sides; what others have forgotten on purpose is forgotten here, too."""
        self._version, written = await pipe.hmget(self._key, [_VERSION, _LESSONS])
        theirs = _read(written)
        self._forgotten = max(theirs.forgotten, self._forgotten)
        for upstream, learning in self._learning.items():
            learning.merge(dict(theirs.rows.get(upstream, ())), self._forgotten)
        self._shared = self._known
        pipe.multi()  # type: ignore[no-untyped-call]
        if any(dict(theirs.rows.get(upstream, ())) != rows for upstream, rows in self._shared.items()):
            rows = theirs.rows | {upstream: [*known.items()] for upstream, known in self._shared.items()}
            self._version = _write(pipe, self._key, Shared(rows, self._forgotten))


def forget_everywhere(url: SecretStr, fleet: str) -> str | None:
    """Make all replicas forget what was learned, within seconds; why that failed, or None."""
    try:
        with redis.Redis.from_url(
            url.get_secret_value(), socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        ) as server:
            seconds, microseconds = server.time()
            pipe = server.pipeline(transaction=True)
            _write(pipe, key_of(fleet, _LESSONS), Shared(forgotten=seconds + microseconds / 1e6))
            pipe.execute()
    except TROUBLE as error:
        return f"{place_of(url)}: {reason_of(error)}"
    return None


def _write(pipe: Pipeline | redis.client.Pipeline, key: str, shared: Shared) -> bytes:
    """Write within a transaction; returns the token."""
    version = secrets.token_hex(8).encode()
    pipe.hset(key, mapping={_VERSION: version, _LESSONS: msgspec.json.encode(shared)})
    pipe.expire(key, KEPT_SECONDS)
    return version


def _read(written: bytes | str | None) -> Shared:
    """What another has written; nothing if it cannot be read."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(written or b"{}", type=Shared)
    return Shared()
