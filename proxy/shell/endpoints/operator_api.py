"""The operator's API: status, decisions, artifacts and pages, as typed endpoints that `/openapi.json` describes.

Rule: FastAPI stands behind these paths and no others, and is loaded when the first of them is asked for: neither what
agents call nor a probe waits for it (docs/decisions/0015-the-operators-api.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.routing import Route
from starlette.types import ASGIApp

from proxy import __version__
from proxy.config.settings import ServerSettings
from proxy.shell.endpoints.artifact_endpoint import add_artifact_endpoint
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH, ArtifactRoute
from proxy.shell.endpoints.dispatch import unknown_path
from proxy.shell.endpoints.endpoint import Endpoint, add_refusals
from proxy.shell.endpoints.guard import Guard
from proxy.shell.endpoints.operator import add_operator_endpoints
from proxy.shell.endpoints.status import add_status_endpoints
from proxy.shell.operator.explaining import Explainer
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry.recent import RecentDecisions

_ABOUT = (
    "What the proxy tells people and machines about itself. What agents call stands under `/v1` and is the upstream's "
    "own API."
)


def create_operator_api(
    server: ServerSettings,
    probes: Mapping[str, ASGIApp],
    metrics: Metrics,
    recent: RecentDecisions,
    explainer: Explainer,
    artifacts: ArtifactRoute,
) -> FastAPI:
    """The API as an ASGI application, for everything outside `/v1/`."""
    app = FastAPI(
        title="context-proxy",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,  # it is served behind the guard, and its page loads nothing from elsewhere
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,  # nothing but answers is described
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.router.route_class = Endpoint
    app.router.default = unknown_path
    add_refusals(app)
    guard = Guard(server.admin_key, server.host_names)

    async def guarded(request: Request) -> None:
        guard.check(request.scope)

    add_status_endpoints(app, probes, metrics)
    add_operator_endpoints(app, guarded, server, recent, explainer)
    add_artifact_endpoint(app, artifacts)
    app.router.routes.append(Route(ARTIFACTS_PATH + "{name}", artifacts))  # refuses every other method
    return app
