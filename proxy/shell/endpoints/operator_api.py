"""The operator's API: status, decisions, artifacts and pages, as typed endpoints that `/openapi.json` describes.

Rule: FastAPI serves these paths and no others, and is imported when the first of them is requested: neither agents nor
probes wait for it (docs/decisions/0015-the-operators-api.md). It is created once for a process and holds nothing of an
application, as its caches live as long as the process. Status is open to everybody who reaches the port, and quick;
it names no key and no content. Nothing is checked twice: the description says what a parameter may be, and the core's
query refuses the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import WithJsonSchema
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.core.artifact_reading.search import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
)
from proxy.shell.endpoints.answers import Alive, ArtifactStat, NotReady, Ready
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH
from proxy.shell.endpoints.dispatch import unknown_path
from proxy.shell.endpoints.operator import add_operator_endpoints
from proxy.shell.endpoints.parts import PARTS, Parts
from proxy.shell.endpoints.probes import ALIVE_PATH, READY_PATH
from proxy.shell.endpoints.refusals import CLIENT_KEY, REFUSED, Endpoint, add_refusals, parts_of


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


_WHOLE: Final = {"schema": {"type": "string", "format": "binary"}}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSED,
    200: {
        "model": ArtifactStat,
        "description": "The whole with its own type; a page as plain text, after a line that says what the page "
        "shows, of how much, and how to continue; for `stat`, a description.",
        "content": {"text/plain": {"schema": {"type": "string"}}, "*/*": _WHOLE},
    },
    206: {"description": "A range of bytes.", "content": {"*/*": _WHOLE}},
}

_Name = Annotated[str, Path(description="The name in a notice: `tool_NAME_0123456789abcdef.txt`.")]
_Lines = Annotated[
    str | None,
    Query(
        description="A page: `400-480`, `400-`, `-80` (the last 80), `5:48000-80` (from byte 48000 of line 5 on).",
    ),
    WithJsonSchema({"type": "string"}),
]
_Grep = Annotated[
    str | None,
    Query(description="Lines that match, with the syntax of RE2; alone, or within `lines`."),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARACTERS}),
]
_Context = Annotated[
    str | None,
    Query(description=f"Lines before and after each match of `grep`, {CONTEXT} by default."),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT}),
]
_Max = Annotated[
    str | None,
    Query(description=f"Most matches of `grep`, {HITS} by default."),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_HITS}),
]
_Pointer = Annotated[
    str | None,
    Query(description="A part of JSON: `/messages/3/content`. `lines` and `grep` then apply to that part."),
    WithJsonSchema({"type": "string", "maxLength": MAX_POINTER_CHARACTERS}),
]
_Stat = Annotated[str | None, Query(description="Its metadata; used alone."), WithJsonSchema({"type": "string"})]
_Instead = Annotated[
    str | None,
    Query(
        description="The id of one of the latest requests: what stood in place of the artifact there, as text; for "
        "messages that are left out, the text with the note about them. Used alone."
    ),
    WithJsonSchema({"type": "string"}),
]
_Range = Annotated[
    str | None,
    Header(description="One range of bytes of the whole: `bytes=0-1023`, `bytes=-500`."),
    WithJsonSchema({"type": "string"}),
]


class WhatIsKept(Response):
    """The response of the store's own route to the same request, byte for byte."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: Parts = scope[PARTS]
        await parts.artifacts(scope, receive, send)


def add_artifact_endpoint(app: FastAPI) -> None:
    """Serve `/artifacts/{name}` with GET and HEAD."""

    @app.get(
        ARTIFACTS_PATH + "{name}",
        summary="Content taken out of a request",
        tags=["artifacts"],
        dependencies=[Depends(CLIENT_KEY)],
        response_class=Response,
        responses=_RESPONSES,
    )
    async def artifact(
        name: _Name,
        lines: _Lines = None,
        grep: _Grep = None,
        context: _Context = None,
        max: _Max = None,
        json: _Pointer = None,
        stat: _Stat = None,
        instead: _Instead = None,
        range: _Range = None,
    ) -> Response:
        """The whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or what stands in its
        place."""
        del name, lines, grep, context, max, json, stat, instead, range  # the route reads the request itself
        return WhatIsKept()


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
