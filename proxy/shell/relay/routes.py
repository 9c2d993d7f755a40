"""Several upstreams behind one address: which of them serves a request.

Rule: the first route whose wire and model match; the last one serves everything else. With only one upstream, nothing
is read to choose it. What is learned about models is kept separately for each upstream.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from proxy.config.upstreams import UpstreamSettings
from proxy.errors import BodyTooLarge, MalformedRequest
from proxy.shell.http.bodies import can_unpack, unpack
from proxy.shell.planning.planner import Planner
from proxy.shell.planning.wanted import in_thread
from proxy.shell.relay.relay import Relay
from proxy.shell.upstream.client import Headers
from proxy.wire.protocol import Wire
from proxy.wire.registry import whose_key


class Route(Struct, frozen=True):
    """One upstream, and what serves its requests."""

    relay: Relay
    planner: Planner
    base_path: bytes
    """Of the upstream's base URL."""
    upstream: UpstreamSettings
    """Says which requests it takes."""
    name: str = ""
    """Its place in the settings: `upstream`, `upstreams[0]`; empty if it is the only one."""

    def is_of(self, wire: Wire) -> bool:
        """Whether its upstream is a server whose own API this wire is, by the settings or by its own words."""
        return self.upstream.is_only_for(wire.path) or self.relay.own_wire == wire.name


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
        return next((route for route in self.all if route.upstream.takes(wire.path, name)), self.default)

    def for_path(self, path: str) -> Route:
        """The route of a request that is passed through: the first for that wire alone (`/messages/count_tokens`)."""
        return next((route for route in self.all if route.upstream.is_only_for(path)), self.default)

    def beside(self, wire: Wire) -> Route | None:
        """The first route whose upstream has this wire as its own API; None if none does."""
        return next((route for route in self.all if route.is_of(wire)), None)

    def of_key(self, headers: Headers) -> Route:
        """The route whose upstream a client's key is for, if no model says so."""
        found = whose_key(headers)
        if found is None:
            return self.default
        wire, model = found
        return next((route for route in self.all if route.upstream.takes(wire.path, model)), self.default)

    def _model_of(self, wire: Wire, headers: Headers, body: bytes) -> str:
        """The model's name; empty if the body cannot be read: serving the request then reports what is wrong."""
        encoding = b",".join(value.lower() for name, value in headers if name == b"content-encoding")
        try:
            if encoding and encoding != b"identity":
                body = unpack(body, encoding, self._max_body_bytes) if can_unpack(encoding) else b""
        except (MalformedRequest, BodyTooLarge):
            return ""
        return wire.model_in(body)
