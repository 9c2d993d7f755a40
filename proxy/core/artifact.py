"""Content taken out of a request, named by its bytes.

Rule: a name is one safe path segment, whatever the tool's name, and the same for the same content.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

DIGEST_CHARACTERS: Final = 16
"""Digits of a sha256 in hex: 64 bits, enough to distinguish everything that one store ever holds."""
HASH_CHARACTERS: Final = 24
"""Callers fetch by hash: early guardrails of LiteLLM accept no other length."""
MAX_TOOL_NAME_CHARACTERS: Final = 48
"""Limit of a tool's name in an artifact's name; file systems allow 255 bytes in total."""
ARTIFACT_NAME: Final = r"tool_[A-Za-z0-9_-]{1,48}_[0-9a-f]{16}\.[A-Za-z0-9]{1,16}"
"""Matches the name of an artifact and nothing else: no path separator, no consecutive dots."""
FETCHED: Final = "fetched"
"""Stands for a tool in the names of images that the proxy downloads."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Content taken out of a request. Its name follows from its bytes, so the same content always has the same name."""

    content: bytes = field(repr=False)
    tool: str = ""
    """The tool that made it; empty for messages."""
    suffix: str = "txt"
    """File name extension."""
    named_by: str = ""
    """Source of the name instead of the bytes, for an artifact that is looked up by something else."""

    id: str = field(init=False)
    """Its name: `tool_<tool>_<digest>.<suffix>`, one safe path segment whatever the tool's name."""
    hash: str = field(init=False)
    """Hash of its name and bytes together, for callers that know no names: one hash never belongs to two names."""

    def __post_init__(self) -> None:
        """Compute the name once: the content may be megabytes, and every turn asks for the name."""
        digest = hashlib.sha256(self.named_by.encode() or self.content).hexdigest()
        object.__setattr__(self, "id", f"{beginning_of(self.tool)}{digest[:DIGEST_CHARACTERS]}.{self.suffix}")
        named = hashlib.sha256(f"{self.id} {digest}".encode()).hexdigest()
        object.__setattr__(self, "hash", named[:HASH_CHARACTERS])


def digest_of(content: bytes) -> str:
    """The digest in the name of an artifact with this content."""
    return hashlib.sha256(content).hexdigest()[:DIGEST_CHARACTERS]


def beginning_of(tool: str) -> str:
    """Prefix of the names of a tool's artifacts; of no tool: those of messages.

    >>> beginning_of("Bash"), beginning_of("a/b"), beginning_of("")
    ('tool_Bash_', 'tool_a-b_', 'tool_messages_')
    """
    return f"tool_{_UNSAFE.sub('-', tool)[:MAX_TOOL_NAME_CHARACTERS].strip('-') or 'messages'}_"
