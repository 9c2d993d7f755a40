"""What a response says about itself, as a value: texts, codes, sizes and finish reasons, with their paths.

Rule: every upstream's response, in whatever wrapper, is reduced to this; how it was encoded is not known here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.overflow.verdict import Scope

NEAR_FULL: Final = 0.9
"""Of the window: our estimate may be a tenth off."""
_FAR_UNDER: Final = 0.5
"""Of the size that a model surely accepts: a request below this is hardly too long."""
_SMALLEST_WINDOW_TOKENS: Final = 2_048
"""The size that a model with an unknown window surely accepts: the smallest default of a server in use, `n_ctx` of
llama-cpp-python (github.com/abetlen/llama-cpp-python, `llama_cpp/server/settings.py`)."""

_USEFUL_REPLY_TOKENS: Final = 256
"""A reply limit from here on is not used up by a reply without a token."""


class ErrorText(Struct, frozen=True):
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


class ErrorCode(Struct, frozen=True):
    """One word for programs."""

    path: str
    text: str
    place: Place | None = None
    """For a word that names the refused member, the part of the request; None for a word that names the cause."""


class Stated(Struct, frozen=True):
    """Sizes in tokens that a response states separately from its texts."""

    limit: int | None = None
    scope: Scope = Scope.UNKNOWN
    """Of the limit."""
    limit_path: str = ""
    prompt: int | None = None
    requested: int | None = None


class ErrorReport(Struct, frozen=True):
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
    has_output: bool = False
    """Whether a success holds anything that the model said."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def has_error(self) -> bool:
        return bool(self.texts or self.codes)


class Sent(Struct, frozen=True):
    """Our own knowledge of the request; None if unknown."""

    tokens: int | None = None
    """Of the prompt, by our own estimate."""
    chars: int | None = None
    """Of its text."""
    window_tokens: int | None = None
    """The size that the model is assumed to accept."""
    window_is_certain: bool = True
    """A window that is not certain is no evidence."""
    has_user_text: bool = False
    """Whether one of its messages is a user's."""
    reply_tokens: int | None = None
    """The reply limit that was asked for."""

    @property
    def asks_for_little(self) -> bool:
        """Whether its reply limit may be the reason for a reply that is cut at once."""
        return self.reply_tokens is not None and self.reply_tokens < _USEFUL_REPLY_TOKENS

    @property
    def share(self) -> float | None:
        """The share of the size that the model surely accepts; None if unknown."""
        surely_taken = self.window_tokens if self.window_is_certain else _SMALLEST_WINDOW_TOKENS
        return self.tokens / surely_taken if self.tokens and surely_taken else None

    @property
    def is_long(self) -> bool:
        """Whether its length may be the reason for a response that says nothing."""
        return self.share is not None and self.share >= NEAR_FULL

    @property
    def is_short(self) -> bool:
        """Whether vague words are hardly about its length."""
        return self.share is not None and self.share < _FAR_UNDER
