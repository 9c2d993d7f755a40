"""The meaning of an upstream's response, as a value.

Rule: a verdict contains numbers, names and the upstream's own words; the caller decides what to do about it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.models.profile import Modality


class VerdictKind(StrEnum):
    """What was refused; only `prompt` and `prompt_plus_reply` say that the request is too long."""

    ACCEPTED = "accepted"
    PROMPT = "prompt"
    PROMPT_PLUS_REPLY = "prompt_plus_reply"
    REPLY_ONLY = "reply_only"
    BYTES = "bytes"
    COUNT = "count"
    FIELD = "field"
    RATE = "rate"
    QUOTA = "quota"
    PAIRING = "pairing"
    SEAL = "seal"
    """Of reasoning that is encrypted or signed."""
    POLICY = "policy"
    AUTH = "auth"
    MEDIA = "media"
    TRANSIENT = "transient"
    EMPTY = "empty"
    """A success without a reply."""
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """What a limit applies to: the whole window (prompt and reply), or the input alone."""

    WINDOW = "window"
    INPUT = "input"
    UNKNOWN = "unknown"


class Exactness(StrEnum):
    """How precise a printed number is."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    ABOUT = "about"


class Unit(StrEnum):
    """The unit of a printed limit."""

    TOKENS = "tokens"
    CHARS = "chars"


_OVERFLOWS: Final = frozenset({VerdictKind.PROMPT, VerdictKind.PROMPT_PLUS_REPLY})


class Verdict(Struct, frozen=True):
    """The meaning of one upstream response."""

    kind: VerdictKind
    limit: int | None = None
    """In `unit`; only for an overflow, for a rate that the request alone exceeds, or for the one refusal of
    `max_tokens` that names the window."""
    limit_scope: Scope = Scope.UNKNOWN
    limit_exactness: Exactness = Exactness.EXACT
    """`about` for a magnitude: 256K is 256 000 or 262 144."""
    requested: int | None = None
    """In `unit`: prompt and reply together, by the upstream's count."""
    prompt: int | None = None
    """In `unit`."""
    reply: int | None = None
    """In `unit`: the reply limit that the request asked for."""
    excess: int | None = None
    """In `unit`: by how much the request is over, if the upstream states only that."""
    unit: Unit | None = None
    """None if no number was read."""
    exactness: Exactness = Exactness.EXACT
    """Of `requested` and `prompt`: vLLM stops counting one token past its limit, OpenRouter estimates."""
    confidence: float = 0.0
    """0 to 1."""
    is_suspect: bool = False
    """Whether the response says nothing at all, and the request is long enough for that to be the reason."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input, for a refusal of media that names them."""
    refuses_model: bool = False
    """Whether a refusal of media is about the model, not about this one content or its place."""
    refuses_in_results: bool = False
    """Whether it is about media in tool results."""
    is_conditional: bool = False
    """Whether it refuses only under a condition, such as `n > 1`: then it says nothing about the model."""
    may_be_echo: bool = False
    """Whether its numbers may be the client's own words, repeated by the upstream: nothing is learned from them."""
    evidence: str = ""
    """Path of the leaf that decided, such as `error.metadata.raw>error.message`; never its content."""
    upstream_message: str = ""
    """The upstream's message for people, at most 2 KB; for the client, not for a log."""

    @property
    def is_overflow(self) -> bool:
        """Whether the response says that the request is too long."""
        return self.kind in _OVERFLOWS

    @property
    def names_no_limit(self) -> bool:
        """Whether the request is too long for a limit that is unknown, or known only about."""
        return self.is_overflow and (self.limit is None or self.limit_exactness is not Exactness.EXACT)

    @property
    def is_over_rate(self) -> bool:
        """Whether the request alone exceeds what a rate allows, so that waiting does not help."""
        return (
            self.kind is VerdictKind.RATE
            and self.limit is not None
            and self.requested is not None
            and self.requested > self.limit
        )

    @property
    def limit_is_learnable(self) -> bool:
        """Whether `limit` may be kept as the model's limit: exact and of a known scope; in characters only for the
        input, because no window is counted in them.

        A `reply_only` verdict has a limit only if the refusal of `max_tokens` names the window itself.
        """
        if self.limit is None or self.may_be_echo or self.limit_exactness is not Exactness.EXACT:
            return False
        if self.unit is Unit.CHARS:
            return self.limit_scope is Scope.INPUT
        return self.unit is Unit.TOKENS and self.limit_scope is not Scope.UNKNOWN
