"""The operator's endpoints: status, decisions, requests as they happen, the dry run, the dashboard.

Rule: status is quick, and open to anyone who can reach the port; everything else calls the guard first. None of them
shows a key or the content of a message. A stream of events looks at the history twice a second and sends what is new;
it ends when its client leaves, when the server stops, and after a minute, so that it keeps no services alive whose
settings were replaced; the browser then connects again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

import proxy
from proxy.core.text import jsontext
from proxy.errors import TooManyListeners, UnknownDecision, UnknownPath
from proxy.shell.endpoints.responses import (
    HEADERS,
    REFUSED,
    shaped,
)
from proxy.shell.endpoints.services import NotReady, Ready, Reloaded, Serving, operator_only
from proxy.shell.http import STATE_KEY, read_plain_body
from proxy.shell.operator import (
    MAX_HOURS,
    NONCE_HEADER,
    PROOF_HEADER,
    Decisions,
    DryRun,
    OverviewFigures,
    Page,
    Status,
    is_proven,
    proof_of,
)
from proxy.shell.telemetry import MAX_DECISIONS, MAX_TURNS, Conversation, RequestOutcome, Table

LOOK_SECONDS: Final = 0.5
LIFE_SECONDS: Final = 60.0
MAX_LISTENERS: Final = 16
"""Limit per process: each costs two queries a second."""
MAX_AT_ONCE: Final = 100
"""Decisions in one event: a page that missed more reloads its list."""
MAX_CONVERSATIONS: Final = 100
"""In one response."""
_LARGEST_ID: Final = 2**53
"""The largest whole number that every reader of JSON keeps."""
listeners: Final = asyncio.Semaphore(MAX_LISTENERS)
_FOLDER: Final = Path(proxy.__file__).parent / "dashboard"
_DASHBOARD_TYPES: Final = {
    "index.html": "text/html",
    "api.html": "text/html",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "strip.js": "text/javascript",
    "strip.css": "text/css",
    "api.css": "text/css",
}
"""The files of the dashboard; nothing else is served from its folder."""
PAGE_HEADERS: Final = {
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


class Search(BaseModel):
    """Which requests are listed."""

    limit: int = Field(50, ge=1, le=MAX_DECISIONS, description="How many requests, at most.")
    before: int | SkipJsonSchema[None] = Field(
        None, ge=1, le=_LARGEST_ID, description="Only requests before this one, by its `id`: the next page."
    )
    q: str = Field(
        "",
        max_length=200,
        description="Only requests that have all these words in their id, model, outcome, reasons, problem, upstream "
        "or conversation.",
    )
    show: Literal["all", "changed", "troubled", "cured", "warned", "guessed"] = Field(
        "all",
        description="`changed`: edited; `troubled`: not answered; `cured`: answered after a refusal; `warned`: with a "
        "warning; `guessed`: longer than half of a window that no source states.",
    )
    conversation: str = Field("", max_length=64, description="Only the requests of this conversation.")
    model: str = Field("", max_length=256, description="Only requests with this one; `-`: without any.")
    client: str = Field("", max_length=256, description="Only requests with this one.")
    upstream: str = Field("", max_length=256, description="Only requests that were sent to this host; `-`: to none.")
    status: str = Field(
        "",
        pattern=rf"^([1-9][0-9]{{2}}|[1-9]xx|failed|{'|'.join(RequestOutcome)})?$",
        description="Only requests with this status: `401`, `5xx`; or with this outcome; or, for `failed`, with one "
        "that is the upstream's or the proxy's fault.",
    )
    hours: int | SkipJsonSchema[None] = Field(
        None, ge=1, le=MAX_HOURS, description="Only requests of so many hours; left out: all."
    )
    since: float | SkipJsonSchema[None] = Field(
        None, ge=0, description="Only requests that ended since then, Unix time; instead of `hours`."
    )


_Hours = Annotated[
    int | SkipJsonSchema[None],
    Query(
        ge=1,
        le=MAX_HOURS,
        description="How many hours back; left out: an hour, a day, a week or two, as the data asks.",
    ),
]
_Some = Annotated[int, Query(ge=1, le=MAX_CONVERSATIONS, description="How many conversations, at most.")]
_Turns = Annotated[int, Query(ge=1, le=MAX_TURNS, description="How many turns of each, at most: the latest.")]
_Named = Annotated[str, Query(max_length=64, description="Only this one, by its name.")]


@dataclass
class Alive:
    """The process is alive."""

    status: Literal["ok"]


@dataclass
class Conversations:
    """The latest conversations."""

    conversations: list[Conversation]


async def one_listener() -> AsyncIterator[None]:
    """A dependency that counts those who follow what happens. Raises TooManyListeners."""
    if listeners.locked():
        raise TooManyListeners(f"{MAX_LISTENERS} pages are listening already; /decisions has the same")
    async with listeners:
        yield


status = APIRouter(tags=["status"])
operator = APIRouter(dependencies=[Depends(operator_only)], responses=REFUSED)
pages = APIRouter(dependencies=[Depends(operator_only)], tags=["pages"])


@status.get("/healthz/", include_in_schema=False)
@status.get("/healthz", summary="Whether the process is alive", response_model=shaped(Alive))
async def healthz() -> Response:
    """Always 200."""
    return json_response(Alive("ok"))


@status.get("/readyz/", include_in_schema=False)
@status.get(
    "/readyz",
    summary="Readiness check",
    responses={503: {"model": shaped(NotReady), "description": "No upstream responds, or nothing can be stored."}},
    response_model=shaped(Ready),
)
async def readyz(services: Serving) -> Response:
    """Asks the upstream and tests the store. The result is valid for a while, however many ask."""
    problems = await services.readiness.problems()
    if not services.readiness.is_ready(problems):
        return json_response(NotReady("not ready", problems), 503)
    noted = {name: why for name, note in services.notes.items() if (why := note()) is not None}
    return json_response(Ready("ready", {**problems, **noted}))


@status.get("/metrics/", include_in_schema=False)
@status.get(
    "/metrics",
    summary="Counters for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}},
)
async def exposed(services: Serving) -> Response:
    """Metrics of all workers together; docs/metrics.md describes each."""
    return Response(await asyncio.to_thread(services.metrics.exposed), media_type=CONTENT_TYPE_LATEST)


@operator.get(
    "/decisions",
    summary="The latest requests",
    tags=["decisions"],
    response_model=shaped(Decisions),
)
async def decisions(services: Serving, search: Annotated[Search, Query()]) -> Response:
    """Requests of all workers of this replica, the newest first: sizes, names and reasons, never content.
    With `decisions.stored: 0` only those of the process that responds, since its start."""
    hours_ago = 0.0 if search.hours is None else time.time() - search.hours * 3600
    filters = {**search.model_dump(), "words": search.q, "since": search.since or hours_ago, search.show: True}
    return json_response(await services.overview.decisions(filters))


@operator.get(
    "/overview",
    summary="Whether all is well, and what was saved",
    tags=["decisions"],
    response_model=shaped(OverviewFigures),
)
async def overview(services: Serving, hours: _Hours = None) -> Response:
    """Upstreams, models, money by list prices, and a time line, of all workers. Asks the upstreams whether they
    answer, at most every ten seconds."""
    return json_response(await services.overview.of(hours))


@operator.get(
    "/conversations",
    summary="The latest conversations",
    tags=["decisions"],
    response_model=shaped(Conversations),
)
async def conversations(
    services: Serving, limit: _Some = 20, turns: _Turns = 120, conversation: _Named = ""
) -> Response:
    """Each with the sizes of its latest turns: how it grew, and where it was cut."""
    found = await services.history.ask(Table.conversations, limit, turns, conversation)
    return json_response(Conversations(found))


@operator.get(
    "/events",
    summary="Requests as they happen",
    tags=["decisions"],
    dependencies=[Depends(one_listener)],
    response_class=EventSourceResponse,
    responses={200: {"description": "Server-sent events."}, "4XX": {"description": "Why not."}},
)
async def events(request: Request, services: Serving) -> AsyncIterator[ServerSentEvent]:
    """Each event has `decisions` that have finished, the newest first, and all that are `running`, as `/decisions` has
    them. The first is the next change; the stream ends after a minute, so that the client connects again."""
    history, connections = services.history, request.scope["state"].get(STATE_KEY)
    newest = await history.ask(Table.page, {"limit": 1})
    last = newest[0].id if newest else 0
    end, sent = time.monotonic() + LIFE_SECONDS, "[]"
    yield ServerSentEvent(retry=1000)
    while time.monotonic() < end and not (connections is not None and connections.is_draining):
        decisions = await history.ask(Table.page, {"after": last, "limit": MAX_AT_ONCE})
        last = decisions[0].id if decisions else last
        running = jsontext.dump(await history.running()).decode()
        if decisions or running != sent:
            sent = running
            finished = jsontext.dump(decisions).decode()
            yield ServerSentEvent(raw_data=f'{{"decisions":{finished},"running":{running}}}')
        await asyncio.sleep(LOOK_SECONDS)


@operator.get(
    "/decisions/{request_id:path}",  # a client's id may contain a slash
    summary="One request, message by message",
    tags=["decisions"],
    response_model=shaped(Page),
)
async def decision(services: Serving, request_id: str) -> Response:
    """The newest with this id, which is the header `x-request-id` of its response; also one under way in the worker
    that responds. The messages only of requests that were edited, or had at most 50 of them."""
    found = await services.overview.page(request_id)
    if found is None:
        is_kept, workers = services.history.is_kept, services.server.workers
        others = f"; each of the {workers} workers remembers its own, so ask again"
        raise UnknownDecision(f"no request of this id is remembered{others if workers > 1 and not is_kept else ''}")
    return json_response(found)


@operator.post(
    "/explain",
    summary="What would be done to a chat request",
    tags=["decisions"],
    response_model=shaped(DryRun),
    openapi_extra=_CHAT_REQUEST,
)
async def explain(request: Request, services: Serving) -> Response:
    """A dry run: nothing is sent or stored."""
    body = await read_plain_body(request, services.server)
    explanation = await services.explainer.explain(body)
    return json_response(explanation.described)


@status.get(
    "/-/status",
    summary="What runs here",
    response_model=shaped(Status),
    responses=REFUSED,
)
async def current_status(
    request: Request,
    services: Serving,
    full: Annotated[bool, Query(description="Also health and problems, for which upstreams are asked.")] = False,
) -> Response:
    """Version, folders, upstreams and sums of this process, for the operator and for commands of the proxy's own user,
    which prove that they know the token in its data folder, and get a proof back."""
    token, port = request.app.state.token, (request.scope.get("server") or ("", 0))[1]
    nonce, proof = (request.headers.get(name, "") for name in (NONCE_HEADER, PROOF_HEADER))
    if not is_proven(token, "command", port, nonce, proof):
        await services.guard.admit(request.scope)
    response = json_response(await services.overview.status(full=full))
    if token is not None and nonce:
        response.headers[PROOF_HEADER] = proof_of(token, "proxy", port, nonce)
    return response


@operator.post(
    "/-/reload",
    summary="Reload the settings",
    tags=["status"],
    response_model=shaped(Reloaded),
)
async def reload_settings(request: Request) -> Response:
    """Reload, as SIGHUP does: running responses end with the settings that they began with, and invalid settings change
    nothing (422, with a line for each mistake)."""
    reload: Callable[[], Awaitable[Reloaded]] | None = request.app.state.reload
    if reload is None:
        raise UnknownPath("the settings can be reloaded only where `context-proxy serve` runs")
    return json_response(await reload())


@status.head("/", include_in_schema=False)
async def here() -> Response:
    """For clients that check whether the server is there."""
    return Response(media_type="text/html")


@pages.get("/", summary="The dashboard", response_class=HTMLResponse, responses=REFUSED)
async def index() -> Response:
    """For people; everything that it shows is from the paths here."""
    return _file("index.html")


@pages.get("/openapi.json", summary="The API for programs")
async def openapi(request: Request) -> Response:
    """This description, in OpenAPI 3.1."""
    return json_response(request.app.openapi())


@pages.get("/docs", summary="The API for people", response_class=HTMLResponse)
async def docs() -> Response:
    """The same as a page."""
    return _file("api.html")


@pages.get(
    "/dashboard/{name}",
    summary="A file of the dashboard",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in _DASHBOARD_TYPES.values()}}, **REFUSED},
)
async def part_of_page(name: str) -> Response:
    """Scripts and styles."""
    return _file(name)


def _file(name: str) -> Response:
    """A file of the dashboard."""
    if name not in _DASHBOARD_TYPES:
        raise UnknownPath("the dashboard has no such file")
    return FileResponse(_FOLDER / name, media_type=_DASHBOARD_TYPES[name], headers=HEADERS | PAGE_HEADERS)


def json_response(found: object, status_code: int = 200) -> Response:
    return Response(jsontext.dump(found), status_code, HEADERS, "application/json")
