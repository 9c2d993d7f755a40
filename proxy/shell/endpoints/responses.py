"""Responses of the endpoints. The upstream's are passed on; refusals have the wire's shape; those of the operator's
endpoints, FastAPI's own included, OpenAI's.

Rule: once a byte of a response has been sent, the only honest way to report a failure is to break the stream. A refusal
names the path or the parameter and does not repeat what was sent.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Struct, field
from pydantic import ConfigDict, with_config
from starlette.exceptions import HTTPException
from starlette.types import Scope, Send

from proxy.errors import (
    ClientLeft,
    KeyNeeded,
    MalformedRequest,
    MethodNotAllowed,
    NotFromHere,
    ProxyError,
    UnknownPath,
    UpstreamError,
)
from proxy.shell.relay import PIECES_OF_THE_END, AnyResponse, PeekedResponse
from proxy.shell.resources import logger
from proxy.shell.upstream import Headers, header
from proxy.wire import DEFAULT, TAIL_BYTES, Refusal, Tail, Wire, compress_api, like

_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
"""A client's own id is copied into logs and headers only if it is visible ASCII of bounded length."""
_WITHOUT_BODY: Final = (204, 304)
"""Some servers state the length of a body that these never have. A 204 must not (RFC 9110 8.6), and caches ignore that
of a 304 (RFC 9111 3.2)."""


_MAX_ERROR_BYTES: Final = 1024 * 1024
"""Limit for a response that must be sent in another form; errors are far shorter."""


class ResponseSender(Struct, eq=False):
    """Sends one response, and knows whether it has begun.

    Bytes may be sent before it is decided, to keep the client waiting. Its status is then 200, so a later error is
    reported in the body: as an event of a stream, else as JSON. That is why `overflow.keepalive_seconds` is off by
    default.
    """

    _send: Send
    _request_id: bytes
    _wire: Wire = DEFAULT
    _own: Callable[[], Headers] = list
    """Returns the proxy's own headers."""
    answer: AnyResponse | None = None
    """The upstream's; closed by `let_go`."""
    status: int = 0
    """Status of the response; 0 until it is decided."""
    is_committed: bool = False
    """Whether the client has the head of a success, and the beginning of its body, before that."""
    sent_bytes: int = 0
    last: Tail = field(default_factory=partial(Tail, TAIL_BYTES, PIECES_OF_THE_END))
    """The end of what was sent."""
    _as_events: bool = True
    """Whether the committed body is a stream."""
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the head of such a body is sent."""
    _is_read: bool = False

    def is_whole(self) -> bool:
        """Whether the client has all of a streamed response, however its connection or the upstream's ends."""
        return self._wire.is_complete(self.last.joined)

    async def pass_early(self, headers: Headers, piece: bytes) -> None:
        """Pass on what the upstream sends before any content. `headers` are for a client that has none yet."""
        async with self._starting:
            if not (self.is_committed or self.status):  # a later round's head would be a second one
                await self._begin(200, headers)
                self.is_committed, self._as_events = True, self._wire.framing.is_stream(headers)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def comment_every(self, seconds: float, wanted: Callable[[], bool]) -> None:
        """Send comments until cancelled. `wanted` is called before each: whether the client wants a stream is known
        once its request has been read."""
        framing = self._wire.framing
        head = [(b"content-type", framing.content_type), (b"cache-control", b"no-cache")]
        while framing.comment:
            await asyncio.sleep(seconds)
            if wanted():
                await self.pass_early(head, framing.comment)

    async def pass_on(self) -> None:
        """Forward the upstream's response, each piece as it arrives."""
        answer = self.answer
        assert answer is not None, "there is one"
        self.status = answer.status
        whole = answer.evidence if isinstance(answer, PeekedResponse) and answer.is_whole else None
        if not self.is_committed:
            await self._begin(answer.status, answer.headers)
        elif not self._wire.framing.is_stream(answer.headers) if self._as_events else answer.status >= 400:
            whole = self._translated(whole if whole is not None else await _beginning(answer.chunks()))
        if whole is None:
            self.last = answer.last if isinstance(answer, PeekedResponse) else self.last
            try:
                async for piece in answer.chunks():
                    self.sent_bytes += len(piece)
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                    self.last.add(piece)
            except UpstreamError:
                if not self.is_whole():
                    raise
        self._is_read, body = True, whole or b""
        self.sent_bytes += len(body)
        await self._send({"type": "http.response.body", "body": body})
        if body:
            self.last.add(body)

    async def let_go(self) -> None:
        """Close the response; if its client left with all of it, only when the body is over."""
        if self.answer is not None:
            try:
                if not self._is_read and self.is_whole():
                    await self.answer.drain()
            finally:
                await self.answer.aclose()

    async def refuse(self, error: ProxyError) -> None:
        """An error in the wire's shape; nothing if the response has begun, so that the server breaks it off."""
        if self.status or isinstance(error, ClientLeft):
            return
        self.status = error.status
        answer = refusal(error, self._request_id, wire=self._wire)
        body = bytes(answer.body)
        if self.is_committed:
            body = self._translated(body)
        else:
            headers = [*answer.raw_headers, *self._own()]
            await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, headers: Headers) -> None:
        """Send the head of the upstream's response. Its id stays visible under another name: its support asks for
        it."""
        left_out = b"content-length" if status in _WITHOUT_BODY else None
        renamed = {b"x-request-id": b"x-upstream-request-id"}
        kept = [(renamed.get(name, name), value) for name, value in headers if name != left_out]
        headers = [*kept, (b"x-request-id", self._request_id), *self._own()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _translated(self, body: bytes) -> bytes:
        """A response that does not fit what has been sent of another, as an error at its end."""
        encode = self._wire.error_in_stream if self._as_events else self._wire.error_in_body
        return encode(self.status, body)


async def _beginning(pieces: AsyncIterator[bytes]) -> bytes:
    """As much of a body as an error may have."""
    body = b""
    async for piece in pieces:
        body += piece[: _MAX_ERROR_BYTES - len(body)]
    return body


def reported(error: Exception, request_id: str) -> ProxyError:
    """The error for the client; the last resort: a defect of the proxy is logged, and the client gets the id of the
    line."""
    if isinstance(error, ProxyError):
        return error
    logger().error("request_failed", request_id=request_id, exc_info=error)
    return ProxyError(f"the proxy failed; its log says why under request id {request_id}")


def request_id_of(headers: Headers) -> bytes:
    """The client's own id for its request, else a new one."""
    given = header(headers, b"x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else b"req-" + os.urandom(8).hex().encode()


GATEWAYS: Final = re.compile(r"/v1/compress\Z|/v1/retrieve(?:/|\Z)")
"""The paths for gateways, whose errors have a shape of their own."""
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
SHAPE: Final = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)  # no start reads the sources


def shaped(kind: type[Any]) -> type[Any]:
    """A dataclass or TypedDict that a response is built as, for FastAPI to describe: it has no other members, and their
    docstrings explain them."""
    return with_config(SHAPE)(kind)


REFUSED: Final[dict[int | str, dict[str, Any]]] = {"4XX": {"model": shaped(Refusal), "description": "Why not."}}
JSON_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The answer.", "content": {"application/json": {}}},
    "4XX": {"description": "Why not."},
}


_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>context-proxy</title>
<h1>context-proxy</h1>
<p>You cannot see this page from here: {message}.</p>
<p>On the machine that the proxy runs on, open it as <code>http://127.0.0.1:PORT/</code>, or forward the port:
<code>ssh -L 8787:127.0.0.1:8787 HOST</code>. For other machines set <code>server.admin_key</code> and give it as the
password.</p>
</html>
"""


def add_refusals(app: FastAPI) -> None:
    """Respond to errors that endpoints raise, to parameters that they cannot read, and to what no endpoint takes."""
    for kind in (ProxyError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)


async def _refuse(request: Request, failure: Exception) -> Response:
    error = _meaning(request, failure)
    answer = refusal(error, request_id_of(request.scope["headers"]), HEADERS)
    if isinstance(error, KeyNeeded | NotFromHere) and "text/html" in request.headers.get("accept", ""):
        content: str | bytes = _PAGE.format(message=html.escape(error.message))
        kind, more = "text/html", {"content-security-policy": "default-src 'none'"}
    elif GATEWAYS.match(request.scope["path"]):
        content, kind = compress_api.error_body(error), "application/json"
        more = {"www-authenticate": "Bearer"} if isinstance(error, KeyNeeded) else {}
    else:
        return answer
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    return Response(content, error.status, headers | more, kind)


def _meaning(request: Request, failure: Exception) -> ProxyError:
    """What was raised, FastAPI's own refusals included, as an error of the proxy."""
    match failure:
        case ProxyError():
            return failure
        case RequestValidationError():
            wrong = failure.errors()[0]
            name = str(wrong["loc"][1])
            return MalformedRequest(f"`{name}`: {wrong['msg']}", param=name)
        case HTTPException(status_code=405, headers={"Allow": methods}):
            allowed = methods.replace("GET", "GET, HEAD")
            return MethodNotAllowed(f"this path takes {allowed}", headers={"allow": allowed})
    host, meant = request.headers.get("host") or "HOST:PORT", like(raw_path(request.scope))
    hint = f"did you mean http://{host}{meant}?" if meant else f"the API is at http://{host}/v1"
    return UnknownPath(f"nothing is served at this path; {hint}")


def refusal(
    error: ProxyError, request_id: bytes, own: Mapping[str, str] = MappingProxyType({}), wire: Wire = DEFAULT
) -> Response:
    """The response to a refused request, in the wire's shape."""
    name = request_id.decode()
    described = {**own, **error.headers, "x-request-id": name, wire.id_header.decode(): name}
    return Response(wire.error(error, name), error.status, described, wire.content_type.decode())


def raw_path(scope: Scope) -> bytes:
    """The path with the escapes that the client wrote."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path
