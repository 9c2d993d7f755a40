"""`GET /v1/models` of several upstreams: one list.

Rule: an entry keeps its bytes. If several upstreams have a name, the first one's entry is listed, as that upstream
serves such requests. An upstream that does not respond in time is left out, unless none does. A client's key goes to
the upstream that it is for, and to others only if the settings say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.types import Scope, Send

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.errors import ProxyError, UpstreamUnreachable
from proxy.shell.relay.routes import Route, Routes
from proxy.shell.upstream.client import Headers

PATH: Final = "/v1/models"
ANSWER_SECONDS: Final = 10.0
"""Longest wait for one upstream's list."""
MAX_LIST_BYTES: Final = 16 * 1024 * 1024
"""Of one upstream's list; OpenRouter's has 0.6 MB."""

_NO_SECRETS: Final = frozenset((b"accept", b"anthropic-version", b"user-agent"))
"""What other upstreams get of a client's headers."""


def is_asked(scope: Scope) -> bool:
    """Whether a request asks for the list."""
    return bool(scope["method"] == "GET" and scope["path"].rstrip("/") == PATH)


async def send_union(routes: Routes, scope: Scope, send: Send) -> None:
    """Respond with the lists of all upstreams together. Raises UpstreamUnreachable if none has one."""
    headers: Headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
    without_key, meant = [pair for pair in headers if pair[0] in _NO_SECRETS], routes.of_key(headers)
    lists = await asyncio.gather(
        *(
            _listed(route, headers if route is meant or route.upstream.list_with_client_key else without_key)
            for route in routes.all
        )
    )
    entries: dict[str, Raw] = {}
    for listed in lists:
        for raw in listed or ():
            entries.setdefault(_name_of(raw), raw)
    if all(listed is None for listed in lists):
        raise UpstreamUnreachable("no upstream sent its list of models")
    body = jsontext.join_object({"object": b'"list"', "data": jsontext.join_array(list(entries.values()))})
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": described})
    await send({"type": "http.response.body", "body": body})


async def _listed(route: Route, headers: Headers) -> Sequence[Raw] | None:
    """The entries of one upstream's list; None if it cannot be had."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await route.relay.pass_through("GET", b"/models", headers, None)
            try:
                pieces, length = [], 0
                async for piece in answer.chunks():
                    pieces.append(piece)
                    length += len(piece)
                    if length > MAX_LIST_BYTES:
                        return None
            finally:
                await answer.aclose()
        return jsontext.items(jsontext.members(b"".join(pieces))["data"]) if answer.status == 200 else None
    except (ProxyError, TimeoutError, jsontext.NotJson, KeyError):
        return None


def _name_of(raw: Raw) -> str:
    """An entry without a name is identified by itself."""
    found = jsontext.opened(raw)
    name = found.get("id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else bytes(raw).decode("utf-8", "replace")
