"""Long reasoning of finished turns is left out.

Rule: a relief. Inside the running turn reasoning stays: DeepSeek and Kimi refuse tool turns without it.
https://api-docs.deepseek.com/guides/thinking_mode
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core import jsontext
from proxy.core.edits import Artifact, Edit, Path, Reason
from proxy.core.kept import Kept
from proxy.core.units import Change

_PATH: Final[Path] = ("reasoning_content",)


@dataclass(frozen=True, slots=True)
class DropOldReasoning:
    """Goes through the turns before the last user message, the oldest first."""

    keep_chars: int = 2_000
    """Shorter reasoning stays: the saving is not worth a changed prefix."""

    def __call__(self, kept: Kept) -> Iterator[Change]:
        """One change for each message."""
        for entry in kept.before(kept.last_user()):
            if entry.message.reasoning_bytes <= self.keep_chars:
                continue  # JSON is never shorter than its text
            raw = entry.original.members()["reasoning_content"]
            text = jsontext.value(raw)
            length = len(text) if isinstance(text, str) else entry.message.reasoning_bytes
            if length > self.keep_chars:
                kept_whole = Artifact(bytes(raw), "reasoning", "json")
                edit = Edit(entry.index, _PATH, None, Reason.OLD_REASONING, kept_whole, before_chars=length)
                yield Change((edit,))
