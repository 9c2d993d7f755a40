"""The upstreams, each with the requests that it serves.

Rule: a request goes to the first of `upstreams` that takes it, else to `upstream`, which takes every request.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import Field

from proxy.config.types import BaseUrl, KeyFile, Section, SentKey
from proxy.wire import WIRES, wire_beside

WIRE_PATHS: Final[Mapping[str, str]] = {wire.name: wire.path for wire in WIRES.values() if wire.name}
"""The wires by their names in settings."""
if TYPE_CHECKING:
    WireName: TypeAlias = str
else:
    WireName = Literal[tuple(WIRE_PATHS)]


class UpstreamSettings(Section):
    """Where requests go."""

    base_url: BaseUrl = "https://api.openai.com/v1"
    """The OpenAI-compatible API that requests are forwarded to; without a path, `/v1` is added."""
    api_key: SentKey | None = None
    """Sent as `Authorization: Bearer …` when a client sends no key of its own. Also `OPENAI_API_KEY`."""
    api_key_file: KeyFile | None = None
    """A file that holds this key and nothing else, such as a Kubernetes or Docker secret; `api_key` beats it. It is
    read at the start and at each reload."""
    list_with_client_key: bool = False
    """`true`: with several upstreams, `GET /v1/models` asks this one with the client's key, too, if it has none of its
    own. Otherwise that key goes only to the upstream that it is for: the one of `claude-*` for clients of Anthropic's
    API, `upstream` for all others."""
    connect_timeout_seconds: float = Field(default=10, gt=0)
    """Longest wait for a connection."""
    first_byte_timeout_seconds: float = Field(default=600, gt=0)
    """Longest wait for the head of a response; models that think first need minutes."""
    idle_timeout_seconds: float = Field(default=300, gt=0)
    """Longest silence within a response. The whole response may take any time."""

    @property
    def requests(self) -> str:
        """The requests that it serves, as shown to people."""
        return "All other requests"

    def takes(self, path: str, model: str) -> bool:  # noqa: ARG002 - for those that choose
        """Whether it serves requests of the wire at this path (`/messages`), for this model."""
        return True

    def is_only_for(self, path: str) -> bool:  # noqa: ARG002 - for those that choose
        """Whether it serves the wire of this path and no other wire."""
        return False


class RoutedUpstream(UpstreamSettings):
    """Another upstream, for the requests that match. If it has a key, that key replaces the client's, which belongs to
    another provider."""

    base_url: BaseUrl = Field(examples=["https://api.anthropic.com/v1"])
    """The API that these requests are forwarded to; without a path, `/v1` is added."""
    match: str = Field(default="*", min_length=1, examples=["claude-*"])
    """Glob over the model's name, ignoring case: `claude-*`."""
    wire: WireName | None = None
    """The API that it serves: `/v1/chat/completions`, `/v1/messages`, `/v1/responses`, or Ollama's own.
    Empty: any."""

    @property
    def requests(self) -> str:
        """The requests that it serves, as shown to people."""
        places = {wire.name: wire.path if wire.is_on_host else f"/v1{wire.path}" for wire in WIRES.values()}
        return f"Requests for {self.match}" + (f" at {places[self.wire]}" if self.wire is not None else "")

    def takes(self, path: str, model: str) -> bool:
        """Whether wire and model match.

        >>> claude = RoutedUpstream(base_url="http://a", match="claude-*", wire="messages")
        >>> claude.takes("/messages", "Claude-X"), claude.takes("/chat/completions", "claude-x")
        (True, False)
        """
        may = self.wire is None or self.is_only_for(path)
        return may and fnmatch.fnmatchcase(model.lower(), self.match.lower())

    def is_only_for(self, path: str) -> bool:
        """Whether the settings narrow it to this path's wire: `/messages/count_tokens` belongs to `messages`, and
        `/api/tags` to `ollama`."""
        if self.wire is None:
            return False
        beside = wire_beside(path.encode())
        return path.startswith(WIRE_PATHS[self.wire]) if beside is None else beside.name == self.wire
