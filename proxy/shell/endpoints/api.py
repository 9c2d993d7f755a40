"""The application: FastAPI behind the agents' API.

Rule: it is created once for a process, as FastAPI's caches keep each one that is created, and refers to no settings: a
reload replaces `app.state.services`. FastAPI describes the agents' paths, but parses neither their requests nor their
responses.
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
from starlette.types import ASGIApp

from proxy import __version__
from proxy.shell.endpoints import artifacts, compress_api, operator
from proxy.shell.endpoints.dispatch import Dispatcher
from proxy.shell.endpoints.responses import add_refusals
from proxy.wire import VERSION, WIRES, Wire

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


class Api(FastAPI):
    """FastAPI behind the dispatcher. As a middleware that would be within Starlette's own, which wraps each event of a
    stream once more."""

    def build_middleware_stack(self) -> ASGIApp:
        return Dispatcher(super().build_middleware_stack())


def create_api(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None) -> FastAPI:
    """The API as an ASGI application; it serves with `app.state.services`."""
    app = Api(
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


for _router in _ROUTERS:
    _take_heads(_router)
agents = APIRouter(tags=["agents"], default_response_class=Response, responses=_FORWARDED)
"""Their API, which these routes describe and `Dispatcher` serves."""


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
