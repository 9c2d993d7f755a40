"""The application: FastAPI, with the agents' API as its first route and the operator's endpoints after it.

Rule: it is created once for a process, as FastAPI's caches keep each one that is created, and refers to no settings: a
reload replaces `app.state.services`. A request of an agent is matched by its path as the client wrote it, and served by
a raw ASGI application; FastAPI describes such paths, but parses neither requests nor responses. The page of the
description has no script, so that it loads nothing from elsewhere and works under the strictest policy; its content is
text, never markup.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from html import escape
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, FastAPI, Header, Path, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic.json_schema import SkipJsonSchema
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.errors import NotFromHere
from proxy.shell.endpoints import artifacts, compress_api, operator
from proxy.shell.endpoints.dispatch import fitted, greet, greeting, has_dot_segment, passed_through
from proxy.shell.endpoints.operator import PAGE_HEADERS, json_response, pages
from proxy.shell.endpoints.responses import GATEWAYS, HEADERS, add_refusals, raw_path, refusal
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


@pages.get("/openapi.json", summary="The API for programs")
async def openapi(request: Request) -> Response:
    """This description, in OpenAPI 3.1."""
    return json_response(request.app.openapi())


@pages.get("/docs", summary="The API for people", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """The same as a page."""
    page = api_page(request.app.openapi())
    return Response(page, media_type="text/html", headers=HEADERS | PAGE_HEADERS)


_ROUTERS: Final = (compress_api.gateways, artifacts.router, operator.status, operator.operator, pages)


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


_Schema = Mapping[str, Any]
_BOUNDS: Final = (("minimum", "from"), ("maximum", "to"), ("minLength", "from"), ("maxLength", "to"))


def api_page(described: _Schema) -> str:
    """The whole page."""
    about = described["info"]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<title>{escape(about["title"])}: API</title>\n<link rel="stylesheet" href="dashboard/api.css">',
            f"<main>\n<h1>{escape(about['title'])} {escape(about['version'])}</h1>",
            f'<p>{_text(about["description"])} The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
            *api_sections(described),
            "</main>\n</html>\n",
        ]
    )


def api_sections(described: _Schema) -> Iterator[str]:
    """Lines of HTML: a section for each operation, then one for each response."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield from _operation(path, method, operation)
    yield "<h2>Responses</h2>"
    for name, schema in described["components"]["schemas"].items():
        yield from _response(name, schema)


def _operation(path: str, method: str, operation: _Schema) -> Iterator[str]:
    yield f'<section id="{escape(operation["operationId"])}">'
    yield f"<h2><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}</h2>"
    yield f"<p>{_text(operation.get('description', ''))}</p>"
    if keys := [name for allowed in operation.get("security", ()) for name in allowed]:
        yield f"<p>With the {escape(' or the '.join(keys)).replace('_', ' ')}, where one is needed.</p>"
    if parameters := operation.get("parameters"):
        rows = [
            (
                f"<code>{escape(one['name'])}</code>",
                f"{escape(one['in'])}{', required' if one.get('required') else ''}",
                _kind(one["schema"]),
                _text(one.get("description", "")),
            )
            for one in parameters
        ]
        yield from _table(("parameter", "in", "type", "what it says"), rows)
    if body := operation.get("requestBody"):
        yield f"<p>Body: {_text(body['description'])}</p>"
    yield from _table(("status", "type", "what it says"), list(_responses(operation["responses"])))
    yield "</section>"


def _responses(responses: _Schema) -> Iterator[Sequence[str]]:
    for status, response in responses.items():
        kinds = [
            f"<code>{escape(media_type)}</code> {_kind(schema) if (schema := content.get('schema')) else ''}".rstrip()
            for media_type, content in response.get("content", {}).items()
        ]
        yield escape(status), "<br>".join(kinds), _text(response["description"])


def _response(name: str, schema: _Schema) -> Iterator[str]:
    yield f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n<p>{_text(schema.get("description", ""))}</p>'
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(member)}</code>",
            _kind(kind) + ("" if member in required else ", may be left out"),
            _text(kind.get("description", "")),
        )
        for member, kind in schema.get("properties", {}).items()
    ]
    yield from _table(("member", "type", "what it says"), rows)
    yield "</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are already markup."""
    yield f"<table>\n<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</table>"


def _kind(schema: _Schema) -> str:
    """A type in a word or two; other responses are linked.

    >>> _kind({"type": "integer", "minimum": 1, "maximum": 9, "default": 5})
    'integer from 1 to 9, else 5'
    >>> _kind({"anyOf": [{"type": "array", "items": {"$ref": "#/components/schemas/Block"}}, {"type": "null"}]})
    'list of <a href="#Block">Block</a> or null'
    """
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if isinstance(more := schema.get("additionalProperties"), Mapping):
        return f"by name, {_kind(more)}"
    kind = escape(schema.get("format") or schema.get("type", "anything"))
    bounds = "".join(f" {word} {schema[bound]}" for bound, word in _BOUNDS if bound in schema)
    unit = " characters" if "maxLength" in schema else ""
    usual = f", else {escape(str(schema['default']))}" if schema.get("default") not in (None, "", {}) else ""
    return f"{kind}{bounds}{unit}{usual}"


def _text(markdown: str) -> str:
    """Escaped, with `code` marked up as code.

    >>> _text("a `b<c` d")
    'a <code>b&lt;c</code> d'
    """
    pieces = escape(" ".join(markdown.split())).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
