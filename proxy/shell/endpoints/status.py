"""What machines ask: whether the process lives, whether it is ready, what it has counted.

Rule: open to everybody who reaches the port, and quick; nothing here names a key or the content of a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp

from proxy.shell.endpoints.answers import Alive, NotReady, Ready
from proxy.shell.endpoints.endpoint import Served
from proxy.shell.endpoints.probes import ALIVE_PATH, READY_PATH
from proxy.shell.telemetry.metrics import Metrics


class _Exposition(Response):
    media_type = CONTENT_TYPE_LATEST


def add_status_endpoints(app: FastAPI, probes: Mapping[str, ASGIApp], metrics: Metrics) -> None:
    """Serve `/metrics`, and describe the probes, whose GET and HEAD do not come this way."""

    @app.get(ALIVE_PATH, summary="Whether the process lives", tags=["status"], response_model=Alive)
    async def healthz() -> Response:
        """Always, as long as there is an answer."""
        return Served(probes[ALIVE_PATH])

    @app.get(
        READY_PATH,
        summary="Whether requests would be served well",
        tags=["status"],
        responses={503: {"model": NotReady, "description": "The upstream gives no answer, or nothing can be kept."}},
        response_model=Ready,
    )
    async def readyz() -> Response:
        """Asks the upstream and tries the store. The result counts for a while, however many ask."""
        return Served(probes[READY_PATH])

    @app.get("/metrics", summary="Counters for Prometheus", tags=["status"], response_class=_Exposition)
    async def exposed() -> Response:
        """Of all workers together; docs/metrics.md has each."""
        return _Exposition(metrics.exposed())
