"""The proxy's endpoints, path by path."""

from proxy.shell.endpoints.api import create_api
from proxy.shell.endpoints.guard import ArtifactRights, Guard, listens_here_only
from proxy.shell.endpoints.responses import shaped
from proxy.shell.endpoints.services import (
    NOT_READY_SECONDS,
    READY_SECONDS,
    Note,
    NotReady,
    Readiness,
    Reloaded,
    Services,
    upstream_problem,
)

__all__ = [
    "NOT_READY_SECONDS",
    "READY_SECONDS",
    "ArtifactRights",
    "Guard",
    "NotReady",
    "Note",
    "Readiness",
    "Reloaded",
    "Services",
    "create_api",
    "listens_here_only",
    "shaped",
    "upstream_problem",
]
