"""What machines ask: whether the process is alive, whether it is ready, what it has counted.

Rule: open to everybody who reaches the port, and quick; nothing here names a key or the content of a message.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import Receive, Scope, Send

from proxy.shell.endpoints.answers import Alive, NotReady, Ready
from proxy.shell.endpoints.parts import PARTS, Parts
from proxy.shell.endpoints.probes import ALIVE_PATH, READY_PATH
from proxy.shell.endpoints.refusals import parts_of


class _Exposition(Response):
    media_type = CONTENT_TYPE_LATEST


class _Probe(Response):
    """The response of the probe itself, which FastAPI only describes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: Parts = scope[PARTS]
        await parts.probes[scope["path"]](scope, receive, send)


def add_status_endpoints(app: FastAPI) -> None:
    """Serve `/metrics`, and describe the probes, whose GET and HEAD are served elsewhere."""

    @app.get(ALIVE_PATH, summary="Whether the process is alive", tags=["status"], response_model=Alive)
    async def healthz() -> Response:
        """Always, as long as there is a response."""
        return _Probe()

    @app.get(
        READY_PATH,
        summary="Whether requests would be served well",
        tags=["status"],
        responses={503: {"model": NotReady, "description": "No upstream responds, or nothing can be stored."}},
        response_model=Ready,
    )
    async def readyz() -> Response:
        """Asks the upstream and tests the store. The result is valid for a while, however many ask."""
        return _Probe()

    @app.get("/metrics", summary="Counters for Prometheus", tags=["status"], response_class=_Exposition)
    async def exposed(request: Request) -> Response:
        """Of all workers together; docs/metrics.md describes each."""
        return _Exposition(parts_of(request).metrics.exposed())
