"""Whether requests would be served well: `/readyz` checks what the proxy depends on.

Rule: at least one upstream has to be well, and everything else that only this replica may lack. What all replicas share
is noted, as a balancer that takes all of them out serves nobody.
However many probes arrive, there is one check at a time, and its result is valid for a while; a probe waits no longer
than a check may take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Literal, NamedTuple, NotRequired, TypeAlias

from typing_extensions import TypedDict

from proxy.errors import ProxyError
from proxy.shell.relay.relay import Relay

Check: TypeAlias = Callable[[], Awaitable[str | None]]
"""Why something is not ready; None if it is."""

LOOK_SECONDS: Final = 3.0
"""Longest wait for one check; Kubernetes probes every ten seconds."""
READY_SECONDS: Final = 10.0
"""How long a good result is valid: a probe costs the upstream a request only this often."""
NOT_READY_SECONDS: Final = 2.0
"""How long a bad one is valid: what has recovered should be used soon."""


class Ready(TypedDict):
    """Requests would be served well, except those for an upstream that is unavailable."""

    status: Literal["ready"]
    unavailable: NotRequired[dict[str, str]]
    """What requests do without, and why: of several upstreams those that do not respond (`upstreams[0]`, as in the
    settings), and `state`, the server of what replicas learn; left out: nothing."""


class NotReady(TypedDict):
    """Requests would not be served well: no upstream responds, or nothing can be stored."""

    status: Literal["not ready"]
    reasons: Mapping[str, str]
    """What is not ready, `upstream`, `upstreams[0]` or `store`, and why."""


class Looked(NamedTuple):
    """The outcome of a look at everything."""

    is_ready: bool
    problems: Mapping[str, str]
    """Name of a failed check → why it failed."""


class Readiness:
    """Remembers the last check, and checks again if it is old and somebody asks."""

    def __init__(
        self,
        upstreams: Mapping[str, Check],
        others: Mapping[str, Check],
        clock: Callable[[], float] = time.monotonic,
        *,
        noted: Collection[str] = (),
    ) -> None:
        """One of the `upstreams` has to be well, and all `others` but those `noted`."""
        self._upstreams = upstreams
        self._checks = {**upstreams, **others}
        self._optional = {*upstreams, *noted}
        self._clock = clock
        self._looked = Looked(is_ready=False, problems={})
        self._good_until = float("-inf")
        self._look: asyncio.Task[None] | None = None

    async def looked(self) -> Looked:
        """The outcome of the last look, which was not long ago."""
        if self._clock() >= self._good_until:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_at_all(), name="readiness")
            await asyncio.shield(self._look)  # another probe may wait for it, too
        return self._looked

    async def close(self) -> None:
        """Cancel the check that is under way."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def _look_at_all(self) -> None:
        found = await asyncio.gather(*(_checked(check) for check in self._checks.values()))
        problems = {name: why for name, why in zip(self._checks, found, strict=True) if why is not None}
        has_upstream = any(name not in problems for name in self._upstreams)
        is_ready = has_upstream and self._optional.issuperset(problems)
        self._looked = Looked(is_ready, problems)
        self._good_until = self._clock() + (NOT_READY_SECONDS if problems else READY_SECONDS)


async def _checked(check: Check) -> str | None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await check()
    except TimeoutError:
        return f"no answer within {LOOK_SECONDS:g} s"


Note: TypeAlias = Callable[[], str | None]
"""Why something that requests do without does not work; None if it does."""


def upstream_check(relay: Relay) -> Check:
    """Whether the upstream responds at all: a refusal is a response, as the key to use is the client's."""

    async def check() -> str | None:
        try:
            answer = await relay.pass_through("GET", b"/models", [], None)
        except ProxyError as error:
            return error.message
        await answer.aclose()
        return None

    return check
