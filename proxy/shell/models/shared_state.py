"""Shares what each process learns with all replicas through a server of Redis or Valkey.

Rule: no request ever waits for it. Each process learns as it would alone and syncs, at once after a lesson and
otherwise every few seconds; if the server is down, slow or empty, we only skip a sync. Only replicas
with one secret of tenants share lessons, as a lesson binds the tenants that have met it.

One hash holds everything that replicas with one secret know, and a number counts its changes:
https://redis.io/docs/latest/develop/using-commands/transactions/ describes changes that apply only if
no other client has made one in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import redis
from pydantic import SecretStr
from redis.exceptions import WatchError

from proxy.shell.models.knowledge import Knowledge, Known, merged
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

if TYPE_CHECKING:
    from redis.asyncio.client import Pipeline

COMPARE_SECONDS: Final = 2.0
"""Between two looks at the number of changes; a look is one request for two small values."""
TRIES: Final = 3
"""Attempts at one sync if other replicas write at the same moment; the next one is soon."""
KEPT_SECONDS: Final = 30 * 24 * 3600
"""Redis TTL, refreshed on every write."""
_MAX_STEP: Final = 2**31
USER: Final = "learning"
"""This user's name at `StateContact`."""
_Field: TypeAlias = bytes | bytearray | memoryview | str | int | float
"""The library's type for members of a hash."""


class Keys:
    """Names of what is kept on the server by replicas with one secret."""

    def __init__(self, fleet: str) -> None:
        """`fleet`: a fingerprint of the secret."""
        self.learned = key_of(fleet, "learned")
        """A hash: upstream and model → what is known, as JSON."""
        self.version = key_of(fleet, "version")
        """A number that every change moves by a random step, so that none comes back after the server lost it."""
        self.forgotten = key_of(fleet, "forgotten")
        """Unix time at which everything was last forgotten on purpose."""


class SharedLearning:
    """Compares what this process knows about its upstreams with the server."""

    def __init__(self, contact: StateContact, learning: Mapping[str, Learning]) -> None:
        """`learning`: by upstream."""
        self._contact = contact
        self._server = contact.server
        self._learning = learning
        self._shared: dict[str, Known] = {}
        """Lessons known here after the last sync, by upstream."""
        self._version: bytes | None = None
        """At that time; None: there was no comparison yet."""
        self._forgotten: float | None = None
        """The last forgetting that this process has followed; None: not looked up yet."""
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
        keys = Keys(self._contact.fleet)
        version, forgotten = await self._server.mget(keys.version, keys.forgotten)
        self._follow_forgetting(_seconds(forgotten))
        if version is not None and version == self._version and not self._has_news():
            return
        for _ in range(TRIES):
            async with self._server.pipeline(transaction=True) as pipe:
                with contextlib.suppress(WatchError):
                    await self._agree(pipe)
                    return

    def _has_news(self) -> bool:
        for learning in self._learning.values():
            learning.refresh()
        return any(learning.known != self._shared.get(upstream) for upstream, learning in self._learning.items())

    def _follow_forgetting(self, forgotten: float) -> None:
        """Forget what others have forgotten on purpose; what a process has kept since an earlier run, too."""
        if self._forgotten is None:
            is_due = any(0 < learning.kept_at < forgotten for learning in self._learning.values())
        else:
            is_due = forgotten > self._forgotten
        if is_due:
            for learning in self._learning.values():
                learning.erase()
            self._shared = {}
        self._forgotten = max(forgotten, self._forgotten or 0.0)

    async def _agree(self, pipe: Pipeline) -> None:
        """Merge both sides. Raises WatchError if another replica has written at the same moment."""
        keys = Keys(self._contact.fleet)
        await pipe.watch(keys.version, keys.learned)
        theirs = _read(await pipe.hgetall(keys.learned))
        for learning in self._learning.values():
            learning.refresh()
        own = {upstream: learning.known for upstream, learning in self._learning.items()}
        # What is too old here stays there: it is ignored when read, and removed to make room.
        agreed = {upstream: merged(known, theirs.get(upstream, {})) for upstream, known in own.items()}
        written, removed = _difference(theirs, agreed)
        pipe.multi()  # type: ignore[no-untyped-call] # the library's
        if written or removed:
            if written:
                pipe.hset(keys.learned, mapping=written)
            if removed:
                pipe.hdel(keys.learned, *removed)
            if self._forgotten:
                pipe.set(keys.forgotten, self._forgotten)
            pipe.incrby(keys.version, secrets.randbelow(_MAX_STEP) + 1)
            for key in (keys.learned, keys.version, keys.forgotten):
                pipe.expire(key, KEPT_SECONDS)
        pipe.get(keys.version)
        *_, self._version = await pipe.execute()
        for upstream, learning in self._learning.items():
            is_unchanged = learning.known is own[upstream]  # a lesson of this moment is published next
            learning.merge(agreed[upstream])
            self._shared[upstream] = learning.known if is_unchanged else {}


def forget_everywhere(url: SecretStr, fleet: str) -> str | None:
    """Make all replicas forget what was learned, within seconds; why that failed, or None."""
    keys = Keys(fleet)
    try:
        with redis.Redis.from_url(
            url.get_secret_value(), socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        ) as server:
            seconds, microseconds = server.time()  # replicas compare it with the last one
            pipe = server.pipeline(transaction=True)
            pipe.delete(keys.learned)
            pipe.set(keys.forgotten, seconds + microseconds / 1e6, ex=KEPT_SECONDS)
            pipe.incrby(keys.version, secrets.randbelow(_MAX_STEP) + 1)
            pipe.execute()
    except TROUBLE as error:
        return f"{place_of(url)}: {reason_of(error)}"
    return None


def _seconds(written: bytes | str | None) -> float:
    try:
        return float(written or 0)
    except ValueError:
        return 0.0


def _read(fields: Mapping[bytes | str, bytes | str]) -> dict[str, dict[str, Knowledge]]:
    """Lessons by upstream and model; unreadable ones are dropped."""
    found: dict[str, dict[str, Knowledge]] = {}
    for field, written in fields.items():
        name = field if isinstance(field, str) else field.decode("utf-8", "replace")
        upstream, _, model = name.partition("\n")
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            found.setdefault(upstream, {})[model] = msgspec.json.decode(written, type=Knowledge)
    return found


def _difference(theirs: Mapping[str, Known], agreed: Mapping[str, Known]) -> tuple[dict[_Field, _Field], Sequence[str]]:
    """The fields to write and to remove, so that the server has what was agreed on."""
    written: dict[_Field, _Field] = {}
    removed: list[str] = []
    for upstream, known in agreed.items():
        before = theirs.get(upstream, {})
        for model, one in known.items():
            if before.get(model) != one:
                written[f"{upstream}\n{model}"] = msgspec.json.encode(one)
        removed += [f"{upstream}\n{model}" for model in before if model not in known]
    return written, removed
