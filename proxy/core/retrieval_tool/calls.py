"""A model's message with calls of the proxy's own tool, which the client never sees.

Rule: a call belongs to the proxy if it names the proxy's tool, which is offered only where no tool of the client has
that name; every call keeps its bytes, because they may carry what an upstream wants back (Gemini's thought signatures).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.text import Discreet

RETRIEVAL_TOOL: Final = "read_artifact"
"""The proxy's own tool."""


class OwnCall(Discreet, frozen=True):
    """A call of the proxy's own tool."""

    id: str
    arguments: str
    """The model's text: JSON, or an attempt at it."""


class AssistantMessage(Discreet, frozen=True):
    """A model's message in one round."""

    message: bytes
    """The message sent back upstream, with all calls."""
    own: tuple[OwnCall, ...]
    others: tuple[bytes, ...]
    """The client's calls, in order."""
    texts: Mapping[str, str]
    """The parts that a person may read, by the wire's name for each: text and reasoning."""

    @property
    def is_mixed(self) -> bool:
        """Whether the client also has calls to answer."""
        return bool(self.own and self.others)
