"""Shares what each process learns with all replicas through a server of Redis or Valkey.

Rule: no request ever waits for it. Each process learns as it would alone and syncs, at once after a lesson and
otherwise every few seconds; if the server is down, slow or empty, we only skip a sync. Only replicas
with one secret of tenants share lessons, as a lesson binds the tenants that have met it.

One hash holds the rows of all replicas with one secret, and a token changes with it. Of two rows about one thing the
newer one counts: who finds an older one there writes its own again, so that replicas need no transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
import redis
from pydantic import SecretStr

from proxy.core.models import Key, Lesson, Rows, facts
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
_Field: TypeAlias = bytes | bytearray | memoryview | str | int | float
"""The library's type for members of a hash."""


class Keys:
    """Names of what is kept on the server by replicas with one secret."""

    def __init__(self, fleet: str) -> None:
        """`fleet`: a fingerprint of the secret."""
        self.learned = key_of(fleet, "lessons")
        """A hash: upstream, model, tenant and name → value and time, as JSON."""
        self.version = key_of(fleet, "lessons-version")
        """A token that every change replaces by a random one."""
        self.forgotten = key_of(fleet, "forgotten")
        """Unix time at which everything was last forgotten on purpose."""


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
        await self._agree(await self._server.hgetall(keys.learned))
        self._version = version  # if this one has written, it reads once more

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

    async def _agree(self, fields: Mapping[bytes | str, bytes | str]) -> None:
        """Join both sides, and write what is older or missing there."""
        keys, theirs = Keys(self._contact.fleet), _read(fields)
        written: dict[_Field, _Field] = {}
        surplus: list[bytes] = []
        for upstream, learning in self._learning.items():
            rows = theirs.get(upstream, {})
            # Another may have written what it knew just before that was forgotten.
            learning.merge({key: one for key, one in rows.items() if one.at > (self._forgotten or 0)})
            self._shared[upstream] = known = learning.known
            changed = {key: one for key, one in known.items() if rows.get(key) != one}
            written |= {msgspec.json.encode((upstream, *key)): msgspec.json.encode(one) for key, one in changed.items()}
            surplus += [msgspec.json.encode((upstream, *key)) for key in rows.keys() - known.keys()]
        if not written and not surplus:
            return
        pipe = self._server.pipeline(transaction=True)
        if written:
            pipe.hset(keys.learned, mapping=written)
        if surplus:
            pipe.hdel(keys.learned, *surplus)
        if self._forgotten:
            pipe.set(keys.forgotten, self._forgotten, nx=True)
        pipe.set(keys.version, secrets.token_hex(8))
        for key in (keys.learned, keys.version, keys.forgotten):
            pipe.expire(key, KEPT_SECONDS)
        await pipe.execute()


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
            pipe.set(keys.version, secrets.token_hex(8), ex=KEPT_SECONDS)
            pipe.execute()
    except TROUBLE as error:
        return f"{place_of(url)}: {reason_of(error)}"
    return None


def _seconds(written: bytes | str | None) -> float:
    try:
        return float(written or 0)
    except ValueError:
        return 0.0


def _read(fields: Mapping[bytes | str, bytes | str]) -> dict[str, dict[Key, Lesson]]:
    """The rows by upstream; unreadable ones are dropped."""
    found: dict[str, dict[Key, Lesson]] = {}
    for field, written in fields.items():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            upstream, *key = msgspec.json.decode(field, type=tuple[str, str, str, str])
            found.setdefault(upstream, {})[Key(*key)] = msgspec.json.decode(written, type=Lesson)
    return found
