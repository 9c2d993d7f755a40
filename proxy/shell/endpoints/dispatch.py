"""Agents' routes as raw ASGI applications: requests that are fitted, and the rest of the API.

Rule: no model of the body on the hot route; it is read once, by its wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, cast

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from proxy.core.overflow import VerdictKind
from proxy.errors import (
    MalformedRequest,
    ProxyError,
    ServerStopping,
    UnknownPath,
    UpgradeRefused,
)
from proxy.shell.endpoints.responses import ResponseSender, no_trace, raw_path, request_id_of
from proxy.shell.endpoints.services import Services
from proxy.shell.http import (
    Received,
    Upload,
    read_body,
    until_client_leaves,
)
from proxy.shell.relay import (
    AnyResponse,
    Arrived,
    EarlyBytes,
    PeekedResponse,
    Route,
    Routes,
    Served,
    asks_for_models,
    models_of,
)
from proxy.shell.resources import Kept, UnderWay, logger, write_lines_for
from proxy.shell.telemetry import RequestRecord
from proxy.shell.upstream import Headers, Outgoing, WholePath, header
from proxy.wire import WIRES, PathMatch, Wire, match_path, strange_prefix, wire_beside, wire_over

_DOT_SEGMENT: Final = re.compile(r"[/\\]\.{1,2}(?:[/\\;]|$)")
"""Servers resolve these in different ways (Tomcat first cuts off what follows a semicolon), and `/v1/../x` is not part
of the API that the upstream's base URL names."""
_OF_MODEL: Final = re.compile(rb"model|deployment", re.IGNORECASE)
"""In a 404 that is not about the path."""
_NO_UPGRADE: Final = {"upgrade": "HTTP/1.1", "connection": "upgrade"}
"""A 426 must name a supported protocol: RFC 9110 15.5.22."""


async def fitted(scope: Scope, receive: Receive, send: Send) -> None:
    """The POST paths of the wires, whatever precedes them: requests to them are fitted."""
    services, matched = _asked(scope)
    wire, headers = cast("Wire", matched.wire), scope["headers"]
    request_id = request_id_of(headers)
    record = services.recorder.begin(request_id.decode(), headers)
    record.api = wire.api
    sender = ResponseSender(send, request_id, wire)
    served: Served | None = None
    route = services.routes.default
    share = services.workload.share()
    kept = Kept(services.room, share, record.request_id)
    most_bytes, pause_seconds = services.server.max_body_bytes, services.server.body_timeout_seconds
    UnderWay.count += 1
    try:
        received = Received(await read_body(Request(scope, receive), most_bytes, pause_seconds, share))
        record.note_body(len(received.body))
        async with until_client_leaves(receive) as stop_watching:
            route = await services.routes.of(wire, headers, received.body, matched.model)
            record.note_route(route.name)
            served = await _served(scope, route, received, kept, record, sender)
            response = _of_known_path(served.response, scope, wire, route)
            await sender.pass_on(response, stop_watching, record.headers())
            _note_end(record, served, sender, wire, route)
    except ProxyError as error:
        if served is not None and sender.is_whole:  # the client left with all that it wanted
            _note_end(record, served, sender, wire, route)
        else:
            record.note_error(error)
            await sender.refuse(error, record.headers())
    except Exception:
        failure = _failure(record.request_id)
        record.note_error(failure)
        await sender.refuse(failure)
    except asyncio.CancelledError:
        record.note_error(ServerStopping("the proxy was stopped before the response was complete"))
        raise
    finally:
        UnderWay.count -= 1
        kept.close()
        share.release()
        record.note_response(200 if sender.is_committed else sender.status, sender.sent_bytes)
        services.recorder.finish(record)
        if served is not None:
            await sender.let_go(served.response)


def _asked(scope: Scope) -> tuple[Services, PathMatch]:
    """The services that a request has, and where it goes."""
    return scope["state"]["services"], scope["state"]["match"]


def _failure(request_id: str) -> ProxyError:
    """The last resort: log the exception under way, and say where it is."""
    logger().exception("request_failed", request_id=request_id)
    return ProxyError(f"the proxy failed; its log says why under request id {request_id}")


def _served(
    scope: Scope,
    route: Route,
    received: Received,
    kept: Kept,
    record: RequestRecord,
    sender: ResponseSender,
) -> Awaitable[Served]:
    """The response once it is decided; what arrives before that goes to the client at once. Raises ProxyError."""

    async def pass_on(headers: Headers, piece: bytes) -> None:
        await sender.pass_early(headers, record.headers(), piece)

    services, matched = _asked(scope)
    headers: Headers = scope["headers"]
    early = EarlyBytes(pass_on)
    target, access = _target(scope, _on(route, scope, matched, services.routes)), services.ways.of(scope)
    seconds = route.relay.keepalive_seconds(headers)
    came = Arrived(cast("Wire", matched.wire), target, headers, received, kept, access, early, matched.model)
    serving = route.relay.serve(came, record)
    return serving if seconds is None else _commented(serving, seconds, early, sender)


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


def _of_known_path(response: AnyResponse, scope: Scope, wire: Wire, route: Route) -> AnyResponse:
    """The response. Raises UnknownPath if the upstream knows no such path, unless its 404 is about the model."""
    if response.status != 404 or not isinstance(response, PeekedResponse):
        return response
    prefix = strange_prefix(raw_path(scope), route.upstream.base_path)
    if prefix and not _OF_MODEL.search(response.evidence):
        host = header(scope["headers"], b"host").decode("latin-1") or "HOST:PORT"
        path = wire.path if wire.is_on_host else f"/v1{wire.path}"
        raise UnknownPath(
            f"the upstream has nothing at this path (404): if {prefix} is only the place of this proxy behind another "
            f"one, that one must remove it, or the base URL do without it: http://{host}{path}"
        )
    return response


async def _commented(serving: Awaitable[Served], seconds: float, early: EarlyBytes, sender: ResponseSender) -> Served:
    async with sender.comments(seconds, lambda: early.client_streams):
        return await serving


async def passed_through(scope: Scope, receive: Receive, send: Send) -> None:
    """The rest of the API, any method, both directions as streams."""
    services, matched = _asked(scope)
    headers: Headers = scope["headers"]
    request_id = request_id_of(headers)
    write_lines_for(request_id.decode())
    sender = ResponseSender(send, request_id, wire_over(matched.path))
    pause_seconds = services.server.body_timeout_seconds
    upload = Upload(Request(scope, receive), pause_seconds) if _has_body(headers) else None
    if (refused := _unpassable(scope)) is not None:
        await sender.refuse(refused)
        return
    try:
        if has_dot_segment(scope["path"]):
            raise MalformedRequest("the path has a segment of dots")
        async with until_client_leaves(receive, upload.finished if upload else None) as stop_watching:
            body = await _body_of(upload)
            if len(services.routes.all) > 1 and asks_for_models(scope):
                listed = await models_of(services.routes, headers)
                await Response(listed, media_type="application/json")(scope, receive, send)
                return
            await _pass_on(scope, body, sender, stop_watching)
    except ProxyError as error:
        if sender.is_whole:
            return  # the client left with all that it wanted
        logger().warning(
            "passthrough_failed",
            request_id=request_id.decode(),
            method=scope["method"],
            path=scope["path"][:200],
            code=error.code,
            problem=error.message,
        )
        if upload is not None:
            await upload.discard()
        await sender.refuse(error)
    except Exception:
        await sender.refuse(_failure(request_id.decode()))


async def _pass_on(
    scope: Scope,
    body: Outgoing | AsyncIterator[bytes] | None,
    sender: ResponseSender,
    stop_watching: Callable[[], object],
) -> None:
    services, matched = _asked(scope)
    routes = services.routes
    own = wire_beside(raw_path(scope))
    route = routes.beside(own) if own is not None else None
    route = route or routes.for_path(matched.path.partition(b"/v1")[2].decode("latin-1"))
    target = _target(scope, _on(route, scope, matched, routes))
    answer = await route.relay.pass_through(scope["method"], target, scope["headers"], body, wire_over(matched.path))
    try:
        await sender.pass_on(answer, stop_watching, [])
    finally:
        await sender.let_go(answer)


def _unpassable(scope: Scope) -> ProxyError | None:
    """Why a request goes nowhere; None for most."""
    if _asks_for_websocket(scope):
        return UpgradeRefused("there are no WebSockets here; plain HTTP requests are answered", headers=_NO_UPGRADE)
    return no_trace() if scope["method"] == "TRACE" else None


def greeting(scope: Scope) -> bytes | None:
    """What a server that an upstream is says at `/`, for a client that looks whether it is there; browsers accept
    HTML."""
    if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
        return None
    if b"text/html" in header(scope["headers"], b"accept"):
        return None
    routes: Routes = scope["state"]["services"].routes
    wires = (wire for wire in WIRES.values() if wire.greeting and routes.beside(wire) is not None)
    return next((wire.greeting for wire in wires), None)


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as that server does."""
    await Response(greeting(scope), media_type="text/plain")(scope, receive, send)


async def _body_of(upload: Upload | None) -> Outgoing | AsyncIterator[bytes] | None:
    """Return a body in one piece if it has arrived: it then goes up with the very bytes of its headers."""
    if upload is None:
        return None
    whole = await upload.whole()
    return aiter(upload) if whole is None else Outgoing(whole)


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in headers)


def _target(scope: Scope, matched: PathMatch) -> WholePath:
    query: bytes = scope["query_string"]
    return WholePath(matched.path + b"?" + query if query else matched.path)


def _on(route: Route, scope: Scope, matched: PathMatch, routes: Routes) -> PathMatch:
    """Move the match to another upstream's host."""
    if route is routes.default:
        return matched
    return match_path(scope["method"], raw_path(scope), route.upstream.base_path) or matched


def has_dot_segment(path: str) -> bool:
    """Whether a server could resolve the path to another one."""
    return "." in path and _DOT_SEGMENT.search(path) is not None  # hardly any path has a dot


def _asks_for_websocket(scope: Scope) -> bool:
    """Recognised by the key that every handshake has (RFC 6455 4.1); `Upgrade` itself is removed on the way."""
    return scope["method"] == "GET" and any(name == b"sec-websocket-key" for name, _ in scope["headers"])
