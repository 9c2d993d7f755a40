"""What the operator's endpoints report on: the parts of the application that received a request.

Rule: they travel with the request, as the endpoints outlive an application whose settings were reloaded, and must not
keep it alive. Nothing here imports FastAPI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.settings import ServerSettings
from proxy.shell.endpoints.artifacts import ArtifactRoute
from proxy.shell.endpoints.guard import Guard
from proxy.shell.operator.explaining import Explainer
from proxy.shell.operator.overview import Overview
from proxy.shell.telemetry.history import History
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry.recent import RecentDecisions

PARTS: Final = "context_proxy.parts"
"""The key in a request's scope."""


class Reloaded(NamedTuple):
    """The outcome of a reload of the settings."""

    status: Literal["reloaded", "unchanged"]
    restart_needed: list[str]
    """Settings that have changed but need a restart."""


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reloads the settings. Raises SettingsRefused."""


class Parts(Struct, frozen=True):
    """Of one application."""

    server: ServerSettings
    guard: Guard
    metrics: Metrics
    probes: Mapping[str, ASGIApp]
    recent: RecentDecisions
    history: History
    overview: Overview
    explainer: Explainer
    artifacts: ArtifactRoute
    reload: Reload | None
    """None: the application runs where nothing can replace it."""


class WithParts:
    """An application that gets these parts with each request."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, PARTS: self._parts}, receive, send)
