"""Several upstreams behind one address: which of them serves a request.

Rule: the first route whose wire and model match; the last one serves everything else. With only one upstream, nothing
is read to choose it. What is learned about models is kept separately for each upstream.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.core.text import jsontext
from proxy.errors import BodyTooLarge, MalformedRequest
from proxy.shell.http.unpacking import can_unpack, unpack
from proxy.shell.planning.planner import Planner
from proxy.shell.planning.wanted import in_thread
from proxy.shell.relay.relay import Relay
from proxy.shell.upstream.client import Headers
from proxy.wire.protocol import Wire

WIRE_PATHS: Final[Mapping[str, str]] = {
    "chat_completions": "/chat/completions",
    "messages": "/messages",
    "responses": "/responses",
}
"""The wires by their names in settings."""


@dataclass(frozen=True, slots=True)
class Route:
    """One upstream, and what serves its requests."""

    relay: Relay
    planner: Planner
    base_path: bytes
    """Of the upstream's base URL."""
    models: str = "*"
    """Glob over the model's name, ignoring case."""
    wire: str | None = None
    """One of WIRE_PATHS; None: any."""

    def takes(self, wire: Wire, model: str) -> bool:
        """Whether it serves requests of this wire and model."""
        return self.takes_path(wire.path) and fnmatch.fnmatchcase(model.lower(), self.models.lower())

    def takes_path(self, path: str) -> bool:
        """Whether it serves the wire of this path, whatever the model."""
        return self.wire is None or path.startswith(WIRE_PATHS[self.wire])


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
        name = await in_thread(self._model_in, headers, body) or model
        return next((route for route in self.all if route.takes(wire, name)), self.default)

    def for_path(self, path: str) -> Route:
        """The route of a request that is passed through: the first for that wire alone (`/messages/count_tokens`)."""
        return next((route for route in self.all if route.wire and route.takes_path(path)), self.default)

    def _model_in(self, headers: Headers, body: bytes) -> str:
        """The model's name; empty if the body cannot be read: serving the request then reports what is wrong."""
        encoding = b",".join(value.lower() for name, value in headers if name == b"content-encoding")
        try:
            if encoding and encoding != b"identity":
                body = unpack(body, encoding, self._max_body_bytes) if can_unpack(encoding) else b""
            found = jsontext.opened(jsontext.members(body).get("model"))
        except (jsontext.NotJson, MalformedRequest, BodyTooLarge):
            return ""
        return found if isinstance(found, str) else ""
