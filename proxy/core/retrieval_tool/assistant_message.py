"""A model's message in one round of a response: the calls of the proxy's own tool are separate from the client's.

Rule: a call belongs to the proxy if it names the proxy's tool, which is offered only where no tool of the client has
that name; every call keeps its bytes, because they may carry what an upstream wants back (Gemini's thought signatures).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.text.discreet import Discreet

RETRIEVAL_TOOL: Final = "read_artifact"
"""The proxy's own tool."""


class OwnCall(Discreet, frozen=True):
    """A call of the proxy's own tool."""

    position: int
    """Its index among all calls of its message."""
    id: str
    arguments: str
    """As the model wrote them: JSON, or an attempt at it."""
    raw: bytes
    """The whole call."""


class AssistantMessage(Discreet, frozen=True):
    """A model's message in one round."""

    message: bytes
    """As it is sent back upstream, with all calls."""
    own: tuple[OwnCall, ...]
    others: tuple[bytes, ...]
    """The client's calls, in order."""
    others_meant: Any
    """The same calls by their meaning: ids, names, arguments."""
    texts: Mapping[str, str]
    """The parts that a person may read, by the wire's name for each: text and reasoning."""

    before: tuple[bytes, ...] = ()
    """What the client has of the same response and sends back as messages before this one."""

    @property
    def is_mixed(self) -> bool:
        """Whether the client also has calls to answer."""
        return bool(self.own and self.others)
