"""The connection to the Redis or Valkey server at `state.url`.

Rule: no request waits for it; each exchange is bounded in time, and a failure is reported, not raised. Several users
share it, and its loss is logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import redis.asyncio
from pydantic import SecretStr
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy.shell.resources.logs import logger
from proxy.shell.resources.threads import Recurring

ANSWER_SECONDS: Final = 1.0
"""Longest wait for a connection, or for one response."""
WHOLE_SECONDS: Final = 4.0
"""Longest exchange, whatever the number of responses."""
MEET_SECONDS: Final = 30.0
"""Between two looks at who else uses the server."""
AWAY_SECONDS: Final = 3 * MEET_SECONDS
"""After this long without a look, replicas count as gone."""
MAX_FLEETS: Final = 100
"""Others may write to the server."""
STRANGERS: Final = (
    "replicas with another secret of tenants use this server, too, and nothing is shared with them: give all replicas "
    "one artifacts.url, or the same owner-secret in data_dir"
)
TROUBLE: Final = (RedisError, OSError, TimeoutError)
_PREFIX: Final = "context-proxy:1"
"""Prefix of all keys, with the version of the format."""
_FLEETS: Final = f"{_PREFIX}:fleets"
"""A sorted set: a fingerprint of each secret in use → when it was last here."""


class StateContact:
    """The contact of one process with the server."""

    def __init__(
        self, url: SecretStr, fleet: Callable[[], str | None], on_failure: Callable[[], None] = lambda: None
    ) -> None:
        """`fleet`: a fingerprint of the secret of tenants, None if that is not known yet; only replicas that have it
        share anything. `on_failure`: called after each exchange that failed."""
        self.server = redis.asyncio.Redis.from_url(
            url.get_secret_value(),
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        self.place = place_of(url)
        self._fleet = fleet
        self.fleet = ""
        """The fleet of the exchange under way."""
        self._on_failure = on_failure
        self._problems: dict[str, str] = {}
        self._has_strangers = False
        self._meetings = Recurring(self._meet_when_due, "state-fleets")

    @property
    def problem(self) -> str | None:
        """Why a last exchange failed, or with whom nothing is shared; None if all is well."""
        return next(iter(self._problems.values()), STRANGERS if self._has_strangers else None)

    def problem_of(self, user: str) -> str | None:
        """Last problem of this user, or None."""
        return self._problems.get(user)

    async def speak(self, user: str, exchange: Callable[[], Awaitable[None]]) -> None:
        """Have an exchange; never raises."""
        fleet, reason = self._fleet(), None
        if fleet is None:
            self._note(user, "the secret of tenants is not known yet")
            return
        self.fleet = fleet
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                await exchange()
        except TROUBLE as error:
            reason = reason_of(error)
        except Exception as error:  # a defect must not end the exchanges
            logger().exception("state_failed", server=self.place)
            reason = type(error).__name__
        self._note(user, reason)

    async def start(self) -> None:
        """Check for other fleets now, and periodically."""
        await self.speak("fleets", self._meet)
        self._meetings.start()

    async def _meet_when_due(self) -> None:
        await asyncio.sleep(MEET_SECONDS)
        await self.speak("fleets", self._meet)

    async def _meet(self) -> None:
        """Whether replicas with another secret were here a short time ago; this one was."""
        seconds, _ = await self.server.time()
        async with self.server.pipeline(transaction=True) as pipe:
            pipe.zadd(_FLEETS, {self.fleet: seconds})
            pipe.zremrangebyscore(_FLEETS, "-inf", seconds - AWAY_SECONDS)
            pipe.zremrangebyrank(_FLEETS, 0, -MAX_FLEETS - 1)
            pipe.expire(_FLEETS, int(AWAY_SECONDS))
            pipe.zcard(_FLEETS)
            *_, fleets = await pipe.execute()
        if fleets > 1 and not self._has_strangers:
            logger().warning("state_not_shared", server=self.place, reason=STRANGERS)
        self._has_strangers = fleets > 1

    async def close(self) -> None:
        """Close the connections."""
        await self._meetings.stop()
        with contextlib.suppress(*TROUBLE):
            await self.server.aclose()

    def _note(self, user: str, reason: str | None) -> None:
        was_well = not self._problems
        if reason is None:
            self._problems.pop(user, None)
        else:
            self._problems[user] = reason
            self._on_failure()
        if was_well and reason is not None:
            logger().warning("state_lost", server=self.place, reason=reason)
        elif not was_well and not self._problems:
            logger().info("state_found", server=self.place)


def key_of(fleet: str, name: str) -> str:
    """The name of what is kept on the server by replicas with one secret. The braces keep all of it on one server of a
    cluster.

    >>> key_of("5eed", "learned")
    'context-proxy:1:{5eed}:learned'
    """
    return f"{_PREFIX}:{{{fleet}}}:{name}"


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
