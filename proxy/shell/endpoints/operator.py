"""The operator's pages: recent decisions, the dry run, the dashboard.

Rule: each of them asks the guard first; none of them shows a key or the content of a message.
"""

from __future__ import annotations

import importlib.resources
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from proxy.config.settings import Settings
from proxy.core.text import jsontext
from proxy.errors import KeyNeeded, MalformedRequest, MethodNotAllowed, ProxyError, UnknownDecision
from proxy.shell.endpoints.guard import Guard
from proxy.shell.http.bodies import can_unpack, read_body, unpack
from proxy.shell.operator.explaining import Explainer
from proxy.shell.telemetry.recent import MAX_DECISIONS, RecentDecisions
from proxy.wire.openai_chat import error_body

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_DEFAULT_LIMIT: Final = 50
_DASHBOARD_TYPES: Final = {"index.html": "text/html", "dashboard.css": "text/css", "dashboard.js": "text/javascript"}
"""The files of the dashboard; nothing else is served from its folder."""
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def add_operator_routes(app: FastAPI, settings: Settings, recent: RecentDecisions, explainer: Explainer) -> None:
    """Serve `/`, `/decisions`, `/decisions/{request_id}` and `/explain`."""
    guard = Guard(settings.server.admin_key, settings.server.host_names)
    workers, max_body_bytes = settings.server.workers, settings.server.max_body_bytes
    pause_seconds = settings.server.body_timeout_seconds

    async def decisions(request: Request) -> Response:
        return _json(recent.described(_limit(request), workers))

    async def decision(request: Request) -> Response:
        found = recent.find(request.path_params["request_id"])
        if found is None:
            others = f"; each of the {workers} workers remembers its own, so ask again" if workers > 1 else ""
            raise UnknownDecision(f"no request of this id is remembered by this process{others}")
        return _json(found.detail())

    async def explain(request: Request) -> Response:
        announced = request.headers.get("content-length", "")
        length = int(announced) if announced.isdigit() else 0
        body = await read_body(request.receive, length, max_body_bytes, pause_seconds)
        explanation = await explainer.explain(_unpacked(body, request, max_body_bytes))
        return _json(explanation.described())

    for path, method, handler in (
        ("/decisions", "GET", decisions),
        ("/decisions/{request_id:path}", "GET", decision),  # a client's id may hold a slash
        ("/explain", "POST", explain),
        ("/", "GET", _page("index.html")),
        *((f"/dashboard/{name}", "GET", _page(name)) for name in _DASHBOARD_TYPES),
    ):
        app.router.routes.append(Route(path, _guarded(guard, handler), methods=[method]))
    app.add_exception_handler(405, _wrong_method)


def _guarded(guard: Guard, handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            guard.check(request)
            return await handler(request)
        except ProxyError as error:
            return _refusal(error)

    return answer


async def _wrong_method(_: Request, refused: Exception) -> Response:
    """What the framework refuses, in OpenAI's shape like all else."""
    assert isinstance(refused, HTTPException)
    allowed = ", ".join(sorted((refused.headers or {})["Allow"].split(", ")))
    answer = _refusal(MethodNotAllowed(f"this path is asked with {allowed}"))
    answer.headers["allow"] = allowed
    return answer


def _page(name: str) -> Handler:
    """Serves a file of the dashboard."""
    content = importlib.resources.files("proxy").joinpath("dashboard", name).read_bytes()
    headers = _HEADERS | _PAGE_HEADERS

    async def answer(_: Request) -> Response:
        return Response(content, media_type=_DASHBOARD_TYPES[name], headers=headers)

    return answer


def _limit(request: Request) -> int:
    """How many decisions are asked for. Raises MalformedRequest."""
    asked = request.query_params.get("limit", str(_DEFAULT_LIMIT))
    if not (asked.isascii() and asked.isdigit() and len(asked) < 10 and 1 <= int(asked) <= MAX_DECISIONS):
        raise MalformedRequest(f"`limit` must be a number from 1 to {MAX_DECISIONS}", param="limit")
    return int(asked)


def _unpacked(body: bytes, request: Request, max_bytes: int) -> bytes:
    encoding = request.headers.get("content-encoding", "").lower().encode("latin-1")
    if not encoding or encoding == b"identity":
        return body
    if not can_unpack(encoding):
        raise MalformedRequest("the body has a compression that the proxy cannot read; gzip and deflate can be")
    return unpack(body, encoding, max_bytes)


def _json(found: Mapping[str, Any]) -> Response:
    return Response(jsontext.dump(found), media_type="application/json", headers=_HEADERS)


def _refusal(error: ProxyError) -> Response:
    headers = {**_HEADERS, "x-request-id": f"req-{secrets.token_hex(8)}"}
    if isinstance(error, KeyNeeded):
        headers["www-authenticate"] = 'Basic realm="context-proxy", charset="UTF-8"'
    return Response(error_body(error), error.status, headers, "application/json")
