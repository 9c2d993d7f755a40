"""Shares what each process learns with all replicas through a server of Redis or Valkey.

Rule: no request ever waits for it. Each process learns as it would alone and syncs, at once after a lesson and
otherwise every few seconds; if the server is down, slow or empty, we only skip a sync. Only replicas
with one `server.secret` share lessons, as a lesson binds the tenants that have met it.

The server holds the same rows as the file, in one value with a token that changes with it. Of two rows about one thing
the newer one counts, so a replica that finds another one's value joins both and writes them in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
import redis.asyncio
from pydantic import SecretStr
from redis.asyncio.client import Pipeline
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy.core.models import Rows, facts
from proxy.shell.models.knowledge import ALL_UPSTREAMS, Contents, rows_of
from proxy.shell.models.learning import Learning
from proxy.shell.resources import logger

ANSWER_SECONDS: Final = 1.0
"""Longest wait for a connection, or for one response."""
WHOLE_SECONDS: Final = 4.0
"""Longest sync, whatever the number of responses."""
COMPARE_SECONDS: Final = 2.0
"""Between two looks at the token; a look is one request for two small values."""
KEPT_SECONDS: Final = int(facts.KEPT_SECONDS)
"""Redis TTL, refreshed on every write."""
TROUBLE: Final = (RedisError, OSError, TimeoutError)
_VERSION: Final = "version"
"""Field of the hash: a random token that every change replaces."""
_LESSONS: Final = "lessons"
"""Field of the hash, and its name: the rows as JSON."""


class SharedLearning:
    """Compares what this process knows about its upstreams with the server."""

    def __init__(
        self,
        url: SecretStr,
        fleet: str,
        learning: Mapping[str, Learning],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`fleet`: a fingerprint of the secret. `learning`: by upstream. `on_failure`: called after each sync that
        failed."""
        self._server = redis.asyncio.Redis.from_url(
            url.get_secret_value(),
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        self._place = place_of(url)
        self._key = key_of(fleet)
        self._learning = learning
        self._on_failure = on_failure
        self.problem: str | None = None
        """Why the last sync failed; None if it did not."""
        self._shared: dict[str, Rows] = {}
        """Lessons known here after the last sync, by upstream."""
        self._version: bytes | str | None = None
        """At that time; None: the server had nothing."""
        self._lesson = asyncio.Event()
        self._is_closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sync now, which may fail, and from then on; at the end once more if the server responds."""
        for learning in self._learning.values():
            learning.on_lesson = self._lesson.set
        await self.compare()
        syncing = asyncio.create_task(self._compare_for_ever(), name="shared-state")
        try:
            yield
        finally:
            self._is_closing = True  # the library may lose a cancellation
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)
            if self.problem is None:
                await self.compare()
            with contextlib.suppress(*TROUBLE):
                await self._server.aclose()

    async def compare(self) -> None:
        """Sync both sides; never raises."""
        self._lesson.clear()
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                await self._compare()
        except TROUBLE as error:
            self._note(reason_of(error))
        except Exception as error:  # a defect must not end the syncs
            logger().exception("state_failed", server=self._place)
            self._note(type(error).__name__)
        else:
            self._note(None)

    def _note(self, reason: str | None) -> None:
        if reason is not None:
            self._on_failure()
            if self.problem is None:
                logger().warning("state_lost", server=self._place, reason=reason)
        elif self.problem is not None:
            logger().info("state_found", server=self._place)
        self.problem = reason

    async def _compare_for_ever(self) -> None:
        while not self._is_closing:
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
    def _known(self) -> dict[str, Rows]:
        return {upstream: learning.known for upstream, learning in self._learning.items()}

    async def _join(self, pipe: Pipeline) -> None:
        """Join both sides; what others have forgotten on purpose is forgotten here, too."""
        self._version, written = await pipe.hmget(self._key, [_VERSION, _LESSONS])
        theirs = _read(written)
        for upstream, learning in self._learning.items():
            learning.merge(rows_of(theirs, upstream))
        self._shared = self._known
        pipe.multi()  # type: ignore[no-untyped-call]
        if any(dict(theirs.get(upstream, ())) != rows for upstream, rows in self._shared.items()):
            rows = theirs | {upstream: [*known.items()] for upstream, known in self._shared.items()}
            self._version = _write(pipe, self._key, rows)


def forget_everywhere(url: SecretStr, fleet: str) -> str | None:
    """Make all replicas forget what was learned, within seconds; why that failed, or None."""
    try:
        with redis.Redis.from_url(
            url.get_secret_value(), socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        ) as server:
            seconds, microseconds = server.time()
            pipe = server.pipeline(transaction=True)
            row = facts.forgetting({}, seconds + microseconds / 1e6)
            _write(pipe, key_of(fleet), {ALL_UPSTREAMS: [*row.items()]})
            pipe.execute()
    except TROUBLE as error:
        return f"{place_of(url)}: {reason_of(error)}"
    return None


def _write(pipe: Pipeline | redis.client.Pipeline, key: str, rows: Contents) -> bytes:
    """Write within a transaction; returns the token."""
    version = secrets.token_hex(8).encode()
    pipe.hset(key, mapping={_VERSION: version, _LESSONS: msgspec.json.encode(rows)})
    pipe.expire(key, KEPT_SECONDS)
    return version


def _read(written: bytes | str | None) -> Contents:
    """What another has written; nothing if it cannot be read."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(written or b"{}", type=Contents)
    return {}


def key_of(fleet: str) -> str:
    """The name of the hash that replicas with one secret keep on the server, with the version of the format. The braces
    keep all of it on one server of a cluster.

    >>> key_of("5eed")
    'context-proxy:1:{5eed}:lessons'
    """
    return f"context-proxy:1:{{{fleet}}}:{_LESSONS}"


def place_of(url: SecretStr) -> str:
    """The server in a URL, without user and password.

    >>> place_of(SecretStr("rediss://me:secret@valkey.example:6380/2"))
    'valkey.example:6380'
    """
    return urlsplit(url.get_secret_value()).netloc.rpartition("@")[2]


def reason_of(error: Exception) -> str:
    """In the words of the system, or by its kind: the words of a server may hold anything."""
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or type(cause).__name__
    return type(error).__name__
