"""The application: FastAPI, with the routes of agents first and the operator's after them.

Rule: it is created once for a process, as FastAPI's caches keep each one that is created, and refers to no settings: a
reload replaces the services that its endpoints use. A request of an agent is matched by its raw path and goes to a raw
ASGI application; FastAPI describes these routes, but parses neither requests nor responses.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, FastAPI, Header, Path, Query, Response
from fastapi.routing import APIRoute
from pydantic import WithJsonSchema
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.core.artifact_reading.search import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
)
from proxy.errors import NotFromHere
from proxy.shell.artifacts.reader import ArtifactStat
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH
from proxy.shell.endpoints.dispatch import MATCH, has_dot_segment, raw_path, unknown_path
from proxy.shell.endpoints.operator import ROUTERS
from proxy.shell.endpoints.refusals import CLIENT_KEY, REFUSED, add_refusals, shaped
from proxy.shell.endpoints.response_sender import ResponseSender, request_id_of
from proxy.shell.endpoints.services import SERVICES, Current, Services
from proxy.shell.resources.logs import logger
from proxy.wire.protocol import Wire
from proxy.wire.registry import DEFAULT, VERSION, WIRES, PathMatch, match_path, wire_over

_ABOUT: Final = (
    "The API for agents is under `/v1`, and is the upstream's own API. Everything else is what the proxy tells people "
    "and machines about itself."
)
_FORWARDED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The upstream's response, byte for byte, as it arrives.",
        "content": {"application/json": {}, "text/event-stream": {}, "application/x-ndjson": {}},
    },
    "4XX": {"description": "The upstream's refusal, or the proxy's own in the same shape."},
}
_Mode = Annotated[
    Literal["on", "observe", "off"] | None,
    Header(alias="x-context-proxy-mode", description="For this request instead of the setting `mode`."),
]
_WHOLE: Final = {"schema": {"type": "string", "format": "binary"}}
_ARTIFACT: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSED,
    200: {
        "model": shaped(ArtifactStat),
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
_Find = Callable[[Services, Scope], ASGIApp | None]
"""Finds the application for a request; None: the request is another route's."""


class RawRoute(APIRoute):
    """A route to a raw ASGI application, which FastAPI only describes."""

    def __init__(self, path: str, find: _Find, describing: Callable[..., Any], **described: Any) -> None:
        """`describing`: its parameters and docstring say what the application takes."""
        super().__init__(
            path, describing, name=describing.__name__.removeprefix("_"), response_class=Response, **described
        )
        self._find = find

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Matches if there is an application for the request."""
        found = self._find(scope[SERVICES], scope)
        return (Match.NONE, {}) if found is None else (Match.FULL, {"endpoint": found})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands the request over."""
        await scope["endpoint"](scope, receive, send)


def create_api(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None) -> FastAPI:
    """The API as an ASGI application; `EachRequest` gives it what it serves with."""
    app = FastAPI(
        title="context-proxy",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        redirect_slashes=False,
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
    app.router.routes += [*map(_fitted_route, WIRES.values()), *_OTHER_ROUTES]
    app.router.default = unknown_path
    add_refusals(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


class EachRequest:
    """Gives each request the current services, and turns away web pages from elsewhere."""

    def __init__(self, app: ASGIApp, *, current: Current) -> None:
        self._app = app
        self._current = current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        generation = self._current.generation
        services = scope[SERVICES] = generation.services
        scope[MATCH] = match_path(scope["method"], raw_path(scope), services.base_path)
        generation.begin()
        try:
            if (stranger := services.guard.stranger(scope)) is None:
                await self._app(scope, receive, send)
            else:
                await _turn_away(stranger, scope, send)
        finally:
            generation.end()


async def _turn_away(stranger: NotFromHere, scope: Scope, send: Send) -> None:
    logger().info("request_refused", status=stranger.status, outcome=stranger.code, problem=stranger.message)
    matched: PathMatch | None = scope[MATCH]
    wire = DEFAULT if matched is None else matched.wire or wire_over(matched.path)
    await ResponseSender(send, request_id_of(scope["headers"]), wire).refuse(stranger)


def _fitted_route(wire: Wire) -> RawRoute:
    """The route of a wire's paths."""

    def find(services: Services, scope: Scope) -> ASGIApp | None:
        matched: PathMatch | None = scope[MATCH]
        is_fitted = matched is not None and matched.wire is wire and not has_dot_segment(scope["path"])
        return services.fitted if is_fitted else None

    end = wire.end.decode()
    members, _ = wire.trial("Why is the build red?")
    schema = {"type": "object", "properties": {"model": {"type": "string"}}, "required": ["model", *members]}
    content = {"schema": schema, "example": {"model": "gpt-4o", **members}}
    return RawRoute(
        end if wire.is_on_host or wire.end.startswith(VERSION) else f"{VERSION.decode()}{end}",
        find,
        _fitted,
        methods=["POST"],
        summary=f"{wire.path.replace('/', ' ').strip().capitalize()}, fitted into the model's window",
        tags=["agents"],
        description=f"Every path that ends in `{end}` is served like "
        "this one, whatever precedes it: prefixes of other APIs, Azure's deployments.",
        responses=_FORWARDED,
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "As the upstream's API takes it; unknown members are forwarded. A compressed body is "
                "read.",
                "content": {"application/json": content},
            }
        },
    )


async def _fitted(mode: _Mode = None) -> None:
    """The parameters of every fitted route."""


async def _passed_through() -> None:
    """Forwarded unchanged, by any method, in both directions as it arrives."""


async def _artifact(
    name: _Name,
    lines: _Lines = None,
    grep: _Grep = None,
    context: _Context = None,
    max: _Max = None,
    json: _Pointer = None,
    stat: _Stat = None,
    instead: _Instead = None,
    range: _Range = None,
) -> None:
    """The whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or what stands in its
    place."""


async def _not_described() -> None:
    """Nothing."""


def _find_compress_api(services: Services, scope: Scope) -> ASGIApp | None:
    found = services.compress_api
    return found if found is not None and found.serves(scope["path"]) else None


def _find_pass_through(services: Services, scope: Scope) -> ASGIApp | None:
    return None if scope[MATCH] is None else services.pass_through


def _find_greeting(services: Services, scope: Scope) -> ASGIApp | None:
    return services.pass_through.greet if services.pass_through.greets(scope) else None


def _find_mcp(services: Services, scope: Scope) -> ASGIApp | None:
    return services.mcp if scope["path"] == "/mcp" else None


def _find_artifact(services: Services, scope: Scope) -> ASGIApp | None:
    place, _, name = scope["path"].rpartition("/")
    return services.artifacts if name and f"{place}/" == ARTIFACTS_PATH else None


_OTHER_ROUTES: Final = (
    RawRoute("/v1/compress", _find_compress_api, _not_described, include_in_schema=False),
    RawRoute(
        "/v1/{path}",
        _find_pass_through,
        _passed_through,
        summary="The rest of the upstream's API",
        tags=["agents"],
        responses=_FORWARDED,
    ),
    RawRoute("/", _find_greeting, _not_described, include_in_schema=False),
    RawRoute("/mcp", _find_mcp, _not_described, include_in_schema=False),
    RawRoute(
        ARTIFACTS_PATH + "{name}",
        _find_artifact,
        _artifact,
        summary="Content taken out of a request",
        tags=["artifacts"],
        dependencies=[Depends(CLIENT_KEY)],
        responses=_ARTIFACT,
    ),
)
