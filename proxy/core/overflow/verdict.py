"""What an upstream answer means, as a value.

Rule: a verdict holds numbers, names and the upstream's own words; what to do about it is for the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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
    POLICY = "policy"
    AUTH = "auth"
    MEDIA = "media"
    TRANSIENT = "transient"
    EMPTY = "empty"
    """A success that holds no answer."""
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """What a limit bounds: the whole window (prompt and reply), or the input alone."""

    WINDOW = "window"
    INPUT = "input"
    UNKNOWN = "unknown"


class Exactness(StrEnum):
    """How a printed number is to be taken."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    ABOUT = "about"


class Unit(StrEnum):
    """What a printed limit counts."""

    TOKENS = "tokens"
    CHARS = "chars"


_OVERFLOWS: Final = frozenset({VerdictKind.PROMPT, VerdictKind.PROMPT_PLUS_REPLY})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The meaning of one upstream answer."""

    kind: VerdictKind
    limit: int | None = None
    """In `unit`; only of an overflow, of a rate that the request alone is over, or of the one refusal of `max_tokens`
    that names the window."""
    limit_scope: Scope = Scope.UNKNOWN
    limit_exactness: Exactness = Exactness.EXACT
    """`about` for a magnitude: 256K is 256 000 or 262 144."""
    requested: int | None = None
    """In `unit`: prompt and reply together, as the upstream counted them."""
    prompt: int | None = None
    """In `unit`."""
    reply: int | None = None
    """In `unit`: the room that the request asked for."""
    excess: int | None = None
    """In `unit`: by how much the request is over, where the upstream says only that."""
    unit: Unit | None = None
    """None when no number was read."""
    exactness: Exactness = Exactness.EXACT
    """Of `requested` and `prompt`: vLLM stops counting one token past its limit, OpenRouter estimates."""
    confidence: float = 0.0
    """0 to 1."""
    is_suspect: bool = False
    """Whether the answer says nothing at all, and the request is so long that its length may be why."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input, of a refusal of media that names them."""
    refuses_model: bool = False
    """Whether a refusal of media is about what the model reads, and not about this one content or its place."""
    refuses_in_results: bool = False
    """Whether it is about media in the results of tools."""
    may_be_echo: bool = False
    """Whether its numbers may be the client's own words, which the upstream repeats: they teach nothing."""
    evidence: str = ""
    """Path of the leaf that decided, as `error.metadata.raw>error.message`; never its content."""
    upstream_message: str = ""
    """What the upstream said to people, at most 2 KB; for the client, not for a log."""

    @property
    def is_overflow(self) -> bool:
        """Whether the answer says that the request is too long."""
        return self.kind in _OVERFLOWS

    @property
    def is_over_rate(self) -> bool:
        """Whether the request alone is over what a rate allows: no waiting cures that."""
        return (
            self.kind is VerdictKind.RATE
            and self.limit is not None
            and self.requested is not None
            and self.requested > self.limit
        )

    @property
    def limit_is_learnable(self) -> bool:
        """Whether `limit` may be kept as what the model takes: exact and of a known scope; in characters only of the
        input, as no window is counted in them.

        A `reply_only` verdict carries a limit only where the refusal of `max_tokens` names the window itself.
        """
        if self.limit is None or self.may_be_echo or self.limit_exactness is not Exactness.EXACT:
            return False
        if self.unit is Unit.CHARS:
            return self.limit_scope is Scope.INPUT
        return self.unit is Unit.TOKENS and self.limit_scope is not Scope.UNKNOWN
