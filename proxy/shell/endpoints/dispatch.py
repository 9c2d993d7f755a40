"""Agents' routes as raw ASGI applications: requests that are fitted, and the rest of the API.

Rule: no model of the body on the hot route; it is read once, by its wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proxy.config import ServerSettings
from proxy.core.overflow import VerdictKind
from proxy.errors import (
    MalformedRequest,
    MethodNotAllowed,
    ProxyError,
    ServerStopping,
    UnknownPath,
    UpgradeRefused,
)
from proxy.shell.artifacts import AccessResolver
from proxy.shell.endpoints.responses import ResponseSender, request_id_of
from proxy.shell.http import (
    KeepAlive,
    Received,
    Upload,
    connection_of,
    content_headers,
    read_body,
    respond,
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
    send_models,
)
from proxy.shell.resources import Kept, UnderWay, WaitingRoom, Workload, logger, write_lines_for
from proxy.shell.telemetry import Recorder, RequestRecord
from proxy.shell.upstream import Headers, Outgoing, WholePath, header
from proxy.wire import WIRES, PathMatch, Wire, like, match_path, strange_prefix, wire_beside, wire_over

MATCH: Final = "context_proxy.match"
"""The key in a request's scope: where it goes, or None if it belongs to no API."""
_DOT_SEGMENT: Final = re.compile(r"[/\\]\.{1,2}(?:[/\\;]|$)")
"""Servers resolve these in different ways (Tomcat first cuts off what follows a semicolon), and `/v1/../x` is not part
of the API that the upstream's base URL names."""
_OF_MODEL: Final = re.compile(rb"model|deployment", re.IGNORECASE)
"""In a 404 that is not about the path."""
_NO_UPGRADE: Final = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
"""A 426 must name a supported protocol: RFC 9110 15.5.22."""

_ALLOWED: Final = [(b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]


class FittedEndpoint:
    """The POST paths of the wires, whatever precedes them: requests to them are fitted."""

    def __init__(
        self,
        routes: Routes,
        recorder: Recorder,
        ways: AccessResolver,
        server: ServerSettings,
        workload: Workload,
        room: WaitingRoom,
    ) -> None:
        self._routes = routes
        self._ways = ways
        self._recorder = recorder
        self._max_body_bytes = server.max_body_bytes
        self._pause_seconds = server.body_timeout_seconds
        self._workload = workload
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched: PathMatch = scope[MATCH]
        assert matched.wire is not None, "the route is a wire's"
        wire = matched.wire
        headers: Headers = scope["headers"]
        request_id = request_id_of(headers)
        record = self._recorder.begin(request_id.decode(), headers)
        record.api = wire.api
        alive = KeepAlive(send, wire)
        sender = ResponseSender(alive.send, request_id, wire, alive, connection_of(scope))
        served: Served | None = None
        route = self._routes.default
        share = self._workload.share()
        kept = Kept(self._room, share, record.request_id)
        request = Request(scope, receive)
        UnderWay.count += 1
        try:
            received = Received(await read_body(request, self._max_body_bytes, self._pause_seconds, share))
            record.note_body(len(received.body))
            async with until_client_leaves(receive) as stop_watching:
                route = await self._routes.of(wire, headers, received.body, matched.model)
                record.route = route.name
                served = await self._served(scope, route, wire, matched, received, kept, record, alive, sender)
                await sender.pass_on(
                    _of_known_path(served.response, scope, wire, route), stop_watching, record.headers()
                )
                _note_end(record, served, sender, wire, route)
        except ProxyError as error:
            if served is not None and sender.is_whole:  # the client left with all that it wanted
                _note_end(record, served, sender, wire, route)
            else:
                record.note_error(error)
                await sender.refuse(error, record.headers())
        except Exception:
            logger().exception("request_failed", request_id=record.request_id)
            failure = ProxyError(f"the proxy failed; its log says why under request id {record.request_id}")
            record.note_error(failure)
            await sender.refuse(failure)
        except asyncio.CancelledError:
            record.note_error(ServerStopping("the proxy was stopped before the response was complete"))
            raise
        finally:
            UnderWay.count -= 1
            kept.close()
            share.release()
            record.note_response(200 if alive.is_committed else sender.status, sender.sent_bytes)
            self._recorder.finish(record)
            if served is not None:
                await sender.let_go(served.response)

    def _served(
        self,
        scope: Scope,
        route: Route,
        wire: Wire,
        matched: PathMatch,
        received: Received,
        kept: Kept,
        record: RequestRecord,
        alive: KeepAlive,
        sender: ResponseSender,
    ) -> Awaitable[Served]:
        """The response once it is decided; what arrives before that goes to the client at once. Raises ProxyError."""

        async def pass_on(headers: Headers, piece: bytes) -> None:
            await alive.pass_on(sender.head(headers, record.headers()), piece)

        headers: Headers = scope["headers"]
        early = EarlyBytes(pass_on)
        target, access = _target(scope, _on(route, scope, matched, self._routes)), self._ways.of(scope)
        seconds = route.relay.keepalive_seconds(headers)
        came = Arrived(wire, target, headers, received, kept, access, early, matched.model)
        serving = route.relay.serve(came, record)
        return serving if seconds is None else _commented(serving, seconds, alive, early, sender)


def _note_end(record: RequestRecord, served: Served, sender: ResponseSender, wire: Wire, route: Route) -> None:
    """The client has the whole response."""
    route.relay.learn_from(served, record)
    kind, ends_in_error = served.verdict.kind, wire.ends_in_error(sender.last.joined)
    if ends_in_error or sender.status >= 400 or kind is not VerdictKind.ACCEPTED:
        record.note_end(sender.status, kind, ends_in_error=ends_in_error)


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


async def _commented(
    serving: Awaitable[Served], seconds: float, alive: KeepAlive, early: EarlyBytes, sender: ResponseSender
) -> Served:
    async with alive.comments(seconds, lambda: early.client_streams, sender.head([], [])):
        return await serving


class PassThrough:
    """The rest of the API, any method, both directions as streams; and `/`, for clients that look whether a server is
    there."""

    def __init__(self, routes: Routes, body_pause_seconds: float) -> None:
        self._routes = routes
        self._pause_seconds = body_pause_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched: PathMatch = scope[MATCH]
        headers: Headers = scope["headers"]
        request_id = request_id_of(headers)
        write_lines_for(request_id.decode())
        wire = wire_over(matched.path)
        sender = ResponseSender(send, request_id, wire, connection=connection_of(scope))
        if _asks_for_websocket(scope):
            error = UpgradeRefused("there are no WebSockets here; plain HTTP requests are answered")
            await sender.refuse(error, _NO_UPGRADE)
            return
        if scope["method"] == "TRACE":
            await sender.refuse(_no_trace(), _ALLOWED)
            return
        upload = Upload(Request(scope, receive), self._pause_seconds) if _has_body(headers) else None
        try:
            if has_dot_segment(scope["path"]):
                raise MalformedRequest("the path has a segment of dots")
            async with until_client_leaves(receive, upload.finished if upload else None) as stop_watching:
                body = await _body_of(upload)
                if len(self._routes.all) > 1 and asks_for_models(scope):
                    await send_models(self._routes, scope, send)
                    return
                own = wire_beside(raw_path(scope))
                route = self._routes.beside(own) if own is not None else None
                route = route or self._routes.for_path(matched.path.partition(b"/v1")[2].decode("latin-1"))
                target = _target(scope, _on(route, scope, matched, self._routes))
                answer = await route.relay.pass_through(scope["method"], target, headers, body, wire)
                try:
                    await sender.pass_on(answer, stop_watching, [])
                finally:
                    await sender.let_go(answer)
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

    def greets(self, scope: Scope) -> bool:
        """Whether a request looks for a server that an upstream is; browsers accept HTML."""
        return (
            scope["path"] == "/"
            and scope["method"] in ("GET", "HEAD")
            and b"text/html" not in header(scope["headers"], b"accept")
            and self._greeting is not None
        )

    @property
    def _greeting(self) -> bytes | None:
        wires = (wire for wire in WIRES.values() if wire.greeting and self._routes.beside(wire) is not None)
        return next((wire.greeting for wire in wires), None)

    async def greet(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer as the server does."""
        words = self._greeting or b""
        described = content_headers(b"text/plain; charset=utf-8", len(words))
        await respond(send, 200, described, b"" if scope["method"] == "HEAD" else words)


async def _body_of(upload: Upload | None) -> Outgoing | AsyncIterator[bytes] | None:
    """Return a body in one piece if it has arrived: it then goes up with the very bytes of its headers."""
    if upload is None:
        return None
    whole = await upload.whole()
    return aiter(upload) if whole is None else Outgoing(whole)


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in headers)


def raw_path(scope: Scope) -> bytes:
    """The path with the escapes that the client wrote."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


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


def _no_trace() -> MethodNotAllowed:
    """Return why a TRACE goes nowhere: a server that echoes it would show a client the key that the proxy adds."""
    return MethodNotAllowed("TRACE is not forwarded: its echo would show what the proxy adds to a request")


async def unknown_path(scope: Scope, _: Receive, send: Send) -> None:
    """404 for an unknown path, with the base URL that was probably meant."""
    sender = ResponseSender(send, request_id_of(scope["headers"]))
    if scope["method"] == "TRACE":
        await sender.refuse(_no_trace(), _ALLOWED)
        return
    host = header(scope["headers"], b"host").decode("latin-1") or "HOST:PORT"
    meant = like(raw_path(scope))
    hint = f"did you mean http://{host}{meant}?" if meant else f"the API is at http://{host}/v1"
    error = UnknownPath(f"nothing is served at this path; {hint}")
    await sender.refuse(error)
