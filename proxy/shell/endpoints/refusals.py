"""Refusals of the endpoints, FastAPI's and ours, in OpenAI's shape like all others.

Rule: the path and the parameter are named; what was sent is not repeated.
"""

from __future__ import annotations

import html
import secrets
from typing import Annotated, Any, Final, NotRequired

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from starlette.routing import Match
from starlette.types import Receive, Scope, Send
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from proxy.errors import KeyNeeded, MalformedRequest, MethodNotAllowed, NotFromHere, ProxyError
from proxy.shell.endpoints.services import services_of
from proxy.shell.operator.overview import MAX_HOURS
from proxy.shell.telemetry.ledger import MAX_DECISIONS
from proxy.wire.json_wire import Refusal, error_body

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
SHAPE: Final = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def shaped(kind: type[Any], *parts: type[Any]) -> type[Any]:
    """A TypedDict that a response is built as, for FastAPI to describe: it has no other members, and their docstrings
    explain them. `parts`: those within it that extend others, as pydantic reads no docstrings of a base."""
    for extended in (kind, *parts):
        with_config(SHAPE)(extended)
        hints: dict[str, Any] = get_type_hints(extended, include_extras=True)
        for base in filter(is_typeddict, get_original_bases(extended)):
            for name, found in TypeAdapter(shaped(base)).json_schema()["properties"].items():
                hint, told = hints[name], Field(description=found.get("description"))
                is_optional = getattr(hint, "__origin__", None) is NotRequired
                own = NotRequired[Annotated[hint.__args__[0], told]] if is_optional else Annotated[hint, told]
                extended.__annotations__[name] = own
    return kind


REFUSED: Final[dict[int | str, dict[str, Any]]] = {"4XX": {"model": shaped(Refusal), "description": "Why not."}}
OPERATOR_KEY: Final = HTTPBearer(
    scheme_name="operator key",
    description="`server.admin_key`, also as the password of HTTP's Basic. If it is not set, clients on this machine "
    "need none, and others are refused.",
    auto_error=False,  # the guard decides; this is only for the description
)
CLIENT_KEY: Final = HTTPBearer(
    scheme_name="client key",
    description="The API key of the request that the artifact was taken from; none if that request had none.",
    auto_error=False,
)
MAX_CONVERSATIONS: Final = 100
"""In one response."""
MAX_WORDS_CHARACTERS: Final = 200
"""Of a search."""
_ALLOWED: Final = {
    "limit": f"a number from 1 to {MAX_DECISIONS}",
    "hours": f"a number from 1 to {MAX_HOURS}",
    "before": "the `id` of a decision",
    "q": f"words of at most {MAX_WORDS_CHARACTERS} characters together",
    "show": "all, changed or troubled",
    "conversation": "the name of a conversation, as decisions have it",
}
"""Of parameters that FastAPI reads."""


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


class Endpoint(APIRoute):
    """One path of the API. A path with GET also accepts HEAD, as with Starlette's own routes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Matches a HEAD as a GET."""
        return super().matches({**scope, "method": self._asked(scope)} if scope["type"] == "http" else scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Responds, or says which methods to use."""
        methods = self.methods or set()
        if self._asked(scope) in methods:
            await self.app(scope, receive, send)
            return
        allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
        answer = refusal(MethodNotAllowed(f"this path takes {allowed}"))
        answer.headers["allow"] = allowed
        await answer(scope, receive, send)

    def _asked(self, scope: Scope) -> str:
        method: str = scope["method"]
        return "GET" if method == "HEAD" and "GET" in (self.methods or ()) else method


async def guarded(request: Request) -> None:
    """A dependency of the operator's endpoints. Raises KeyNeeded and NotFromHere."""
    await services_of(request).guard.admit(request.scope)


def add_refusals(app: FastAPI) -> None:
    """Respond to errors that endpoints raise, and to parameters that they cannot read."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProxyError)
        is_page = isinstance(error, KeyNeeded | NotFromHere) and "text/html" in request.headers.get("accept", "")
        return _page(refusal(error), error) if is_page else refusal(error)

    async def wrong_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        name = str(error.errors()[0]["loc"][-1])
        return refusal(MalformedRequest(f"`{name}` must be {_ALLOWED[name]}", param=name))

    app.add_exception_handler(ProxyError, refused)
    app.add_exception_handler(RequestValidationError, wrong_parameter)


def _page(answer: Response, error: ProxyError) -> Response:
    """The same for a person who requested a page with a browser."""
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    page = _PAGE.format(message=html.escape(error.message))
    return Response(page, answer.status_code, headers | {"content-security-policy": "default-src 'none'"}, "text/html")


def refusal(error: ProxyError) -> Response:
    """The response to a refused request."""
    headers = {**HEADERS, "x-request-id": f"req-{secrets.token_hex(8)}"}
    if isinstance(error, KeyNeeded):
        headers["www-authenticate"] = 'Basic realm="context-proxy", charset="UTF-8"'
    return Response(error_body(error), error.status, headers, "application/json")
