"""`GET /artifacts/{name}` as the API describes it; `artifacts.py` reads the query and responds.

Rule: nothing is checked twice: the description says what a parameter may be, and the core's query refuses the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Header, Path, Query, Response
from pydantic import WithJsonSchema
from starlette.types import Receive, Scope, Send

from proxy.core.artifact_reading.search import (
    CONTEXT,
    HITS,
    MAX_CONTEXT,
    MAX_HITS,
    MAX_PATTERN_CHARACTERS,
    MAX_POINTER_CHARACTERS,
)
from proxy.shell.endpoints.answers import ArtifactStat
from proxy.shell.endpoints.artifacts import ARTIFACTS_PATH
from proxy.shell.endpoints.parts import PARTS, Parts
from proxy.shell.endpoints.refusals import CLIENT_KEY, REFUSED

_WHOLE: Final = {"schema": {"type": "string", "format": "binary"}}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **REFUSED,
    200: {
        "model": ArtifactStat,
        "description": "The whole with its own type; a page as plain text, after a line that says what the page "
        "shows, of how much, and how to continue; for `stat`, a description.",
        "content": {"text/plain": {"schema": {"type": "string"}}, "*/*": _WHOLE},
    },
    206: {"description": "A range of bytes.", "content": {"*/*": _WHOLE}},
}

_Name = Annotated[str, Path(description="The name in a notice: `tool_NAME_0123456789abcdef.txt`.")]
_Lines = Annotated[
    str | None,
    Query(
        description="A page: `400-480`, `400-`, `-80` (the last 80), `5:48000-80` (from byte 48000 of line 5 on).",
    ),
    WithJsonSchema({"type": "string"}),
]
_Grep = Annotated[
    str | None,
    Query(description="Lines that match, with the syntax of RE2; alone, or within `lines`."),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARACTERS}),
]
_Context = Annotated[
    str | None,
    Query(description=f"Lines before and after each match of `grep`, {CONTEXT} by default."),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT}),
]
_Max = Annotated[
    str | None,
    Query(description=f"Most matches of `grep`, {HITS} by default."),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_HITS}),
]
_Pointer = Annotated[
    str | None,
    Query(description="A part of JSON: `/messages/3/content`. `lines` and `grep` then apply to that part."),
    WithJsonSchema({"type": "string", "maxLength": MAX_POINTER_CHARACTERS}),
]
_Stat = Annotated[str | None, Query(description="Its metadata; used alone."), WithJsonSchema({"type": "string"})]
_Instead = Annotated[
    str | None,
    Query(
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


class WhatIsKept(Response):
    """The response of the store's own route to the same request, byte for byte."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: Parts = scope[PARTS]
        await parts.artifacts(scope, receive, send)


def add_artifact_endpoint(app: FastAPI) -> None:
    """Serve `/artifacts/{name}` with GET and HEAD."""

    @app.get(
        ARTIFACTS_PATH + "{name}",
        summary="Content taken out of a request",
        tags=["artifacts"],
        dependencies=[Depends(CLIENT_KEY)],
        response_class=Response,
        responses=_RESPONSES,
    )
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
    ) -> Response:
        """The whole, a range of bytes, a page of lines, a search, a part of JSON, a description, or what stands in its
        place."""
        del name, lines, grep, context, max, json, stat, instead, range  # the route reads the request itself
        return WhatIsKept()
