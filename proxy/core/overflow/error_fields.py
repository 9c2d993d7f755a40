"""What an answer says about itself, out of whatever it was wrapped in: texts, codes and numbers with their paths.

Rule: a leaf knows where it stood; a path is made of names that look like names, never of content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_LEAVES: Final = 128
"""The richest error seen has fourteen."""
MAX_TEXT_CHARS: Final = 4_096
"""An explanation is shorter; what is longer echoes the request."""

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,40}")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ErrorField:
    """One text or code."""

    path: str
    """As `error.metadata.raw>error.message`; `>` stands before what was inside a text."""
    name: str
    """The member it stood in, in snake case."""
    text: str


@dataclass(slots=True)
class ErrorFields:
    """All that an answer says about itself."""

    texts: list[ErrorField] = field(default_factory=list)
    codes: list[ErrorField] = field(default_factory=list)
    numbers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Structured numbers by member, each with its path; the first of a name."""
    finish_reasons: list[ErrorField] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    is_bare_text: bool = False
    """A success that is neither JSON nor server-sent events."""
    is_silent: bool = False
    """A success that holds no answer: nothing, comments, `[DONE]`, objects without a choice."""

    @property
    def is_full(self) -> bool:
        return len(self.texts) + len(self.codes) + len(self.numbers) >= MAX_LEAVES

    @property
    def has_error(self) -> bool:
        return bool(self.texts or self.codes)

    @property
    def is_wordless(self) -> bool:
        """Whether it says nothing but numbers: `{"error": {"code": 400, "message": ""}}`."""
        return not self.texts and all(leaf.text.isdecimal() for leaf in self.codes)


def joined(path: str, key: object) -> str:
    """The path of a member; a key that does not look like a name could be content and becomes `*`."""
    name = key if isinstance(key, str) and _SAFE_NAME.fullmatch(key) else "*"
    return f"{path}.{name}" if path and not path.endswith(">") else f"{path}{name}"


def inside(path: str) -> str:
    """The path of what a text wraps; the body itself is no place worth naming."""
    return f"{path}>" if path else ""


def snake(name: str) -> str:
    """A member's name in snake case.

    >>> snake("errorCode"), snake("error-msg")
    ('error_code', 'error_msg')
    """
    return _CAMEL.sub("_", name[:60]).replace("-", "_").lower()
