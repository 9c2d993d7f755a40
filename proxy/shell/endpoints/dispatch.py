"""The agents' API as raw ASGI applications: one for requests that are fitted, one for all others.

Rule: a request is matched by its path as the client wrote it, which no router does. No model of the body on the hot
route; it is read once, by its wire. A request keeps the services that it began with.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.overflow import VerdictKind
from proxy.errors import MalformedRequest, MethodNotAllowed, ProxyError, ServerStopping, UnknownPath, UpgradeRefused
from proxy.shell.endpoints.responses import (
    GATEWAYS,
    ResponseSender,
    raw_path,
    refusal,
    reported,
    request_id_of,
)
from proxy.shell.endpoints.services import Services
from proxy.shell.http import Received, pieces_of, read_body, until_client_leaves
from proxy.shell.relay import (
    AnyResponse,
    Arrived,
    PeekedResponse,
    Route,
    Routes,
    Served,
    asks_for_models,
    models_of,
)
from proxy.shell.resources import Kept, Share, UnderWay, logger, write_lines_for
from proxy.shell.telemetry import RequestRecord
from proxy.shell.upstream import Headers, WholePath, header
from proxy.wire import DEFAULT, WIRES, PathMatch, Wire, match_path, strange_prefix, wire_beside, wire_over

_DOT_SEGMENT: Final = re.compile(r"[/\\]\.{1,2}(?:[/\\;]|$)")
"""Servers resolve these in different ways (Tomcat first cuts off what follows a semicolon), and `/v1/../x` is not part
of the API that the upstream's base URL names."""
_OF_MODEL: Final = re.compile(rb"model|deployment", re.IGNORECASE)
"""In a 404 that is not about the path."""
_NO_UPGRADE: Final = {"upgrade": "HTTP/1.1", "connection": "upgrade"}
"""A 426 must name a supported protocol: RFC 9110 15.5.22."""


class Dispatcher:
    """The outermost application: gives each request the current services, turns away web pages from elsewhere, serves
    the agents' API, and leaves every other path to the application within."""

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
            await (_agents_app(services, scope, matched) or self._app)(scope, receive, send)
        finally:
            services.let_go()


def _agents_app(services: Services, scope: Scope, matched: PathMatch | None) -> ASGIApp | None:
    """What serves a request of an agent, or refuses one; None for a request to the proxy's own pages."""
    try:
        _check(services, scope, matched)
    except ProxyError as error:
        logger().info("request_refused", status=error.status, code=error.code, problem=error.message)
        wire = DEFAULT if matched is None else matched.wire or wire_over(matched.path)
        return refusal(error, request_id_of(scope["headers"]), wire=wire)
    if matched is None:
        greeting = _greeting(services.routes, scope)
        return None if greeting is None else Response(greeting, media_type="text/plain")
    if matched.wire is not None:
        return fitted
    is_gateways = services.by_hash is not None and GATEWAYS.match(scope["path"])
    return None if is_gateways else passed_through


def _greeting(routes: Routes, scope: Scope) -> bytes | None:
    """What a server that an upstream is says at `/`, for a client that looks whether it is there; browsers accept
    HTML."""
    is_look = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
    if not is_look or b"text/html" in header(scope["headers"], b"accept"):
        return None
    wires = (wire for wire in WIRES.values() if wire.greeting and routes.beside(wire) is not None)
    return next((wire.greeting for wire in wires), None)


async def fitted(scope: Scope, receive: Receive, send: Send) -> None:
    """The POST paths of the wires, whatever precedes them: requests to them are fitted."""
    services, matched = _asked(scope)
    wire, headers = cast("Wire", matched.wire), scope["headers"]
    request_id = request_id_of(headers)
    record = services.recorder.begin(request_id.decode(), headers)
    record.api = wire.api
    sender = ResponseSender(send, request_id, wire, record.headers)
    share = Share(services.workload)
    kept = Kept(services.room, share, record.request_id)
    most_bytes, pause_seconds = services.server.max_body_bytes, services.server.body_timeout_seconds
    UnderWay.count += 1
    try:
        received = Received(await read_body(Request(scope, receive), most_bytes, pause_seconds, share))
        record.note_body(len(received.body))
        async with until_client_leaves(receive, has_all=sender.is_whole):
            route = await services.routes.of(wire, headers, received.body, matched.model)
            if route.name:
                record.route = route.name
            served = await _served(scope, route, received, kept, record, sender)
            sender.answer = served.response
            _check_path(served.response, scope, wire, route)
            await sender.pass_on()
        _note_end(record, served, sender, wire, route)
    except asyncio.CancelledError:
        record.note_error(ServerStopping("the proxy was stopped before the response was complete"))
        raise
    except Exception as error:
        record.note_error(failure := reported(error, record.request_id))
        await sender.refuse(failure)
    finally:
        UnderWay.count -= 1
        kept.close()
        share.release()
        record.status, record.answer_bytes = 200 if sender.is_committed else sender.status, sender.sent_bytes
        services.recorder.finish(record)
        await sender.let_go()


def _asked(scope: Scope) -> tuple[Services, PathMatch]:
    """The services that a request has, and where it goes."""
    return scope["state"]["services"], scope["state"]["match"]


async def _served(
    scope: Scope,
    route: Route,
    received: Received,
    kept: Kept,
    record: RequestRecord,
    sender: ResponseSender,
) -> Served:
    """The response once it is decided; what arrives before that goes to the client at once. Raises ProxyError."""
    services, matched = _asked(scope)
    headers: Headers = scope["headers"]
    wire, target, access = cast("Wire", matched.wire), _target(scope, route), services.ways.of(scope)
    came = Arrived(wire, target, headers, received, kept, access, sender.pass_early, matched.model)
    serving = route.relay.serve(came, record)
    seconds = route.relay.keepalive_seconds
    if seconds is None:
        return await serving
    ticking = asyncio.create_task(sender.comment_every(seconds, lambda: came.client_streams))
    try:
        return await serving
    finally:
        ticking.cancel()


def _note_end(record: RequestRecord, served: Served, sender: ResponseSender, wire: Wire, route: Route) -> None:
    """The client has the whole response."""
    kind, ending = served.verdict.kind, sender.last.joined
    error = wire.closing_error(ending)
    route.relay.learn_from(served, record, went_well=not error)
    if error and sender.status < 400:
        events = len(wire.framing.splitter().feed(ending)) or 1
        route.relay.learn_from_end(served, error, sender.sent_bytes * events // len(ending), record)
    if error or sender.status >= 400 or kind is not VerdictKind.ACCEPTED:
        record.note_end(sender.status, kind, ends_in_error=bool(error))


def _check_path(response: AnyResponse, scope: Scope, wire: Wire, route: Route) -> None:
    """Raise UnknownPath if the upstream knows no such path, unless its 404 is about the model."""
    if response.status != 404 or not isinstance(response, PeekedResponse):
        return
    prefix = strange_prefix(raw_path(scope), route.upstream.base_path)
    if prefix and not _OF_MODEL.search(response.evidence):
        host = header(scope["headers"], b"host").decode("latin-1") or "HOST:PORT"
        path = wire.path if wire.is_on_host else f"/v1{wire.path}"
        raise UnknownPath(
            f"the upstream has nothing at this path (404): if {prefix} is only the place of this proxy behind another "
            f"one, that one must remove it, or the base URL do without it: http://{host}{path}"
        )


async def passed_through(scope: Scope, receive: Receive, send: Send) -> None:
    """The rest of the API, any method, both directions as streams."""
    services, matched = _asked(scope)
    headers: Headers = scope["headers"]
    request_id, wire, arrived = request_id_of(headers), wire_over(matched.path), asyncio.Event()
    write_lines_for(request_id.decode())
    sender = ResponseSender(send, request_id, wire)
    body = None
    if any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in headers):
        body = pieces_of(Request(scope, receive), services.server.body_timeout_seconds, arrived=arrived)
    else:
        arrived.set()
    try:
        async with until_client_leaves(receive, arrived, sender.is_whole):
            if len(services.routes.all) > 1 and asks_for_models(scope):
                listed = await models_of(services.routes, headers)
                answered = {"x-request-id": request_id.decode()}
                await Response(listed, headers=answered, media_type="application/json")(scope, receive, send)
                return
            route = _route_beside(services.routes, scope)
            sender.answer = await route.relay.pass_through(scope["method"], _target(scope, route), headers, body, wire)
            await sender.pass_on()
    except Exception as error:
        failure = reported(error, request_id.decode())
        logger().warning(
            "passthrough_failed",
            method=scope["method"],
            path=scope["path"][:200],
            code=failure.code,
            problem=failure.message,
        )
        await sender.refuse(failure)
    finally:
        await sender.let_go()


def _check(services: Services, scope: Scope, matched: PathMatch | None) -> None:
    """Raises ProxyError for a request of a stranger, and for one that no server should get."""
    services.guard.check_stranger(scope)
    if scope["method"] == "TRACE":
        raise MethodNotAllowed(
            "TRACE is not forwarded: its echo would show what the proxy adds to a request",
            headers={"allow": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
        )
    path = scope["path"]
    if matched is not None and "." in path and _DOT_SEGMENT.search(path):  # hardly any path has a dot
        raise MalformedRequest("the path has a segment of dots")
    # A handshake is known by its key (RFC 6455 4.1); `Upgrade` itself is removed on the way.
    if matched is not None and scope["method"] == "GET" and header(scope["headers"], b"sec-websocket-key"):
        raise UpgradeRefused("there are no WebSockets here; plain HTTP requests are answered", headers=_NO_UPGRADE)


def _route_beside(routes: Routes, scope: Scope) -> Route:
    """The route of a request that is passed through: to the server whose own API its path is, else by its path."""
    own = wire_beside(raw_path(scope))
    _, matched = _asked(scope)
    beside = routes.beside(own) if own is not None else None
    return beside or routes.for_path(matched.path.partition(b"/v1")[2].decode("latin-1"))


def _target(scope: Scope, route: Route) -> WholePath:
    """Path and query on the host of the route's upstream."""
    services, matched = _asked(scope)
    if route is not services.routes.default:
        matched = match_path(scope["method"], raw_path(scope), route.upstream.base_path) or matched
    query: bytes = scope["query_string"]
    return WholePath(matched.path + b"?" + query if query else matched.path)
