"""What the endpoints use, made from one set of settings, and what of it serves the next request.

Rule: a request keeps the services that it began with, to its last byte; a reload gives others to the next one. FastAPI
outlives them all, so each request carries its services in its scope, and the application refers to the current ones
only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, TypeAlias

from fastapi import Request
from msgspec import Struct
from starlette.types import ASGIApp

from proxy.config.settings import ServerSettings
from proxy.shell.endpoints.artifacts import ArtifactRoute
from proxy.shell.endpoints.compress_api import CompressApi
from proxy.shell.endpoints.dispatch import FittedEndpoint, PassThrough
from proxy.shell.endpoints.guard import Guard
from proxy.shell.operator.explaining import Explainer
from proxy.shell.operator.overview import Overview
from proxy.shell.operator.readiness import Note, Readiness
from proxy.shell.resources.workload import forget_what_is_gone
from proxy.shell.telemetry.history import History
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
    """Of the default upstream's base URL."""
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
    """What `/readyz` reports although requests do without it."""
    history: History
    overview: Overview
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
        await asyncio.shield(self._life)  # whoever gives up waiting must not break it off

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
