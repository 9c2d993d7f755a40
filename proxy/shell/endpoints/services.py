"""Services behind the endpoints, made from one set of settings: those that the next request gets, and whether they are
ready.

Rule: a request keeps the services that it began with, to its last byte; a reload gives others to the next one. FastAPI
outlives them all, so each request carries its services in its scope, and the application refers to the current ones
only. Ready: at least one upstream is well, and everything else that only this replica may lack; what all replicas share
is only noted, as a balancer that takes all of them out serves nothing. However many probes arrive, one check runs at a
time, its result is valid for a while, and a probe waits no longer than a check may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, NotRequired, TypeAlias

from fastapi import Request
from msgspec import Struct
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from proxy.config import ServerSettings
from proxy.errors import ProxyError
from proxy.shell.endpoints.artifacts import ArtifactRoute
from proxy.shell.endpoints.compress_api import CompressApi
from proxy.shell.endpoints.dispatch import FittedEndpoint, PassThrough
from proxy.shell.endpoints.guard import Guard
from proxy.shell.operator import Explainer, Overview, StatusReport
from proxy.shell.relay import Relay
from proxy.shell.resources import forget_what_is_gone
from proxy.shell.telemetry import History
from proxy.shell.telemetry.metrics import Metrics

SERVICES: Final = "context_proxy.services"
"""The key in a request's scope."""


class Reloaded(NamedTuple):
    """The outcome of a reload of the settings."""

    status: Literal["reloaded", "unchanged"]
    restart_needed: list[str]
    """Settings that have changed but need a restart."""


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reloads the settings. Raises SettingsRefused."""


class Services(Struct, frozen=True):
    """Made from one set of settings."""

    server: ServerSettings
    base_path: bytes
    """Path of the default upstream's base URL."""
    guard: Guard
    fitted: FittedEndpoint
    pass_through: PassThrough
    compress_api: CompressApi | None
    """None: its paths are passed through like others."""
    mcp: ASGIApp | None
    """None: nothing is at `/mcp`."""
    metrics: Metrics
    readiness: Readiness
    notes: Mapping[str, Note]
    """Reported by `/readyz`, although requests do without it."""
    history: History
    overview: Overview
    status: StatusReport
    explainer: Explainer
    artifacts: ArtifactRoute
    running: Callable[[], AbstractAsyncContextManager[None]]
    """Holds connections, files and background tasks open."""


def services_of(request: Request) -> Services:
    """The services that a request carries."""
    found: Services = request.scope[SERVICES]
    return found


class Generation:
    """Services from their start until their last request is over."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._requests = 0
        self._is_idle = asyncio.Event()
        self._may_end = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Count a request that begins."""
        self._requests += 1

    def end(self) -> None:
        """Count a request that is over."""
        self._requests -= 1
        if not self._requests:
            self._is_idle.set()

    async def start(self) -> None:
        """Start the services. Raises whatever keeps them from starting."""
        has_started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(has_started))
        await asyncio.wait({has_started, self._life}, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            await self._life

    async def idle(self) -> None:
        """Wait until no request is under way; no new ones arrive."""
        if self._requests:
            self._is_idle.clear()
            await self._is_idle.wait()

    async def stop(self) -> None:
        """Stop the services. Raises what could not be closed."""
        assert self._life is not None
        self._may_end.set()
        await asyncio.shield(self._life)  # a caller that gives up waiting must not cancel it

    async def _live(self, has_started: asyncio.Future[None]) -> None:
        """One task enters and leaves, as task groups in it must."""
        async with self.services.running():
            has_started.set_result(None)
            await self._may_end.wait()


class Current:
    """The generation that serves the next request."""

    def __init__(self, services: Services) -> None:
        self.generation = Generation(services)
        self._retiring: dict[Generation, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the server runs."""
        await self.generation.start()
        try:
            yield
        finally:
            former = list(self._retiring)
            for task in self._retiring.values():
                task.cancel()
            await asyncio.gather(*(generation.stop() for generation in former), return_exceptions=True)
            await self.generation.stop()

    async def replace(self, services: Services) -> None:
        """Serve from now on with these services; the former ones stop after their last request. Raises whatever keeps
        the new ones from starting; then nothing changes."""
        following = Generation(services)
        await following.start()
        former, self.generation = self.generation, following
        self._retiring[former] = asyncio.create_task(self._retire(former))

    async def _retire(self, generation: Generation) -> None:
        await generation.idle()
        try:
            await generation.stop()
        finally:
            del self._retiring[generation]
        del generation
        forget_what_is_gone()


Check: TypeAlias = Callable[[], Awaitable[str | None]]
"""Why something is not ready; None if it is."""

LOOK_SECONDS: Final = 3.0
"""Longest wait for one check; Kubernetes probes every ten seconds."""
READY_SECONDS: Final = 10.0
"""How long a good result is valid: a probe costs the upstream a request only this often."""
NOT_READY_SECONDS: Final = 2.0
"""How long a bad result is valid: a service that has recovered should be used soon."""


class Ready(TypedDict):
    """Ready, except for requests to an upstream listed as unavailable."""

    status: Literal["ready"]
    unavailable: NotRequired[dict[str, str]]
    """What requests do without, and why: of several upstreams those that do not respond (`upstreams[0]`, as in the
    settings), and `state`, the server of what replicas learn; left out: nothing."""


class NotReady(TypedDict):
    """Not ready: no upstream responds, or nothing can be stored."""

    status: Literal["not ready"]
    reasons: Mapping[str, str]
    """What is not ready, `upstream`, `upstreams[0]` or `store`, and why."""


class Looked(NamedTuple):
    """The outcome of a look at everything."""

    is_ready: bool
    problems: Mapping[str, str]
    """Name of a failed check → why it failed."""


class Readiness:
    """Remembers the last check and repeats it on request once it is old."""

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

    async def problems(self) -> Mapping[str, str]:
        """Problems found by the last check."""
        return (await self.looked()).problems

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
