"""`GET /artifacts/NAME`: the whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or its
replacement text.

Rule: a name is an artifact's name or nothing, never a path; content that arrived with a key is served for that key
only; a browser never runs content that a model or a tool wrote.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import Header, Path
from fastapi import Query as InQuery
from pydantic import WithJsonSchema
from starlette.types import Receive, Scope, Send

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
    MethodNotAllowed,
    MissingKey,
    ProxyError,
    RangeOutside,
)
from proxy.shell.artifacts import ArtifactReader, ArtifactStat, Replacements, Stored, is_artifact
from proxy.shell.endpoints.guard import ArtifactRights
from proxy.shell.endpoints.responses import REFUSED, OwnResponse, ResponseSender, request_id_of, shaped
from proxy.shell.http import content_headers, until_client_leaves
from proxy.shell.resources import logger
from proxy.shell.upstream import Headers, header

ARTIFACTS_PATH: Final = "/artifacts/"
INSTEAD: Final = "instead"
"""The parameter that names a request."""
_RANGE: Final = re.compile(rb"bytes=[ \t]*(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<end>[0-9]{1,18}))[ \t]*")
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
_GUARD: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"cache-control", b"no-store"),
]


_WHOLE: Final = {"schema": {"type": "string", "format": "binary"}}
ARTIFACT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSED,
    200: {
        "model": shaped(ArtifactStat),
        "description": "The whole with its own type; a page as plain text, after a line that says what the page "
        "shows, of how much, and how to continue; for `stat`, a description.",
        "content": {"text/plain": {"schema": {"type": "string"}}, "*/*": _WHOLE},
    },
    206: {"description": "A range of bytes.", "content": {"*/*": _WHOLE}},
}

_Name = Annotated[str, Path(description="The name in a notice: `tool_NAME_0123456789abcdef.txt`.")]
_Lines = Annotated[
    str | None,
    InQuery(
        description="A page: `400-480`, `400-`, `-80` (the last 80), `5:48000-80` (from byte 48000 of line 5 on).",
    ),
    WithJsonSchema({"type": "string"}),
]
_Grep = Annotated[
    str | None,
    InQuery(description="Lines that match, with the syntax of RE2; alone, or within `lines`."),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARACTERS}),
]
_Context = Annotated[
    str | None,
    InQuery(description=f"Lines before and after each match of `grep`, {CONTEXT} by default."),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT}),
]
_Max = Annotated[
    str | None,
    InQuery(description=f"Most matches of `grep`, {HITS} by default."),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_HITS}),
]
_Pointer = Annotated[
    str | None,
    InQuery(description="A part of JSON: `/messages/3/content`. `lines` and `grep` then apply to that part."),
    WithJsonSchema({"type": "string", "maxLength": MAX_POINTER_CHARACTERS}),
]
_Stat = Annotated[str | None, InQuery(description="Its metadata; used alone."), WithJsonSchema({"type": "string"})]
_Instead = Annotated[
    str | None,
    InQuery(
        description="The id of one of the latest requests: what stood in place of the artifact there, as text; for "
        "messages that are left out, the text with the note about them. Used alone."
    ),
    WithJsonSchema({"type": "string"}),
]
_Range = Annotated[
    str | None,
    Header(description="One range of bytes of the whole: `bytes=0-1023`, `bytes=-500`."),
    WithJsonSchema({"type": "string"}),
]


async def artifact(
    name: _Name,
    lines: _Lines = None,
    grep: _Grep = None,
    context: _Context = None,
    max: _Max = None,
    json: _Pointer = None,
    stat: _Stat = None,
    instead: _Instead = None,
    range: _Range = None,
) -> None:
    """The whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or its replacement
    text."""


class ArtifactRoute:
    """Serves the content of the store."""

    def __init__(self, reader: ArtifactReader, rights: ArtifactRights, replacements: Replacements) -> None:
        self._reader = reader
        self._rights = rights
        self._replacements = replacements

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = request_id_of(scope["headers"])
        sender = ResponseSender(send, request_id)
        status, own = 200, list(_GUARD)
        try:
            async with until_client_leaves(receive) as stop_watching:
                body = await self._answered(scope, own)
                status = body.status
                await sender.pass_on(body, stop_watching, [])
        except ProxyError as error:
            status = error.status
            if isinstance(error, MissingKey):
                own.append((b"www-authenticate", b"Bearer"))
            await sender.refuse(error, own)
        finally:
            name = _name(scope)
            logger().info(
                "artifact_read",
                request_id=request_id.decode(),
                artifact=name if is_artifact(name) else None,
                status=status,
                sent_bytes=sender.sent_bytes,
            )

    async def _answered(self, scope: Scope, own: Headers) -> OwnResponse:
        if scope["method"] not in ("GET", "HEAD"):
            own.append((b"allow", b"GET, HEAD"))
            raise MethodNotAllowed("artifacts are read with GET and HEAD")
        parameters = _parameters(scope["query_string"])
        is_head = scope["method"] == "HEAD"
        if INSTEAD in parameters:
            text = self._instead(scope, parameters).encode("utf-8", "replace")
            described = content_headers(b"text/plain; charset=utf-8", len(text))
            return OwnResponse(200, [*own, *described], _once(b"" if is_head else text))
        query = Query.parse(parameters)
        stored = await self._found(scope)
        if query is not None:
            if header(scope["headers"], b"range"):
                raise BadArtifactQuery("a range of bytes is one of the whole; send either `Range` or a query")
            page = await self._reader.page(stored, query)
            kind = b"application/json" if query.stat else b"text/plain; charset=utf-8"
            return OwnResponse(200, [*own, *content_headers(kind, len(page))], _once(b"" if is_head else page))
        own += [(b"accept-ranges", b"bytes"), (b"etag", b'"' + stored.name.encode() + b'"')]
        byte_range = b"" if is_head else header(scope["headers"], b"range")
        start, stop = _requested_bytes(byte_range, stored.size, own)
        headers = [*own, *content_headers(_type_of(stored), stop - start), _disposition(stored)]
        status = 200
        if byte_range.startswith(b"bytes="):
            status = 206
            headers.append((b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, stored.size)))
        pieces = _once(b"") if is_head else self._reader.pieces(stored, start, stop)
        return OwnResponse(status, headers, pieces)

    def _instead(self, scope: Scope, parameters: Mapping[str, str]) -> str:
        """The replacement text in a request."""
        if len(parameters) > 1:
            raise BadArtifactQuery("`instead` takes no other parameter: it is always whole", param=INSTEAD)
        tenant = self._rights.tenant_of(scope)
        found = self._replacements.find(parameters[INSTEAD], tenant, _name(scope))
        if found is None:
            self._ask_for_key(scope, tenant)
            raise ArtifactNotFound(
                "what stood in its place is not known: the worker that served the request remembers it in memory, for "
                "its latest requests, and tells only who has the key"
            )
        return found

    async def _found(self, scope: Scope) -> Stored:
        tenant = self._rights.tenant_of(scope)
        try:
            return await self._reader.find(_name(scope), tenant)
        except ArtifactNotFound:
            self._ask_for_key(scope, tenant)
            raise

    def _ask_for_key(self, scope: Scope, tenant: str | None) -> None:
        """Raises MissingKey if a key might open what was not found."""
        if tenant is not None and self._rights.needs_key(scope):
            raise MissingKey(
                "artifact not found without a key: send the API key of its request, in the same header"
            ) from None


def _name(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(ARTIFACTS_PATH)


def _parameters(query_string: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        raise BadArtifactQuery("the query must be `name=value` pairs in UTF-8, at most 20, joined by `&`") from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise BadArtifactQuery("each parameter may occur only once")
    return parameters


def _requested_bytes(byte_range: bytes, size: int, own: Headers) -> tuple[int, int]:
    """Start and end of the range. An unknown unit is ignored (RFC 9110, 14.2). Raises RangeOutside."""
    if not byte_range.startswith(b"bytes="):
        return 0, size
    found = _RANGE.fullmatch(byte_range)
    if found is not None and found["end"]:
        start, stop = max(0, size - int(found["end"])), size
    elif found is not None:
        start, stop = int(found["first"]), min(size, int(found["last"] or size) + 1)
    else:
        start = stop = 0
    if start >= stop:
        own.append((b"content-range", b"bytes */%d" % size))
        raise RangeOutside(f"`Range` must be one range within its {size:,} bytes, such as bytes=0-1023 or bytes=-500")
    return start, stop


def _type_of(stored: Stored) -> bytes:
    kind = stored.metadata.media_type.encode("ascii", "replace")
    return kind + b"; charset=utf-8" if kind.startswith(b"text/") else kind


def _disposition(stored: Stored) -> tuple[bytes, bytes]:
    how = "inline" if stored.metadata.media_type.startswith(_SHOWN) else "attachment"
    return b"content-disposition", f'{how}; filename="{stored.name}"'.encode()


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    if piece:
        yield piece
