"""The operator's endpoints: status, decisions, the dry run, the description of the API, the dashboard.

Rule: status is quick, and open to everybody who reaches the port; everything else calls the guard first. None of them
shows a key or the content of a message.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BeforeValidator
from typing_extensions import TypedDict

from proxy.core.text import jsontext
from proxy.errors import MalformedRequest, UnknownDecision, UnknownPath
from proxy.shell.endpoints.events import EventStream
from proxy.shell.endpoints.refusals import (
    HEADERS,
    MAX_CONVERSATIONS,
    MAX_WORDS_CHARACTERS,
    OPERATOR_KEY,
    REFUSED,
    Endpoint,
    guarded,
    shaped,
)
from proxy.shell.endpoints.services import Reload, services_of
from proxy.shell.http.bodies import can_unpack, read_body, unpack
from proxy.shell.operator.api_page import api_page
from proxy.shell.operator.explaining import DryRun
from proxy.shell.operator.overview import MAX_HOURS, AllSums, Decisions, ModelSums, OverviewFigures, PricedDetail
from proxy.shell.operator.readiness import NotReady, Ready
from proxy.shell.telemetry.ledger import MAX_DECISIONS, Wanted
from proxy.shell.telemetry.record import Conversation

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
    """Only digits: pydantic also reads `+5`, `5.0` and `1_0` as numbers."""
    if isinstance(asked, str) and not (asked.isascii() and asked.isdigit() and len(asked) < 17):
        raise ValueError("is no number")
    return asked


_Limit = Annotated[
    int, Query(ge=1, le=MAX_DECISIONS, description="How many requests, at most."), BeforeValidator(_plain)
]
_Before = Annotated[
    int | None,
    Query(ge=1, description="Only requests before this one, by its `id`: the next page."),
    BeforeValidator(_plain),
]
_Words = Annotated[
    str,
    Query(
        max_length=MAX_WORDS_CHARACTERS,
        description="Only requests that have all these words in their id, model, outcome, reasons, problem, upstream "
        "or conversation.",
    ),
]
_Show = Annotated[
    Literal["all", "changed", "troubled"],
    Query(
        description="`changed`: edited; `troubled`: failed, refused, sent twice or with a warning.",
    ),
]
_Hours = Annotated[int, Query(ge=1, le=MAX_HOURS, description="How many hours back."), BeforeValidator(_plain)]
_Some = Annotated[
    int, Query(ge=1, le=MAX_CONVERSATIONS, description="How many conversations, at most."), BeforeValidator(_plain)
]
_Conversation = Annotated[str, Query(max_length=64, description="Only the requests of this conversation.")]


class Exposition(Response):
    """The format of Prometheus."""

    media_type = CONTENT_TYPE_LATEST


class Alive(TypedDict):
    """The process is alive."""

    status: Literal["ok"]


class ReloadedHere(TypedDict):
    """The outcome of a reload of the settings."""

    status: Literal["reloaded", "unchanged"]
    """Of the worker that responds; the others are notified."""
    restart_needed: list[str]
    """Settings that have changed but need a restart: they keep their old values."""
    workers: int
    """Processes that share the port."""


class Conversations(TypedDict):
    """The latest conversations."""

    conversations: list[Conversation]


status = APIRouter(route_class=Endpoint, tags=["status"])
operator = APIRouter(route_class=Endpoint, dependencies=[Depends(guarded), Depends(OPERATOR_KEY)], responses=REFUSED)
pages = APIRouter(route_class=Endpoint, dependencies=[Depends(guarded)], include_in_schema=False)


@status.get("/healthz", summary="Whether the process is alive", response_model=shaped(Alive))
async def healthz() -> Response:
    """Always, as long as there is a response."""
    return _json(Alive(status="ok"))


@status.get(
    "/readyz",
    summary="Whether requests would be served well",
    responses={503: {"model": shaped(NotReady), "description": "No upstream responds, or nothing can be stored."}},
    response_model=shaped(Ready),
)
async def readyz(request: Request) -> Response:
    """Asks the upstream and tests the store. The result is valid for a while, however many ask."""
    services = services_of(request)
    is_ready, problems = await services.readiness.looked()
    if not is_ready:
        not_ready: NotReady = {"status": "not ready", "reasons": problems}
        return _json(not_ready, 503)
    noted = {name: why for name, note in services.notes.items() if (why := note()) is not None}
    unavailable = {**problems, **noted}
    ready: Ready = {"status": "ready"}
    if unavailable:
        ready["unavailable"] = unavailable
    return _json(ready)


@status.get("/metrics", summary="Counters for Prometheus", response_class=Exposition)
async def exposed(request: Request) -> Response:
    """Of all workers together; docs/metrics.md describes each."""
    return Exposition(services_of(request).metrics.exposed())


@operator.get(
    "/decisions",
    summary="The latest requests",
    tags=["decisions"],
    response_model=shaped(Decisions),
)
async def decisions(
    request: Request,
    limit: _Limit = _DEFAULT_LIMIT,
    before: _Before = None,
    q: _Words = "",
    show: _Show = "all",
    conversation: _Conversation = "",
) -> Response:
    """Of all workers, and with `state.url` of all replicas, the newest first: sizes, names and reasons, never
    content. With `decisions.stored: 0` only of the process that responds, since its start."""
    services = services_of(request)
    wanted = Wanted(limit, before, q, show == "changed", show == "troubled", conversation)
    return _json(await services.overview.decisions(wanted, services.server.workers))


@operator.get(
    "/overview",
    summary="Whether all is well, and what was saved",
    tags=["decisions"],
    response_model=shaped(OverviewFigures, AllSums, ModelSums),
)
async def overview(request: Request, hours: _Hours = 24) -> Response:
    """Upstreams, models, money by list prices, and a time line, of all workers. Asks the upstreams whether they
    answer, at most every ten seconds."""
    return _json(await services_of(request).overview.of(hours))


@operator.get(
    "/conversations",
    summary="The latest conversations",
    tags=["decisions"],
    response_model=shaped(Conversations),
)
async def conversations(request: Request, limit: _Some = 20) -> Response:
    """Each with the sizes of its latest turns: how it grew, and where it was cut."""
    return _json(Conversations(conversations=await services_of(request).history.conversations(limit)))


@operator.get(
    "/events",
    summary="Requests as they happen",
    tags=["decisions"],
    response_class=EventStream,
    responses={
        200: {
            "description": "Server-sent events, each with `decisions` that have finished, the newest first, and "
            "all that are `running`, as `/decisions` has them.",
            "content": {"text/event-stream": {}},
        }
    },
)
async def events() -> Response:
    """Begins with the next change; ends after a minute, so that the client connects again."""
    return EventStream()


@operator.get(
    "/decisions/{request_id:path}",  # a client's id may contain a slash
    summary="One request, message by message",
    tags=["decisions"],
    response_model=shaped(PricedDetail),
)
async def decision(request: Request, request_id: str) -> Response:
    """The newest with this id, which is the header `x-request-id` of its response; also one under way in the worker
    that responds. The messages only of requests that were edited, or had at most 50 of them; of other replicas, only of
    edited ones."""
    services = services_of(request)
    found = await services.history.find(request_id)
    if found is None:
        is_kept, workers = services.history.is_kept, services.server.workers
        others = f"; each of the {workers} workers remembers its own, so ask again"
        raise UnknownDecision(f"no request of this id is remembered{others if workers > 1 and not is_kept else ''}")
    return _json(await services.overview.priced(found))


@operator.post(
    "/explain",
    summary="What would be done to a chat request",
    tags=["decisions"],
    response_model=shaped(DryRun),
    openapi_extra=_CHAT_REQUEST,
)
async def explain(request: Request) -> Response:
    """A dry run: nothing is sent or stored."""
    services = services_of(request)
    max_body_bytes, pause_seconds = services.server.max_body_bytes, services.server.body_timeout_seconds
    announced = request.headers.get("content-length", "")
    length = int(announced) if announced.isdigit() else 0
    body = await read_body(request.receive, length, max_body_bytes, pause_seconds)
    explanation = await services.explainer.explain(_unpacked(body, request, max_body_bytes))
    return _json(explanation.described())


@operator.post(
    "/-/reload",
    summary="Reload the settings",
    tags=["status"],
    response_model=shaped(ReloadedHere),
)
async def reload_settings(request: Request) -> Response:
    """As SIGHUP does: running responses end with the settings that they began with, and invalid settings change
    nothing (422, with a line for each mistake)."""
    reload: Reload | None = request.app.state.reload
    if reload is None:
        raise UnknownPath("the settings can be reloaded only where `context-proxy serve` runs")
    status, restart_needed = await reload()
    workers = services_of(request).server.workers
    return _json(ReloadedHere(status=status, restart_needed=restart_needed, workers=workers))


@status.head("/", include_in_schema=False)
async def here() -> Response:
    """For clients that check whether the server is there."""
    return Response(media_type="text/html")


@pages.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The description of the API."""
    return _json(request.app.openapi())


@pages.get("/docs")
async def docs(request: Request) -> Response:
    """The same for people."""
    page = api_page(request.app.openapi())
    return Response(page, media_type="text/html", headers=HEADERS | _PAGE_HEADERS)


@pages.get("/")
async def index() -> Response:
    """The dashboard."""
    return _file("index.html")


@pages.get("/dashboard/{name}")
async def part_of_page(name: str) -> Response:
    """What the dashboard loads."""
    return _file(name)


ROUTERS: Final = (status, operator, pages)


@functools.cache
def _content(name: str) -> bytes:
    return importlib.resources.files("proxy").joinpath("dashboard", name).read_bytes()


def _file(name: str) -> Response:
    """A file of the dashboard."""
    if name not in _DASHBOARD_TYPES:
        raise UnknownPath("the dashboard has no such file")
    return Response(_content(name), media_type=_DASHBOARD_TYPES[name], headers=HEADERS | _PAGE_HEADERS)


def _unpacked(body: bytes, request: Request, max_bytes: int) -> bytes:
    encoding = ",".join(request.headers.getlist("content-encoding")).lower().encode("latin-1")
    if not encoding or encoding == b"identity":
        return body
    if not can_unpack(encoding):
        raise MalformedRequest(
            "the body has a compression that the proxy cannot read; gzip, deflate, zstd and br can be"
        )
    return unpack(body, encoding, max_bytes)


def _json(found: Mapping[str, Any], status_code: int = 200) -> Response:
    return Response(jsontext.dump(found), status_code, HEADERS, "application/json")
