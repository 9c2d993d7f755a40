"""The operator's API: status, decisions, artifacts and pages, as typed endpoints that `/openapi.json` describes.

Rule: FastAPI serves these paths and no others, and is imported when the first of them is requested: neither agents nor
probes wait for it (docs/decisions/0015-the-operators-api.md). It is created once for a process and holds nothing of an
application, as its caches live as long as the process.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Route

from proxy import __version__
from proxy.shell.endpoints.artifact_endpoint import WhatIsKept, add_artifact_endpoint
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH
from proxy.shell.endpoints.dispatch import unknown_path
from proxy.shell.endpoints.operator import add_operator_endpoints
from proxy.shell.endpoints.refusals import Endpoint, add_refusals
from proxy.shell.endpoints.status import add_status_endpoints

_ABOUT = (
    "What the proxy tells people and machines about itself. The API for agents is under `/v1` and is the upstream's "
    "own API."
)


def create_operator_api() -> FastAPI:
    """The API as an ASGI application, for everything outside `/v1/`; each request carries its Parts."""
    app = FastAPI(
        title="context-proxy",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,  # it is served behind the guard, and its page loads nothing from elsewhere
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,  # only responses are described
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
    add_status_endpoints(app)
    add_operator_endpoints(app)
    add_artifact_endpoint(app)
    app.router.routes.append(Route(ARTIFACTS_PATH + "{name}", WhatIsKept()))  # refuses every other method
    return app
