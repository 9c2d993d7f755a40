"""The proxy's endpoints, path by path."""

from proxy.shell.endpoints.api import EachRequest, create_api
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH, ArtifactRoute
from proxy.shell.endpoints.compress_api import CompressApi
from proxy.shell.endpoints.dispatch import FittedEndpoint, PassThrough
from proxy.shell.endpoints.guard import ArtifactRights, Guard, listens_here_only
from proxy.shell.endpoints.operator import ROUTERS
from proxy.shell.endpoints.responses import shaped
from proxy.shell.endpoints.services import (
    NOT_READY_SECONDS,
    READY_SECONDS,
    Current,
    Note,
    NotReady,
    Readiness,
    Reloaded,
    Services,
    upstream_check,
)

__all__ = [
    "ARTIFACTS_PATH",
    "NOT_READY_SECONDS",
    "READY_SECONDS",
    "ROUTERS",
    "ArtifactRights",
    "ArtifactRoute",
    "CompressApi",
    "Current",
    "EachRequest",
    "FittedEndpoint",
    "Guard",
    "NotReady",
    "Note",
    "PassThrough",
    "Readiness",
    "Reloaded",
    "Services",
    "create_api",
    "listens_here_only",
    "shaped",
    "upstream_check",
]
