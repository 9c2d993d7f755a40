"""What machines ask: whether the process lives, whether it is ready, what it has counted.

Rule: open to everybody who reaches the port, and quick; nothing here names a key or the content of a message.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from proxy.shell.endpoints.answers import Alive, NotReady, Ready
from proxy.shell.endpoints.refusals import parts_of


class _Exposition(Response):
    media_type = CONTENT_TYPE_LATEST


def add_status_endpoints(app: FastAPI) -> None:
    """Serve `/healthz`, `/readyz` and `/metrics`."""

    @app.get("/healthz", summary="Whether the process lives", tags=["status"])
    async def healthz() -> Alive:
        """Always, as long as there is an answer."""
        return Alive()

    @app.get(
        "/readyz",
        summary="Whether requests would be served well",
        tags=["status"],
        responses={503: {"model": NotReady, "description": "The upstream gives no answer, or nothing can be kept."}},
        response_model=Ready,
    )
    async def readyz(request: Request) -> Ready | Response:
        """Asks the upstream and tries the store. The result counts for a while, however many ask."""
        if problems := await parts_of(request).readiness.problems():
            return JSONResponse(NotReady(reasons=dict(problems)).model_dump(), 503)
        return Ready()

    @app.get("/metrics", summary="Counters for Prometheus", tags=["status"], response_class=_Exposition)
    async def exposed(request: Request) -> Response:
        """Of all workers together; docs/metrics.md has each."""
        return _Exposition(parts_of(request).metrics.exposed())
