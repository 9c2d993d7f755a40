"""Several upstreams behind one address: which of them serves a request.

Rule: the first route whose wire and model match; the last one serves everything else. With only one upstream, nothing
is read to choose it. What is learned about models is kept separately for each upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from starlette.types import Scope

from proxy.core.text import Raw, jsontext
from proxy.errors import BodyTooLarge, MalformedRequest, ProxyError, UpstreamUnreachable
from proxy.shell.http import plain_body
from proxy.shell.models import NoAnswer, body_of
from proxy.shell.planning import Planner
from proxy.shell.relay.relay import Relay
from proxy.shell.resources import in_thread
from proxy.shell.upstream import Headers, Upstream
from proxy.wire import Wire, whose_key


class Route(Struct, frozen=True):
    """One upstream, and what serves its requests."""

    relay: Relay
    planner: Planner
    upstream: Upstream
    """Its settings say which requests it takes."""
    name: str = ""
    """Its place in the settings: `upstream`, `upstreams[0]`; empty if it is the only one."""

    def is_of(self, wire: Wire) -> bool:
        """Whether its upstream is a server whose own API this wire is, by the settings or by its own words."""
        return self.upstream.settings.is_only_for(wire.path) or self.relay.own_wire == wire.name


class Routes:
    """All upstreams, in the order in which they are tried."""

    def __init__(self, routes: Sequence[Route], max_body_bytes: int) -> None:
        """The last one serves what no other does. `max_body_bytes`: of a body that must be decompressed."""
        self.all = tuple(routes)
        self.default = self.all[-1]
        self._max_body_bytes = max_body_bytes

    async def of(self, wire: Wire, headers: Headers, body: bytes, model: str = "") -> Route:
        """The route of a request; `model`: used if the body names none."""
        if len(self.all) == 1:
            return self.default
        name = await in_thread(self._model_of, wire, headers, body) or model
        return next((route for route in self.all if route.upstream.settings.takes(wire.path, name)), self.default)

    def for_path(self, path: str) -> Route:
        """The route of a request that is passed through: the first for that wire alone (`/messages/count_tokens`)."""
        return next((route for route in self.all if route.upstream.settings.is_only_for(path)), self.default)

    def beside(self, wire: Wire) -> Route | None:
        """The first route whose upstream has this wire as its own API; None if none does."""
        return next((route for route in self.all if route.is_of(wire)), None)

    def of_key(self, headers: Headers) -> Route:
        """The route whose upstream a client's key is for, if no model says so."""
        found = whose_key(headers)
        if found is None:
            return self.default
        wire, model = found
        return next((route for route in self.all if route.upstream.settings.takes(wire.path, model)), self.default)

    def _model_of(self, wire: Wire, headers: Headers, body: bytes) -> str:
        """The model's name; empty if the body cannot be read: serving the request then reports what is wrong."""
        try:
            body = plain_body(body, headers, self._max_body_bytes)
        except (MalformedRequest, BodyTooLarge):
            return ""
        return wire.model_in(body)


PATH: Final = "/v1/models"
ANSWER_SECONDS: Final = 10.0
"""Longest wait for one upstream's list."""

_NO_SECRETS: Final = frozenset((b"accept", b"anthropic-version", b"user-agent"))
"""The only headers of a client that are sent to other upstreams."""


def asks_for_models(scope: Scope) -> bool:
    """Whether a request asks for the list."""
    return bool(scope["method"] == "GET" and scope["path"].rstrip("/") == PATH)


async def models_of(routes: Routes, headers: Headers) -> bytes:
    """The lists of all upstreams together. Raises UpstreamUnreachable if none has one."""
    headers = [pair for pair in headers if pair[0] != b"accept-encoding"]
    without_key, meant = [pair for pair in headers if pair[0] in _NO_SECRETS], routes.of_key(headers)
    lists = await asyncio.gather(
        *(
            _listed(route, headers if route is meant or route.upstream.settings.list_with_client_key else without_key)
            for route in routes.all
        )
    )
    entries: dict[str, Raw] = {}
    for listed in lists:
        for raw in listed or ():
            entries.setdefault(_name_of(raw), raw)
    if all(listed is None for listed in lists):
        raise UpstreamUnreachable("no upstream sent its list of models")
    return jsontext.join_object({"object": b'"list"', "data": jsontext.join_array(list(entries.values()))})


async def _listed(route: Route, headers: Headers) -> Sequence[Raw] | None:
    """The entries of one upstream's list; None if it cannot be had."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await route.relay.pass_through("GET", b"/models", headers, None)
            async with contextlib.aclosing(answer):
                return jsontext.items(jsontext.members(await body_of(answer))["data"])
    except (ProxyError, NoAnswer, TimeoutError, jsontext.NotJson, KeyError):
        return None


def _name_of(raw: Raw) -> str:
    """An entry without a name is identified by itself."""
    found = jsontext.opened(raw)
    name = found.get("id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else bytes(raw).decode("utf-8", "replace")
