"""The application: FastAPI, with the agents' API as its first route and the operator's endpoints after it.

Rule: it is created once for a process, as FastAPI's caches keep each one that is created, and refers to no settings: a
reload replaces `app.state.services`. A request of an agent is matched by its path as the client wrote it, and served by
a raw ASGI application; FastAPI describes such paths, but parses neither requests nor responses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, FastAPI, Header, Path, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import SkipJsonSchema
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.errors import NotFromHere
from proxy.shell.endpoints import artifacts, compress_api, operator
from proxy.shell.endpoints.dispatch import fitted, greet, greeting, has_dot_segment, passed_through
from proxy.shell.endpoints.responses import GATEWAYS, add_refusals, raw_path, refusal
from proxy.shell.endpoints.services import Services
from proxy.shell.resources import logger
from proxy.wire import DEFAULT, VERSION, WIRES, PathMatch, Wire, match_path, wire_over

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
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Those that upstreams have; each is an operation of its own in the description."""
_Mode = Annotated[
    Literal["on", "observe", "off"] | SkipJsonSchema[None],
    Header(alias="x-context-proxy-mode", description="For this request instead of the setting `mode`."),
]


_ROUTERS: Final = (compress_api.gateways, artifacts.router, operator.status, operator.operator, operator.pages)


def create_api(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None) -> FastAPI:
    """The API as an ASGI application; it serves with `app.state.services`."""
    app = FastAPI(
        title="context-proxy",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,  # it is served behind the guard, and its page loads nothing from elsewhere
        docs_url=None,
        redoc_url=None,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.add_middleware(EachRequest)
    app.router.routes.append(AgentsRoute())
    add_refusals(app)
    for router in _ROUTERS:
        app.include_router(router)
    app.openapi = functools.partial(_described, app)  # type: ignore[method-assign] # as FastAPI's documentation has it
    return app


def _take_heads(router: APIRouter) -> None:
    """Have each path with GET also take HEAD, as with Starlette's own routes."""
    for route in [one for one in router.routes if isinstance(one, APIRoute) and one.methods == {"GET"}]:
        router.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


def _described(app: FastAPI) -> dict[str, Any]:
    """The description of all paths, those of the agents' API first."""
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=[*agents.routes, *app.routes],
            separate_input_output_schemas=False,  # only responses are described
        )
    return app.openapi_schema


class EachRequest:
    """Gives each request the current services and its place in the agents' API, and turns away web pages from
    elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        matched = match_path(scope["method"], raw_path(scope), services.routes.default.upstream.base_path)
        state = scope.setdefault("state", {})
        state["services"], state["match"] = services, matched
        services.uses += 1
        try:
            if (stranger := services.guard.stranger(scope)) is None:
                await self._app(scope, receive, send)
            else:
                await _refusal_of(stranger, scope, matched)(scope, receive, send)
        finally:
            services.let_go()


def _refusal_of(stranger: NotFromHere, scope: Scope, matched: PathMatch | None) -> Response:
    logger().info("request_refused", status=stranger.status, code=stranger.code, problem=stranger.message)
    wire = DEFAULT if matched is None else matched.wire or wire_over(matched.path)
    return refusal(stranger, scope["headers"], wire=wire)


class AgentsRoute(BaseRoute):
    """All paths of the agents' API: no router of paths matches them by their raw bytes and their ends."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match with the application that serves the request."""
        found = _agents_app(scope) if scope["type"] == "http" else None
        return (Match.NONE, {}) if found is None else (Match.FULL, {"endpoint": found})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request over."""
        await scope["endpoint"](scope, receive, send)


def _agents_app(scope: Scope) -> ASGIApp | None:
    matched: PathMatch | None = scope["state"]["match"]
    if matched is None:
        return None if greeting(scope) is None else greet
    if matched.wire is not None and not has_dot_segment(scope["path"]):
        return fitted
    is_gateways = scope["state"]["services"].by_hash is not None and GATEWAYS.match(scope["path"])
    return None if is_gateways else passed_through


for _router in _ROUTERS:
    _take_heads(_router)
agents = APIRouter(tags=["agents"], default_response_class=Response, responses=_FORWARDED)
"""Their API, which these routes describe and `AgentsRoute` serves."""


async def _fitted(mode: _Mode = None) -> None:
    """The parameters of every fitted path."""


async def _passed_through(path: Annotated[str, Path(description="Any path, slashes included.")]) -> None:
    """Forwarded unchanged, in both directions as it arrives; so are HEAD and OPTIONS, and the paths of other servers'
    own APIs. TRACE and CONNECT are refused."""


def _describe(wire: Wire) -> None:
    """Describe the paths of a wire by one of them."""
    end = wire.end.decode()
    members, _ = wire.trial("Why is the build red?")
    schema = {"type": "object", "properties": {"model": {"type": "string"}}, "required": ["model", *members]}
    content = {"schema": schema, "example": {"model": "gpt-4o", **members}}
    agents.add_api_route(
        end if wire.is_on_host or wire.end.startswith(VERSION) else f"{VERSION.decode()}{end}",
        _fitted,
        methods=["POST"],
        name="fitted",
        summary=f"{wire.path.replace('/', ' ').strip().capitalize()}, fitted into the model's window",
        description=f"Every path that ends in `{end}` is served like "
        "this one, whatever precedes it: prefixes of other APIs, Azure's deployments.",
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "As the upstream's API takes it; unknown members are forwarded. A compressed body is "
                "read.",
                "content": {"application/json": content},
            }
        },
    )


for _wire in WIRES.values():
    _describe(_wire)
for _path in ("/v1/{path}", "/api/{path}"):
    for _method in _METHODS:
        agents.add_api_route(
            _path, _passed_through, methods=[_method], name="passed_through", summary="The rest of the upstream's API"
        )
