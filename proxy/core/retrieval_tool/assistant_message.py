"""What a model said in one round of an answer: its message, with the calls of the proxy's own tool told from the
client's.

Rule: a call belongs to the proxy when it names the proxy's tool, which is offered only where no tool of the client is
called so; every call keeps its bytes, as they may carry what an upstream wants back (Gemini's thought signatures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RETRIEVAL_TOOL: Final = "read_artifact"
"""The proxy's own tool."""


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of the proxy's own tool."""

    position: int
    """Among all calls of its message."""
    id: str
    arguments: str = field(repr=False)
    """As the model wrote them: JSON, or what it took for that."""
    raw: bytes = field(repr=False)
    """The whole call."""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model's message in one round."""

    message: bytes = field(repr=False)
    """As it goes back upstream, all calls included."""
    own: tuple[OwnCall, ...]
    others: tuple[bytes, ...] = field(repr=False)
    """The client's calls, in order."""
    others_meant: Any = field(repr=False)
    """The same, told by what they mean: ids, names, arguments."""
    texts: Mapping[str, str] = field(repr=False)
    """What a person may read of it, by the wire's name for each: words and reasoning."""

    @property
    def is_mixed(self) -> bool:
        """Whether the client, too, has something to answer."""
        return bool(self.own and self.others)
