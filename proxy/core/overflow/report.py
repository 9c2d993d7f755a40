"""What an answer says about itself, as a value: texts, codes, sizes and endings, with the places they stood in.

Rule: whoever answered, and whatever the answer was wrapped in, it comes to this; how it was written is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.overflow.verdict import Scope


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One text to people."""

    path: str = ""
    """Where it stood, as `error.metadata.raw>error.message`; `>` stands before what was inside a text. Names only,
    never content."""
    text: str = ""


class Place(StrEnum):
    """A part of the request, as far as its length is concerned."""

    TEXT = "text"
    """What a message says."""
    ELSEWHERE = "elsewhere"
    """What is never too long: a role, a tool, the model."""
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One word to programs."""

    path: str
    text: str
    place: Place | None = None
    """Of a word that names what was refused, the part of the request; None of one that says why."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Sizes in tokens that an answer states by themselves, outside of its texts."""

    limit: int | None = None
    scope: Scope = Scope.UNKNOWN
    """Of the limit."""
    limit_path: str = ""
    prompt: int | None = None
    requested: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """All that an answer says about itself; of a success only errors, endings and counts, never what the model said."""

    status: int
    """Of HTTP."""
    asks_to_wait: bool = False
    texts: tuple[ErrorText, ...] = ()
    codes: tuple[ErrorCode, ...] = ()
    stated: Stated = Stated()
    endings: tuple[ErrorCode, ...] = ()
    """Why the model stopped."""
    counted_prompt: int | None = None
    counted_reply: int | None = None
    """What the upstream counted of a success, in tokens."""
    body_bytes: int = 0
    is_bare_text: bool = False
    """Whether it is a success in plain text."""
    is_silent: bool = False
    """Whether it is a success that holds no answer: nothing, comments, objects without a choice."""

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
