"""The operator's endpoints: recent decisions, the dry run, the description of the API, the dashboard.

Rule: each of them asks the guard first; none of them shows a key or the content of a message.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends, FastAPI, Query, Request, Response
from pydantic import BeforeValidator

from proxy.config.settings import ServerSettings
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest, UnknownDecision
from proxy.shell.endpoints import answers
from proxy.shell.endpoints.endpoint import HEADERS, OPERATOR_KEY, REFUSED
from proxy.shell.http.bodies import can_unpack, read_body, unpack
from proxy.shell.operator.api_page import api_page
from proxy.shell.operator.explaining import Explainer
from proxy.shell.telemetry.recent import MAX_DECISIONS, RecentDecisions

Handler: TypeAlias = Callable[[], Awaitable[Response]]

_DEFAULT_LIMIT: Final = 50
_DASHBOARD_TYPES: Final = {
    "index.html": "text/html",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "api.css": "text/css",
}
"""The files of the dashboard; nothing else is served from its folder."""
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_CHAT_REQUEST: Final = {
    "requestBody": {
        "required": True,
        "description": "The body of a chat request, as an agent would send it; gzip and deflate are read.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "model": {"type": "string"},
                        "messages": {"type": "array", "items": {"type": "object"}},
                    },
                    "required": ["messages"],
                }
            }
        },
    }
}


def _plain(asked: object) -> object:
    """Digits and nothing else: pydantic reads `+5`, `5.0` and `1_0` as numbers, too."""
    if isinstance(asked, str) and not (asked.isascii() and asked.isdigit() and len(asked) < 10):
        raise ValueError("is no number")
    return asked


_Limit = Annotated[
    int, Query(ge=1, le=MAX_DECISIONS, description="How many requests, at most."), BeforeValidator(_plain)
]


def add_operator_endpoints(
    app: FastAPI,
    guarded: Callable[..., Awaitable[None]],
    server: ServerSettings,
    recent: RecentDecisions,
    explainer: Explainer,
) -> None:
    """Serve `/decisions`, `/decisions/{request_id}`, `/explain`, `/openapi.json`, `/docs` and the dashboard at `/`."""
    dependencies = [Depends(guarded), Depends(OPERATOR_KEY)]

    @app.get(
        "/decisions",
        summary="The latest requests",
        tags=["decisions"],
        dependencies=dependencies,
        response_model=answers.Decisions,
        responses=REFUSED,
    )
    async def decisions(limit: _Limit = _DEFAULT_LIMIT) -> Response:
        """Of the process that answers, the newest first: sizes, names and reasons, never content."""
        return _json(recent.described(limit, server.workers))

    @app.get(
        "/decisions/{request_id:path}",  # a client's id may hold a slash
        summary="One request, message by message",
        tags=["decisions"],
        dependencies=dependencies,
        response_model=answers.DecisionDetail,
        responses=REFUSED,
    )
    async def decision(request_id: str) -> Response:
        """The newest of this id, which stands in the header `x-request-id` of its answer."""
        found = recent.find(request_id)
        if found is None:
            others = f"; each of the {server.workers} workers remembers its own, so ask again"
            raise UnknownDecision(
                f"no request of this id is remembered by this process{others if server.workers > 1 else ''}"
            )
        return _json(found.detail())

    @app.post(
        "/explain",
        summary="What would be done to a chat request",
        tags=["decisions"],
        dependencies=dependencies,
        response_model=answers.Explanation,
        responses=REFUSED,
        openapi_extra=_CHAT_REQUEST,
    )
    async def explain(request: Request) -> Response:
        """A dry run: nothing is sent, nothing is stored."""
        announced = request.headers.get("content-length", "")
        length = int(announced) if announced.isdigit() else 0
        body = await read_body(request.receive, length, server.max_body_bytes, server.body_timeout_seconds)
        explanation = await explainer.explain(_unpacked(body, request, server.max_body_bytes))
        return _json(explanation.described())

    async def openapi() -> Response:
        return _json(app.openapi())

    async def docs() -> Response:
        page = api_page(app.openapi())
        return Response(page, media_type="text/html", headers=HEADERS | _PAGE_HEADERS)

    for path, handler in (
        ("/openapi.json", openapi),
        ("/docs", docs),
        ("/", _file("index.html")),
        *((f"/dashboard/{name}", _file(name)) for name in _DASHBOARD_TYPES),
    ):
        app.add_api_route(path, handler, dependencies=[Depends(guarded)], include_in_schema=False)


def _file(name: str) -> Handler:
    """Serves a file of the dashboard."""
    content = importlib.resources.files("proxy").joinpath("dashboard", name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=_DASHBOARD_TYPES[name], headers=HEADERS | _PAGE_HEADERS)

    return answer


def _unpacked(body: bytes, request: Request, max_bytes: int) -> bytes:
    encoding = request.headers.get("content-encoding", "").lower().encode("latin-1")
    if not encoding or encoding == b"identity":
        return body
    if not can_unpack(encoding):
        raise MalformedRequest("the body has a compression that the proxy cannot read; gzip and deflate can be")
    return unpack(body, encoding, max_bytes)


def _json(found: Mapping[str, Any]) -> Response:
    return Response(jsontext.dump(found), media_type="application/json", headers=HEADERS)
