"""The application: FastAPI, with the routes of agents first and the operator's after them.

Rule: it is created once for a process, as FastAPI's caches keep each one that is created, and refers to no settings: a
reload replaces the services that its endpoints use. A request of an agent is matched by its raw path and goes to a raw
ASGI application; FastAPI describes these routes, but parses neither requests nor responses. The page of the description
has no script, so that it loads nothing from elsewhere and works under the strictest policy; its content is text, never
markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from html import escape
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, FastAPI, Header, Path, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic.json_schema import SkipJsonSchema
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.errors import NotFromHere
from proxy.shell.endpoints.artifacts import ARTIFACT_RESPONSES, ARTIFACTS_PATH, artifact
from proxy.shell.endpoints.compress_api import COMPRESS_PATH, RETRIEVE_PATH
from proxy.shell.endpoints.dispatch import MATCH, has_dot_segment, raw_path, unknown_path
from proxy.shell.endpoints.operator import PAGE_HEADERS, ROUTERS, json_response, pages
from proxy.shell.endpoints.responses import (
    CLIENT_KEY,
    HEADERS,
    OPERATOR_KEY,
    ResponseSender,
    add_refusals,
    request_id_of,
)
from proxy.shell.endpoints.services import SERVICES, Current, Services
from proxy.shell.resources import logger
from proxy.wire import DEFAULT, VERSION, WIRES, PathMatch, Wire, compress_api, match_path, wire_over

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
_JSON: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The answer.", "content": {"application/json": {}}},
    "4XX": {"description": "Why not."},
}
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Those that upstreams have; each is an operation of its own in the description."""
_Mode = Annotated[
    Literal["on", "observe", "off"] | SkipJsonSchema[None],
    Header(alias="x-context-proxy-mode", description="For this request instead of the setting `mode`."),
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


@pages.get("/openapi.json", summary="The API for programs")
async def openapi(request: Request) -> Response:
    """This description, in OpenAPI 3.1."""
    return json_response(request.app.openapi())


@pages.get("/docs", summary="The API for people", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """The same as a page."""
    page = api_page(request.app.openapi())
    return Response(page, media_type="text/html", headers=HEADERS | PAGE_HEADERS)


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
    logger().info("request_refused", status=stranger.status, code=stranger.code, problem=stranger.message)
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


async def _passed_through(path: Annotated[str, Path(description="Any path, slashes included.")]) -> None:
    """Forwarded unchanged, in both directions as it arrives; so are HEAD and OPTIONS, and the paths of other servers'
    own APIs. TRACE and CONNECT are refused."""


async def _compress() -> None:
    """As headroom has it, with `compress_api: true`; without, the path is the upstream's. Nothing is sent to a
    model."""


async def _retrieve() -> None:
    """What was taken out under the `hash` of the body, with `compress_api: true`."""


async def _original(
    hash: Annotated[str, Path(pattern=compress_api.HASH.pattern, description="From the text in its place.")],
) -> None:
    """The same for a GET."""


async def _mcp() -> None:
    """JSON-RPC over streamable HTTP, without sessions, with `mcp: true`."""


async def _greeting() -> None:
    """Nothing: it looks like the upstream's own."""


def _find_compress_api(services: Services, scope: Scope) -> ASGIApp | None:
    found = services.compress_api
    return found if found is not None and found.serves(scope["path"]) else None


def _find_artifact(services: Services, scope: Scope) -> ASGIApp | None:
    place, _, name = scope["path"].rpartition("/")
    return services.artifacts if name and f"{place}/" == ARTIFACTS_PATH else None


def _rest_of_api(prefix: str, method: str) -> RawRoute:
    return RawRoute(
        f"{prefix}/{{path}}",
        lambda services, scope: None if scope[MATCH] is None else services.pass_through,
        _passed_through,
        methods=[method],
        summary="The rest of the upstream's API",
        tags=["agents"],
        responses=_FORWARDED,
    )


def _compress_route(path: str, method: str, describing: Callable[..., Any], summary: str) -> RawRoute:
    return RawRoute(
        path,
        _find_compress_api,
        describing,
        methods=[method],
        summary=summary,
        tags=["gateways"],
        dependencies=[Depends(OPERATOR_KEY)],
        responses=_JSON,
    )


_OTHER_ROUTES: Final = (
    _compress_route(COMPRESS_PATH, "POST", _compress, "Shorter messages, for a gateway that sends them itself"),
    _compress_route(RETRIEVE_PATH, "POST", _retrieve, "An original"),
    _compress_route(f"{RETRIEVE_PATH}/{{hash}}", "GET", _original, "An original"),
    *(_rest_of_api(prefix, method) for prefix in ("/v1", "/api") for method in _METHODS),
    RawRoute(
        "/",
        lambda services, scope: services.pass_through.greet if services.pass_through.greets(scope) else None,
        _greeting,
        include_in_schema=False,
    ),
    RawRoute(
        "/mcp",
        lambda services, scope: services.mcp if scope["path"] == "/mcp" else None,
        _mcp,
        methods=["POST"],
        summary="Content taken out of requests, by the Model Context Protocol",
        tags=["artifacts"],
        dependencies=[Depends(CLIENT_KEY)],
        responses=_JSON,
    ),
    RawRoute(
        ARTIFACTS_PATH + "{name}",
        _find_artifact,
        artifact,
        summary="Content taken out of a request",
        tags=["artifacts"],
        dependencies=[Depends(CLIENT_KEY)],
        responses=ARTIFACT_RESPONSES,
    ),
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
