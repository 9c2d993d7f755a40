"""What all endpoints of the operator's API share: how they are asked, how they refuse, who answers in their place.

Rule: every refusal, FastAPI's own ones too, has OpenAI's shape; it names the parameter and repeats nothing of what was
sent.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import KeyNeeded, MalformedRequest, MethodNotAllowed, ProxyError
from proxy.shell.endpoints.answers import Refusal
from proxy.shell.telemetry.recent import MAX_DECISIONS
from proxy.wire.openai_chat import error_body

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
REFUSED: Final[dict[int | str, dict[str, Any]]] = {"4XX": {"model": Refusal, "description": "Why not."}}
OPERATOR_KEY: Final = HTTPBearer(
    scheme_name="operator key",
    description="`server.admin_key`, also as the password of HTTP's Basic. A client on this machine needs none.",
    auto_error=False,  # the guard decides; this is for the description alone
)
CLIENT_KEY: Final = HTTPBearer(
    scheme_name="client key",
    description="The API key that the artifact came with; what came without one is read without one.",
    auto_error=False,
)
_ALLOWED: Final = {"limit": f"a number from 1 to {MAX_DECISIONS}"}
"""Of parameters that FastAPI reads."""


class Endpoint(APIRoute):
    """One path of the API. What is read with GET is asked about with HEAD, as with Starlette's own routes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As a GET, if it is a HEAD."""
        return super().matches({**scope, "method": self._asked(scope)} if scope["type"] == "http" else scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or says with what to ask."""
        methods = self.methods or set()
        if self._asked(scope) in methods:
            await self.app(scope, receive, send)
            return
        allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
        answer = refusal(MethodNotAllowed(f"this path is asked with {allowed}"))
        answer.headers["allow"] = allowed
        await answer(scope, receive, send)

    def _asked(self, scope: Scope) -> str:
        method: str = scope["method"]
        return "GET" if method == "HEAD" and "GET" in (self.methods or ()) else method


class Served(Response):
    """The answer of a plain application to the same request, byte for byte: FastAPI only describes it."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def add_refusals(app: FastAPI) -> None:
    """Answer errors that endpoints raise, and parameters that they cannot read."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProxyError)
        return refusal(error)

    async def wrong_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        name = str(error.errors()[0]["loc"][-1])
        return refusal(MalformedRequest(f"`{name}` must be {_ALLOWED[name]}", param=name))

    app.add_exception_handler(ProxyError, refused)
    app.add_exception_handler(RequestValidationError, wrong_parameter)


def refusal(error: ProxyError) -> Response:
    """The answer to what is refused."""
    headers = {**HEADERS, "x-request-id": f"req-{secrets.token_hex(8)}"}
    if isinstance(error, KeyNeeded):
        headers["www-authenticate"] = 'Basic realm="context-proxy", charset="UTF-8"'
    return Response(error_body(error), error.status, headers, "application/json")
