"""Services behind the endpoints, made from one set of settings.

Rule: a request keeps the services that it began with, to its last byte, in its state; `app.state.services` are those
that the next request gets. Ready: at least one upstream is well, and everything else that only this replica may lack;
what all replicas share is only noted, as a balancer that takes all of them out serves nothing. However many probes
arrive, one check runs at a time, its result is valid for a while, and a probe waits no longer than a check may take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from msgspec import Struct, field
from starlette.types import ASGIApp

from proxy.config import ServerSettings
from proxy.errors import ProxyError
from proxy.shell.artifacts import AccessResolver, ArtifactReader, ArtifactsByHash, Replacements, Tenants
from proxy.shell.endpoints.guard import ArtifactRights, Guard
from proxy.shell.operator import Explainer, Overview
from proxy.shell.relay import Relay, Routes
from proxy.shell.resources import WaitingRoom, Workload
from proxy.shell.telemetry import History, Recorder
from proxy.shell.telemetry.metrics import Metrics


@dataclass
class Reloaded:
    """The outcome of a reload of the settings."""

    status: Literal["reloaded", "unchanged"]
    """The worker that responds; the others are notified."""
    restart_needed: list[str]
    """Settings that have changed but need a restart: they keep their old values."""
    workers: int
    """Processes that share the port."""


class Services(Struct, eq=False, kw_only=True):
    """Made from one set of settings."""

    server: ServerSettings
    routes: Routes
    recorder: Recorder
    ways: AccessResolver
    workload: Workload
    room: WaitingRoom
    tenants: Tenants
    guard: Guard
    rights: ArtifactRights
    reader: ArtifactReader
    replacements: Replacements
    by_hash: ArtifactsByHash | None
    """None: `/v1/compress` and `/v1/retrieve` are passed through like others."""
    mcp: ASGIApp | None = None
    """None: nothing is at `/mcp`."""
    metrics: Metrics
    readiness: Readiness
    notes: Mapping[str, Note]
    """Reported by `/readyz`, although requests do without it."""
    history: History
    overview: Overview
    explainer: Explainer
    running: Callable[[Services], AbstractAsyncContextManager[None]]
    """Holds connections, files and background tasks open."""
    uses: int = 1
    """Requests under way, and one for as long as the next request gets these services."""
    unused: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there are no uses left."""

    def let_go(self) -> None:
        """Give up one use."""
        self.uses -= 1
        if not self.uses:
            self.unused.set()


async def services_of(request: Request) -> Services:
    """The services that a request began with."""
    return cast("Services", request.state.services)


Serving = Annotated[Services, Depends(services_of)]
"""A parameter of an endpoint."""
OPERATOR_KEY: Final = HTTPBearer(
    scheme_name="operator_key",
    description="`server.admin_key`, also as the password of HTTP's Basic. If it is not set, clients on this machine "
    "need none, and others are refused.",
    auto_error=False,  # the guard decides; this is only for the description
)
CLIENT_KEY: Final = HTTPBearer(
    scheme_name="client_key",
    description="The API key of the request that the artifact was taken from; none if that request had none.",
    auto_error=False,
)


async def operator_only(request: Request, services: Serving, _: Annotated[object, Depends(OPERATOR_KEY)]) -> None:
    """A dependency of the operator's endpoints. Raises KeyNeeded and NotFromHere."""
    await services.guard.admit(request.scope)


Check: TypeAlias = Callable[[], Awaitable[str | None]]
"""Why something is not ready; None if it is."""

LOOK_SECONDS: Final = 3.0
"""Longest wait for one check; Kubernetes probes every ten seconds."""
READY_SECONDS: Final = 10.0
"""How long a good result is valid: a probe costs the upstream a request only this often."""
NOT_READY_SECONDS: Final = 2.0
"""How long a bad result is valid: a service that has recovered should be used soon."""


@dataclass
class Ready:
    """Ready, except for requests to an upstream listed as unavailable."""

    status: Literal["ready"]
    unavailable: dict[str, str]
    """What requests do without, and why: of several upstreams those that do not respond (`upstreams[0]`, as in the
    settings), and `state`, the server of what replicas learn; empty: nothing."""


@dataclass
class NotReady:
    """Not ready: no upstream responds, or nothing can be stored."""

    status: Literal["not ready"]
    reasons: Mapping[str, str]
    """What is not ready, `upstream`, `upstreams[0]` or `store`, and why."""


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
        self._problems: Mapping[str, str] = {}
        self._good_until = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def problems(self) -> Mapping[str, str]:
        """The checks that failed when all were last made, which was not long ago, and why."""
        async with self._one_at_a_time:
            if self._clock() >= self._good_until:
                found = await asyncio.gather(*(_checked(check) for check in self._checks.values()))
                self._problems = {name: why for name, why in zip(self._checks, found, strict=True) if why is not None}
                self._good_until = self._clock() + (NOT_READY_SECONDS if self._problems else READY_SECONDS)
            return self._problems

    def is_ready(self, problems: Mapping[str, str]) -> bool:
        """True if requests can be served although these checks failed."""
        return not problems.keys() >= self._upstreams.keys() and self._optional.issuperset(problems)


async def _checked(check: Check) -> str | None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await check()
    except TimeoutError:
        return f"no answer within {LOOK_SECONDS:g} s"


Note: TypeAlias = Callable[[], str | None]
"""Why something that requests do without does not work; None if it does."""


async def upstream_problem(relay: Relay) -> str | None:
    """Why the upstream does not respond at all: a refusal is a response, as the key to use is the client's."""
    try:
        answer = await relay.pass_through("GET", b"/models", [], None)
    except ProxyError as error:
        return error.message
    await answer.aclose()
    return None
