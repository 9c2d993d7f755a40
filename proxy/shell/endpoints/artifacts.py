"""Content taken out of requests, at `/artifacts/NAME` or by the Model Context Protocol.

Rule: a name is an artifact's name or nothing, never a path; content that arrived with a key is served for that key
only; a browser never runs content that a model or a tool wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi import Query as InQuery
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.artifact_reading import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
    Query,
)
from proxy.errors import (
    ArtifactNotFound,
    BadArtifactQuery,
    BodyTooLarge,
    MissingKey,
    NotFromHere,
    ProxyError,
    RangeOutside,
)
from proxy.shell.artifacts import ArtifactStat, Stored, is_artifact
from proxy.shell.endpoints.responses import (
    JSON_RESPONSES,
    REFUSED,
    request_id_of,
    shaped,
)
from proxy.shell.endpoints.services import CLIENT_KEY, Services, Serving
from proxy.shell.http import read_body, until_client_leaves
from proxy.shell.resources import logger

MAX_CALL_BYTES: Final = 256 * 1024
"""Limit of an MCP request: a call has a name and a pattern."""
_RANGE: Final = re.compile(r"bytes=[ \t]*(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<end>[0-9]{1,18}))[ \t]*")
_SHOWN: Final = (
    "text/plain",
    "application/json",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "audio/",
    "video/",
)
"""Types that a browser may display; it saves all others, which may contain scripts."""
_GUARD: Final = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "cache-control": "no-store",
}
_TEXT: Final = "text/plain; charset=utf-8"
_WHOLE: Final = {"schema": {"type": "string", "format": "binary"}}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSED,
    200: {
        "model": shaped(ArtifactStat),
        "description": "The whole with its own type; a page as plain text, after a line that says what the page "
        "shows, of how much, and how to continue; for `stat`, a description.",
        "content": {"text/plain": {"schema": {"type": "string"}}, "*/*": _WHOLE},
    },
    206: {"description": "A range of bytes.", "content": {"*/*": _WHOLE}},
}


_Text = Annotated[str | None, WithJsonSchema({"type": "string"})]


class Parameters(BaseModel):
    """What to read of an artifact, for the description; `Query` reads the values."""

    lines: _Text = Field(
        None, description="A page: `400-480`, `400-`, `-80` (the last 80), `5:48000-80` (from byte 48000 of line 5 on)."
    )
    grep: Annotated[
        str | None, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARACTERS})
    ] = Field(None, description="Lines that match, with the syntax of RE2; alone, or within `lines`.")
    context: Annotated[str | None, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT})] = Field(
        None, description=f"Lines before and after each match of `grep`, {CONTEXT} by default."
    )
    max: Annotated[str | None, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_HITS})] = Field(
        None, description=f"Most matches of `grep`, {HITS} by default."
    )
    pointer: Annotated[str | None, WithJsonSchema({"type": "string", "maxLength": MAX_POINTER_CHARACTERS})] = Field(
        None,
        alias="json",
        description="A part of JSON: `/messages/3/content`. `lines` and `grep` then apply to that part.",
    )
    stat: _Text = Field(None, description="Its metadata; used alone.")
    instead: _Text = Field(
        None,
        description="The id of one of the latest requests: what stood in place of the artifact there, as text; for "
        "messages that are left out, the text with the note about them. Used alone.",
    )


_Name = Annotated[str, Path(description="The name in a notice: `tool_NAME_0123456789abcdef.txt`.")]
_Range = Annotated[
    str | None,
    Header(description="One range of bytes of the whole: `bytes=0-1023`, `bytes=-500`."),
    WithJsonSchema({"type": "string"}),
]

router = APIRouter(tags=["artifacts"], dependencies=[Depends(CLIENT_KEY)], default_response_class=Response)


@router.post(
    "/mcp", summary="Content taken out of requests, by the Model Context Protocol", responses=JSON_RESPONSES, name="mcp"
)
async def mcp(request: Request, services: Serving) -> Response:
    """JSON-RPC over streamable HTTP, without sessions, with `mcp: true`."""
    if services.mcp is None:
        raise HTTPException(404)
    if request.headers.get("origin"):
        raise NotFromHere("no web page may speak MCP here")
    try:
        body = await read_body(request, MAX_CALL_BYTES, services.server.body_timeout_seconds)
    except BodyTooLarge:
        raise BodyTooLarge(f"a call may have at most {MAX_CALL_BYTES:,} bytes") from None
    return McpResponse(services.mcp, body)


class McpResponse(Response):
    """The answer of the protocol's SDK, which takes an ASGI request."""

    def __init__(self, speaks: ASGIApp, body: bytes) -> None:
        super().__init__()
        self._speaks = speaks
        self._read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def again() -> Message:
            return self._read.pop() if self._read else await receive()

        await self._speaks(scope, again, send)


@router.get("/artifacts/{name}", summary="Content taken out of a request", responses=_RESPONSES)
async def artifact(
    request: Request,
    services: Serving,
    name: _Name,
    parameters: Annotated[Parameters, InQuery()],
    range: _Range = None,
) -> Response:
    """The whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or its replacement
    text."""
    request_id = request_id_of(request.scope["headers"]).decode()
    about = {"request_id": request_id, "artifact": name if is_artifact(name) else None}
    try:
        async with until_client_leaves(request.receive):
            answer = await _read(request, services, name, parameters.instead, range or "")
    except ProxyError as error:
        logger().info("artifact_read", **about, status=error.status, sent_bytes=0)
        error.headers = {**_GUARD, **error.headers}
        raise
    answer.headers["x-request-id"] = request_id
    return LoggedResponse(answer, about)


class LoggedResponse(Response):
    """A response that is logged at its end; where a piece of it cannot be read, the server breaks it off."""

    def __init__(self, answer: Response, about: Mapping[str, object]) -> None:
        super().__init__()
        self._answer = answer
        self._about = about

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, sent_bytes = self._answer.status_code, 0

        async def counted(message: Message) -> None:
            nonlocal sent_bytes
            await send(message)
            sent_bytes += 0 if scope["method"] == "HEAD" else len(message.get("body", b""))

        try:
            await self._answer(scope, receive, counted)
        except ProxyError as error:
            status = error.status
        finally:
            logger().info("artifact_read", **self._about, status=status, sent_bytes=sent_bytes)


async def _read(request: Request, services: Services, name: str, request_id: str | None, byte_range: str) -> Response:
    """Raises ProxyError, and MissingKey if a key might open what was not found."""
    pairs = request.query_params.multi_items()
    if len(parameters := dict(pairs)) < len(pairs):
        raise BadArtifactQuery("each parameter may occur only once")
    tenant = services.rights.tenant_of(request.scope)
    try:
        if request_id is not None:
            return _instead(services.replacements.find(request_id, tenant, name), parameters)
        query = Query.parse(parameters)
        stored = await services.reader.find(name, tenant)
    except ArtifactNotFound:
        if tenant is not None and services.tenants.needs_key(request.scope["headers"]):
            raise MissingKey(
                "artifact not found without a key: send the API key of its request, in the same header"
            ) from None
        raise
    if query is None:
        return _whole(request, services, stored, byte_range)
    if byte_range:
        raise BadArtifactQuery("a range of bytes is one of the whole; send either `Range` or a query")
    page = await services.reader.page(stored, query)
    return Response(page, headers={**_GUARD, "content-type": "application/json" if query.stat else _TEXT})


def _instead(text: str | None, parameters: Mapping[str, str]) -> Response:
    """The replacement text in a request."""
    if len(parameters) > 1:
        raise BadArtifactQuery("`instead` takes no other parameter: it is always whole", param="instead")
    if text is None:
        raise ArtifactNotFound(
            "what stood in its place is not known: the worker that served the request remembers it in memory, for "
            "its latest requests, and tells only who has the key"
        )
    return Response(text.encode("utf-8", "replace"), headers={**_GUARD, "content-type": _TEXT})


def _whole(request: Request, services: Services, stored: Stored, byte_range: str) -> Response:
    """The content, or a range of its bytes: an unknown unit is ignored (RFC 9110, 14.2)."""
    kind = stored.metadata.media_type.encode("ascii", "replace").decode()
    how = "inline" if kind.startswith(_SHOWN) else "attachment"
    headers = {**_GUARD, "accept-ranges": "bytes", "etag": f'"{stored.name}"'}
    is_part = byte_range.startswith("bytes=") and request.method == "GET"
    start, stop = _requested_bytes(byte_range, stored.size, headers) if is_part else (0, stored.size)
    if is_part:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{stored.size}"
    headers |= {
        "content-type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        "content-length": str(stop - start),
        "content-disposition": f'{how}; filename="{stored.name}"',
    }
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(services.reader.pieces(stored, start, stop), 206 if is_part else 200, headers)


def _requested_bytes(byte_range: str, size: int, headers: Mapping[str, str]) -> tuple[int, int]:
    """Start and end of the range. Raises RangeOutside."""
    found = _RANGE.fullmatch(byte_range)
    if found is not None and found["end"]:
        start, stop = max(0, size - int(found["end"])), size
    elif found is not None:
        start, stop = int(found["first"]), min(size, int(found["last"] or size) + 1)
    else:
        start = stop = 0
    if start >= stop:
        raise RangeOutside(
            f"`Range` must be one range within its {size:,} bytes, such as bytes=0-1023 or bytes=-500",
            headers={**headers, "content-range": f"bytes */{size}"},
        )
    return start, stop
