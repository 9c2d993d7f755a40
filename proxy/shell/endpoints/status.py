"""What machines ask: whether the process lives, whether it is ready, what it has counted.

Rule: open to everybody who reaches the port, and quick; nothing here names a key or the content of a message.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.routing import Route

from proxy.shell.operator.readiness import Readiness
from proxy.shell.telemetry.metrics import Metrics


def add_status_routes(app: FastAPI, metrics: Metrics, readiness: Readiness) -> None:
    """Serve `/healthz`, `/readyz` and `/metrics`."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        if problems := await readiness.problems():
            return JSONResponse({"status": "not ready", "reasons": problems}, 503)
        return JSONResponse({"status": "ready"})

    async def exposed(_: Request) -> Response:
        return Response(metrics.exposed(), media_type=CONTENT_TYPE_LATEST)

    for path, handler in (("/healthz", healthz), ("/readyz", readyz), ("/metrics", exposed)):
        app.router.routes.append(Route(path, handler, methods=["GET"]))
