"""What one process learns, told to all replicas through a server of Redis or Valkey.

Rule: no request ever waits for it. Each process learns as it would alone and compares notes, at once after a lesson and
otherwise every few seconds; a server that is away, slow or empty costs nothing but the comparison. Only replicas that
share the secret of tenants share lessons, as a lesson binds the tenants that have met it.

One hash holds everything that replicas with one secret know, and a number counts its changes:
https://redis.io/docs/latest/develop/using-commands/transactions/ describes how a change is made only if nobody else has
made one in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
import redis
import redis.asyncio
from pydantic import SecretStr
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, WatchError

from proxy.shell.models.knowledge import Knowledge
from proxy.shell.models.learning import Learning
from proxy.shell.models.merging import MAX_MODELS, Known, merged
from proxy.shell.resources.bounded import with_newest
from proxy.shell.resources.logs import logger

if TYPE_CHECKING:
    from redis.asyncio.client import Pipeline

COMPARE_SECONDS: Final = 2.0
"""Between two looks at the number of changes; a look is one request for two small values."""
ANSWER_SECONDS: Final = 1.0
"""Longest wait for a connection, or for one response."""
WHOLE_SECONDS: Final = 4.0
"""Longest comparison, whatever the number of responses."""
TRIES: Final = 3
"""Of one comparison, if other replicas change something at the same moment; the next one is soon."""
KEPT_SECONDS: Final = 30 * 24 * 3600
"""After the last change the server forgets by itself what nobody uses."""
_PREFIX: Final = "context-proxy:1"
"""With the version of the format."""
_Field: TypeAlias = bytes | bytearray | memoryview | str | int | float
"""As the library types the members of a hash."""
_TROUBLE: Final = (RedisError, OSError, TimeoutError)


class Keys:
    """Names of what is kept on the server by replicas with one secret."""

    def __init__(self, circle: str) -> None:
        """`circle`: a fingerprint of the secret."""
        self.learned = f"{_PREFIX}:{{{circle}}}:learned"
        """A hash: upstream and model → what is known, as JSON."""
        self.version = f"{_PREFIX}:{{{circle}}}:version"
        """Number of changes."""
        self.era = f"{_PREFIX}:{{{circle}}}:era"
        """Set at random with the first change; missing or another one: the server has lost everything since."""
        self.forgotten = f"{_PREFIX}:{{{circle}}}:forgotten"
        """Unix time at which everything was last forgotten on purpose."""


class SharedLearning:
    """Compares what this process knows about its upstreams with the server."""

    def __init__(
        self,
        url: SecretStr,
        circle: str,
        learning: Mapping[str, Learning],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`learning`: by upstream. `on_failure`: called after each comparison that failed."""
        self._server = redis.asyncio.Redis.from_url(
            url.get_secret_value(),
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        self._place = place_of(url)
        self._keys = Keys(circle)
        self._learning = learning
        self._on_failure = on_failure
        self._base: dict[str, dict[str, Knowledge]] = {}
        """By upstream: what both sides knew after the last comparison."""
        self._version: bytes | None = None
        self._era: bytes | None = None
        """At that time; None: there was no comparison yet."""
        self._forgotten: float | None = None
        """The last forgetting that this process has followed; None: it has not asked yet."""
        self._lesson = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._is_closing = False
        self._problem: str | None = None
        self._log = logger()

    @property
    def problem(self) -> str | None:
        """Why the last comparison failed; None if it did not."""
        return self._problem

    async def start(self) -> None:
        """Compare for the first time, which may fail, and from now on."""
        for learning in self._learning.values():
            learning.on_lesson = self._lesson.set
        await self.compare()
        self._loop = asyncio.create_task(self._compare_for_ever(), name="shared-state")

    async def close(self) -> None:
        """Stop comparing; a lesson of the last moment is still told if the server answers."""
        self._is_closing = True
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        if self._problem is None:
            await self.compare()
        for learning in self._learning.values():
            learning.on_lesson = _nobody
        with contextlib.suppress(*_TROUBLE):
            await self._server.aclose()

    async def compare(self) -> None:
        """Tell the server what is new here, and learn what is new there; never raises."""
        self._lesson.clear()
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                await self._compare()
        except _TROUBLE as error:
            self._note_problem(_reason_of(error))
        except Exception as error:  # a defect must not end the comparisons
            self._log.exception("state_failed", server=self._place)
            self._note_problem(type(error).__name__)
        else:
            self._note_problem(None)

    async def _compare_for_ever(self) -> None:
        while not self._is_closing:  # a library may swallow the cancellation
            if self._problem is not None:
                await asyncio.sleep(COMPARE_SECONDS)  # no lesson makes a server come back
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMPARE_SECONDS):  # unlike wait_for before Python 3.12, never loses a cancel
                    await self._lesson.wait()
            await self.compare()

    async def _compare(self) -> None:
        keys = self._keys
        version, era, forgotten = await self._server.mget(keys.version, keys.era, keys.forgotten)
        self._follow_forgetting(_seconds(forgotten))
        if era is not None and (version, era) == (self._version, self._era) and not self._has_news():
            return
        for _ in range(TRIES):
            async with self._server.pipeline(transaction=True) as pipe:
                with contextlib.suppress(WatchError):
                    await self._agree(pipe)
                    return

    def _has_news(self) -> bool:
        for learning in self._learning.values():
            learning.refresh()
        return any(learning.known != self._base.get(upstream) for upstream, learning in self._learning.items())

    def _follow_forgetting(self, forgotten: float) -> None:
        """Forget what others have forgotten on purpose; what a process has kept since an earlier run, too."""
        if self._forgotten is None:
            is_due = any(0 < learning.kept_at < forgotten for learning in self._learning.values())
        else:
            is_due = forgotten > self._forgotten
        if is_due:
            for learning in self._learning.values():
                learning.erase()
            self._base = {}
        self._forgotten = max(forgotten, self._forgotten or 0.0)

    async def _agree(self, pipe: Pipeline) -> None:
        """One version for both sides. Raises WatchError if another replica has written at the same moment."""
        keys = self._keys
        await pipe.watch(keys.version, keys.era, keys.learned)
        era = await pipe.get(keys.era)
        fields = await pipe.hgetall(keys.learned) if era is not None else {}
        for learning in self._learning.values():
            learning.refresh()
        mine = {upstream: learning.known for upstream, learning in self._learning.items()}
        theirs = _read(fields, mine)
        agreed: dict[str, dict[str, Knowledge]] = {}
        for upstream, own in mine.items():
            known = theirs.get(upstream, {})
            if self._era is None:  # after a start: nobody knows how old its lessons are
                agreed[upstream] = with_newest(own, known, MAX_MODELS)
            else:
                found = merged(self._base.get(upstream, {}), own, known)
                # In a new era, a model that is missing there was not given up but lost.
                agreed[upstream] = found if era == self._era else with_newest(own, found, MAX_MODELS)
        written, removed = _difference(theirs, agreed)
        pipe.multi()  # type: ignore[no-untyped-call] # the library's
        if written or removed or era is None:
            if written:
                pipe.hset(keys.learned, mapping=written)
            if removed:
                pipe.hdel(keys.learned, *removed)
            if era is None:
                pipe.set(keys.era, secrets.token_hex(8))
            if self._forgotten:
                pipe.set(keys.forgotten, self._forgotten)
            pipe.incr(keys.version)
            for key in (keys.learned, keys.version, keys.era, keys.forgotten):
                pipe.expire(key, KEPT_SECONDS)
        pipe.mget(keys.version, keys.era)
        *_, (self._version, self._era) = await pipe.execute()
        for upstream, learning in self._learning.items():
            learning.take(agreed[upstream], mine[upstream])
        self._base = agreed

    def _note_problem(self, reason: str | None) -> None:
        if reason is not None:
            self._on_failure()
        if reason is not None and self._problem is None:
            self._log.warning("state_lost", server=self._place, reason=reason)
        elif reason is None and self._problem is not None:
            self._log.info("state_found", server=self._place)
        self._problem = reason


def forget_everywhere(url: SecretStr, circle: str) -> str | None:
    """Make all replicas forget what was learned, within seconds; why that failed, or None."""
    keys = Keys(circle)
    try:
        with redis.Redis.from_url(
            url.get_secret_value(), socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        ) as server:
            seconds, microseconds = server.time()  # replicas compare it with the last one
            pipe = server.pipeline(transaction=True)
            pipe.delete(keys.learned)
            pipe.set(keys.forgotten, seconds + microseconds / 1e6, ex=KEPT_SECONDS)
            pipe.incr(keys.version)
            pipe.execute()
    except _TROUBLE as error:
        return f"{place_of(url)}: {_reason_of(error)}"
    return None


def place_of(url: SecretStr) -> str:
    """The server in a URL, without user and password.

    >>> place_of(SecretStr("rediss://me:secret@valkey.example:6380/2"))
    'valkey.example:6380'
    """
    return urlsplit(url.get_secret_value()).netloc.rpartition("@")[2]


def _nobody() -> None:
    pass


def _seconds(written: bytes | str | None) -> float:
    try:
        return float(written or 0)
    except ValueError:
        return 0.0


def _read(fields: Mapping[bytes | str, bytes | str], mine: Mapping[str, Known]) -> dict[str, dict[str, Knowledge]]:
    """By upstream and model. In place of what cannot be read: what is known here."""
    found: dict[str, dict[str, Knowledge]] = {}
    for field, written in fields.items():
        name = field if isinstance(field, str) else field.decode("utf-8", "replace")
        upstream, _, model = name.partition("\n")
        try:
            one: Knowledge | None = msgspec.json.decode(written, type=Knowledge)
        except (msgspec.DecodeError, UnicodeDecodeError):
            one = mine.get(upstream, {}).get(model)
        if one is not None:
            found.setdefault(upstream, {})[model] = one
    return found


def _difference(
    theirs: Mapping[str, Mapping[str, Knowledge]], agreed: Mapping[str, Mapping[str, Knowledge]]
) -> tuple[dict[_Field, _Field], Sequence[str]]:
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


def _reason_of(error: Exception) -> str:
    """In the words of the system, or by its kind: the words of a server may hold anything."""
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or type(cause).__name__
    return type(error).__name__
