"""What the operator's endpoints speak for: the parts of the application that a request came to.

Rule: they travel with the request, as the endpoints outlive an application whose settings were read again, and must not
keep it alive. Nothing here loads FastAPI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.settings import ServerSettings
from proxy.shell.endpoints.artifacts import ArtifactRoute
from proxy.shell.endpoints.guard import Guard
from proxy.shell.operator.explaining import Explainer
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry.recent import RecentDecisions

PARTS: Final = "context_proxy.parts"
"""The key in a request's scope."""


class Reloaded(NamedTuple):
    """What came of reading the settings again."""

    status: Literal["reloaded", "unchanged"]
    restart_needed: list[str]
    """Settings that are written otherwise now and cannot change while the proxy runs."""


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reads the settings again. Raises SettingsRefused."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Of one application."""

    server: ServerSettings
    guard: Guard
    metrics: Metrics
    probes: Mapping[str, ASGIApp]
    recent: RecentDecisions
    explainer: Explainer
    artifacts: ArtifactRoute
    reload: Reload | None
    """None: nobody runs this application who could put another in its place."""


class WithParts:
    """An application that gets these parts with each request."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, PARTS: self._parts}, receive, send)
