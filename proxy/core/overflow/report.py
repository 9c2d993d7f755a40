"""What a response says about itself, as a value: texts, codes, sizes and finish reasons, with their paths.

Rule: every upstream's response, in whatever wrapper, is reduced to this; how it was encoded is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.overflow.verdict import Scope


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One text for people."""

    path: str = ""
    """Its path, such as `error.metadata.raw>error.message`; `>` comes before a path inside a text. Names only, never
    content."""
    text: str = ""


class Place(StrEnum):
    """A part of the request, as far as its length is concerned."""

    TEXT = "text"
    """The text of a message."""
    ELSEWHERE = "elsewhere"
    """A part that is never too long: a role, a tool, the model."""
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One word for programs."""

    path: str
    text: str
    place: Place | None = None
    """For a word that names the refused member, the part of the request; None for a word that names the cause."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Sizes in tokens that a response states separately from its texts."""

    limit: int | None = None
    scope: Scope = Scope.UNKNOWN
    """Of the limit."""
    limit_path: str = ""
    prompt: int | None = None
    requested: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Everything that a response says about itself; of a success only errors, finish reasons and counts, never the
    model's words."""

    status: int
    """The HTTP status."""
    asks_to_wait: bool = False
    texts: tuple[ErrorText, ...] = ()
    codes: tuple[ErrorCode, ...] = ()
    stated: Stated = Stated()
    endings: tuple[ErrorCode, ...] = ()
    """Why the model stopped."""
    counted_prompt: int | None = None
    counted_reply: int | None = None
    """The upstream's count for a success, in tokens."""
    body_bytes: int = 0
    is_bare_text: bool = False
    """Whether it is a success in plain text."""
    is_silent: bool = False
    """Whether it is a success without a reply: nothing, comments, objects without a choice."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def has_error(self) -> bool:
        return bool(self.texts or self.codes)

    @property
    def is_wordless(self) -> bool:
        """Whether it says nothing but numbers."""
        return not self.texts and all(code.text.isdecimal() for code in self.codes)
