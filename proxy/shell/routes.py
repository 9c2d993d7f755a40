"""The HTTP face: handlers as raw ASGI, and the one place where an error becomes a response.

Rule: the hot route has no middleware and no model of the body on its way. Once a byte of an answer has gone out, the
only honest way to report a failure is to break the stream.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import ClientLeft, ProxyError, ServerStopping, UnknownPath
from proxy.shell.answering.keepalive import KeepAlive
from proxy.shell.artifacts.whereabouts import WaysBack
from proxy.shell.bodies import BodyStream, read_body
from proxy.shell.disconnect import UntilClientLeaves
from proxy.shell.relay import Relay, header
from proxy.shell.telemetry.decision import Decision
from proxy.shell.telemetry.logs import logger
from proxy.shell.telemetry.recorder import Recorder
from proxy.shell.upstream.client import Headers
from proxy.wire.openai_chat import error_body

API_PREFIX: Final = b"/v1"
CHAT_PATH: Final = "/v1/chat/completions"
_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
"""What is taken over from a client and repeated in logs and headers: visible ASCII, of a bounded length."""


class Passable(Protocol):
    """A response whose body comes in pieces."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def headers(self) -> Headers:
        """As they are sent."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body."""


class AnswerSender:
    """Sends one response, and knows whether it has begun."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._request_id = request_id
        self.request_id = request_id.decode()
        self.status = 0
        """Of the response; 0 as long as it has not begun."""
        self.sent_bytes = 0

    async def pass_on(self, answer: Passable, client: UntilClientLeaves, own: Headers | None) -> None:
        """The upstream's answer, each piece when it arrives, with the proxy's `own` headers; None: untouched."""
        headers = answer.headers if own is None else [*self._with_request_id(answer.headers), *own]
        self.status = answer.status
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.chunks():
            self.sent_bytes += len(piece)
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        client.release()
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: ProxyError, own: Headers | None = None) -> None:
        """An error in OpenAI's shape; nothing when the response has begun, so that the server breaks it off."""
        if self.status or isinstance(error, ClientLeft):
            return
        body = error_body(error)
        described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers = [*self._with_request_id(described), *(own or [])]
        self.status = error.status
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _with_request_id(self, headers: Headers) -> Headers:
        """The upstream's own id stays visible under another name: its support asks for it."""
        renamed = [(b"x-upstream-request-id" if name == b"x-request-id" else name, value) for name, value in headers]
        return [*renamed, (b"x-request-id", self._request_id)]


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    def __init__(self, relay: Relay, recorder: Recorder, ways: WaysBack, max_body_bytes: int) -> None:
        self._relay = relay
        self._ways = ways
        self._recorder = recorder
        self._max_body_bytes = max_body_bytes
        self._log = logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        request_id = request_id_of(headers)
        decision = self._recorder.begin(request_id.decode(), headers)
        alive = self._keepalive(headers, send, request_id, decision)
        sender = AnswerSender(alive.send if alive else send, request_id)
        try:
            body = await read_body(receive, _announced_bytes(headers), self._max_body_bytes)
            decision.note_body(len(body))
            async with UntilClientLeaves(receive) as client:
                serving = self._relay.serve(_target(scope), headers, body, decision, self._ways.of(scope))
                if alive is None:
                    answer = await serving
                else:
                    async with alive:
                        answer = await serving
                try:
                    await sender.pass_on(answer, client, decision.headers())
                    self._relay.learn_from(answer, decision)
                finally:
                    await answer.aclose()
        except ProxyError as error:
            decision.note_error(error)
            await sender.refuse(error, decision.headers())
        except Exception:
            self._log.exception("request_failed", request_id=decision.request_id)
            failure = ProxyError(f"the proxy failed; its log says why under request id {decision.request_id}")
            decision.note_error(failure)
            await sender.refuse(failure)
        except asyncio.CancelledError:
            decision.note_error(ServerStopping("the proxy was stopped before the answer was complete"))
            raise
        finally:
            decision.note_response(sender.status, sender.sent_bytes)
            self._recorder.finish(decision)

    def _keepalive(self, headers: Headers, send: Send, request_id: bytes, decision: Decision) -> KeepAlive | None:
        seconds = self._relay.keepalive_seconds(headers)
        if seconds is None:
            return None
        return KeepAlive(send, seconds, lambda: _wants_stream(decision), [(b"x-request-id", request_id)])


class PassThrough:
    """Everything else under `/v1/`, any method, both directions as streams."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._log = logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        request_id = request_id_of(headers)
        sender = AnswerSender(send, request_id)
        upload = BodyStream(receive) if _has_body(headers) else None
        try:
            async with UntilClientLeaves(receive, after=upload.finished if upload else None) as client:
                body = aiter(upload) if upload else None
                answer = await self._relay.pass_through(scope["method"], _target(scope), headers, body)
                try:
                    await sender.pass_on(answer, client, None)
                finally:
                    await answer.aclose()
        except ProxyError as error:
            self._log.warning(
                "passthrough_failed",
                request_id=request_id.decode(),
                method=scope["method"],
                path=scope["path"][:200],
                outcome=error.code,
                problem=error.message,
            )
            await sender.refuse(error)


class Front:
    """The application as the server sees it: what an agent calls goes straight to its handler, the rest to FastAPI,
    whose router and middleware take about a fourteenth of the CPU of a small request."""

    def __init__(self, chat: ChatCompletions, pass_through: PassThrough, rest: ASGIApp) -> None:
        self._chat = chat
        self._pass_through = pass_through
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._rest(scope, receive, send)
        elif scope["path"] == CHAT_PATH and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await self._pass_through(scope, receive, send)


def _wants_stream(decision: Decision) -> bool:
    return decision.planned is not None and decision.planned.request.stream


def request_id_of(headers: Headers) -> bytes:
    """The client's own name for its request, else a new one."""
    given = header(headers, b"x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else b"req-" + os.urandom(8).hex().encode()


def _announced_bytes(headers: Headers) -> int:
    announced = header(headers, b"content-length")
    return int(announced) if announced.isdigit() else 0


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in headers)


def _target(scope: Scope) -> bytes:
    """Path and query behind `/v1`, with the escapes that the client wrote."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    target = path.removeprefix(API_PREFIX)
    return target + b"?" + query if query else target


async def unknown_path(scope: Scope, _: Receive, send: Send) -> None:
    """404 for what is not served, with the base URL that was probably meant."""
    host = header(scope["headers"], b"host").decode("latin-1") or "HOST:PORT"
    error = UnknownPath(f"nothing is served at this path; the API stands under http://{host}/v1")
    await AnswerSender(send, request_id_of(scope["headers"])).refuse(error)
