"""One send of a request with what came of it.

Rule: these are facts about one request. What they mean for the next send stands in `cures.py`, and what they mean for
later requests in `lessons.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from proxy.core.models import LimitName, Modality, Search
from proxy.core.notices import UNNAMED, ArtifactAccess
from proxy.core.overflow.report import FAULTS, TOO_LARGE, Verdict, VerdictKind

REFUSING_STATUSES: Final = frozenset({400, 422})
"""The request was examined and rejected; after any other response it may have been accepted."""
ABOUT_A_TOOL: Final = frozenset({VerdictKind.FIELD, VerdictKind.COUNT, VerdictKind.POLICY, VerdictKind.UNKNOWN})
"""Refusals that the proxy's own tool may have caused. COUNT: it may make a list one too long; OpenAI accepts 128."""


class AttemptKind(StrEnum):
    """The kind of a send."""

    FIRST = "first"
    REPEATED = "repeated"
    SHORTER_REPLY = "shorter_reply"
    EMERGENCY = "emergency"
    WITHOUT_MEDIA = "without_media"
    FITTED = "fitted"
    FEWER_BYTES = "fewer_bytes"
    ORIGINAL = "original"
    WITHOUT_TOOL = "without_tool"
    REPAIRED = "repaired"
    LIMITED = "limited"


class Terms(NamedTuple):
    """Inputs of a plan besides the request and the knowledge about its model."""

    access: ArtifactAccess = UNNAMED
    """How the client gets at artifacts."""
    tools: bytes | None = None
    """The tool list including the proxy's own tool; None if the agent is not offered it."""
    goal_tokens: int | None = None
    """Goal for the prompt after a refusal, by our estimate."""
    most_tokens: int | None = None
    """Limit for the prompt, if what must stay exceeds the goal: as far below the true limit as the margin requires."""
    goal_bytes: int | None = None
    """Goal for the prompt after a refusal for its bytes."""
    keeping: bool = True
    """Whether artifacts can be kept."""
    supposed: Search | None = None
    """Taken for what the latest refusal has taught."""
    window_tokens: int | None = None
    """A window that the client states; a smaller one of the model counts."""
    exactly: bool = False
    """Whether the model's own counter counts, however small the request."""
    without: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text, after a refusal."""
    repairs: Verdict | None = None
    """The refusal whose cause is taken out of the history."""
    at_most: tuple[tuple[LimitName, int], ...] = ()
    """Limits that refusals of this request have named."""

    @property
    def is_for_one_send(self) -> bool:
        """Whether no later plan continues from one on these terms."""
        return self.goal_tokens is not None or self.goal_bytes is not None


class Cure(Struct, frozen=True):
    """How one send differs from the one that was refused."""

    kind: AttemptKind
    terms: Terms | None = None
    """The terms of its plan; None keeps the plan."""
    reply_tokens: int | None = None
    """The maximum reply limit, instead of the request's own."""
    goal_tokens: int | None = None
    """The maximum size of the prompt, by our estimate: a larger one gives way to the next cure, if there is one."""
    is_sure: bool = False
    """Whether a prompt of that size surely fits, by the upstream's count of the one before: then the room that the plan
    leaves for the reply is better than `reply_tokens`."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input that are sent as text."""
    reason: VerdictKind = VerdictKind.PROMPT
    """The reason that it answers; PROMPT for any length in tokens but that of the reply alone, UNKNOWN for what an edit
    of ours may have caused."""
    cause: str = ""
    """The row of the table of cures."""
    keeps_to: LimitName | None = None
    """The named limit that it answers."""

    @property
    def keeps_prompt(self) -> bool:
        """Whether the prompt is the one that was planned first: what the upstream counts of it says how it counts."""
        return self.terms is None and self.kind is not AttemptKind.ORIGINAL

    def is_about(self, verdict: Verdict) -> bool:
        """Whether a refusal for the same reason is about what this has cured: each kind of media, each named limit and
        each member is a reason of its own."""
        is_other_media = self.refused and verdict.refused and not self.refused & verdict.refused
        is_other_member = verdict.kind is VerdictKind.OTHER_MEMBERS  # the one that was named before is gone
        return not (is_other_media or is_other_member) and self.keeps_to in (None, verdict.named)


FIRST: Final = Cure(AttemptKind.FIRST, reason=VerdictKind.ACCEPTED)


class Situation(Struct, frozen=True):
    """Facts about a send that decide the next one."""

    estimate_tokens: int
    """Estimated size of the prompt."""
    chars: int
    """Characters of its text."""
    bytes: int
    """Size of the whole body."""
    reply_tokens: int | None
    """The reply limit; None if it has none."""
    edited: bool
    """Whether it differs from the original request."""
    original_could_fit: bool
    """Whether the original request fits the window by our estimate."""
    terms: Terms = Terms()
    """Terms of its plan."""
    search: Search | None = None
    """The search for the limit if this is refused without a number; None: its size is unknown."""
    guess_tokens: int | None = None
    """The size of a prompt, by our estimate, that is sent next in that case; None: nothing is known to fit."""
    has_our_tool: bool = False
    """Whether the proxy's own tool is in its list."""
    fixed_tokens: int = 0
    """Tokens that have to stay: system text, tools, the task, the last user message."""
    holds_a_page: bool = False
    """Whether it holds a page that was read for the model, which gets smaller for a goal alone."""
    count_may_be_wrong: bool = False
    """Whether its size is an estimate that nothing had confirmed."""


class Outcome(Struct, frozen=True):
    """The outcome of a send."""

    status: int
    verdict: Verdict
    media: frozenset[Modality] = frozenset()
    """Kinds of input in what was sent; stated only if media were refused."""
    is_repairable: bool = False
    """Whether the client's history holds what was refused: calls and results that do not pair up, or encrypted or
    signed reasoning."""
    fitting_tokens: int | None = None
    """The size of a prompt, by our estimate, that the upstream reads whole; stated only if the response's usage proves
    that this one was cut."""
    names_our_tool: bool = False
    """Whether a refusal names the proxy's own tool, which was in the list that was sent."""

    @property
    def is_over_bytes(self) -> bool:
        """Whether the body was too large, in whatever words. A 413 without any, for a request that is not long for its
        window, means bytes, too; any other status only if its words say so of the body."""
        kinds = (VerdictKind.BYTES, VerdictKind.UNKNOWN)
        is_of_bytes = self.status == TOO_LARGE or self.verdict.named is LimitName.BODY
        return is_of_bytes and self.verdict.kind in kinds and not self.verdict.is_suspect

    @property
    def is_too_long(self) -> bool:
        """Whether the request is too long, for a window or alone for a rate."""
        return self.verdict.is_overflow or self.verdict.is_over_rate

    @property
    def reason(self) -> VerdictKind | None:
        """The reason that a refusal names, if there is a cure for it; UNKNOWN for the proxy's own tool."""
        verdict, has_refused = self.verdict, self.status in REFUSING_STATUSES
        is_read = has_refused or verdict.kind in FAULTS  # servers that fail to parse say 500
        reasons = (
            (VerdictKind.PROMPT, self.is_too_long),
            (VerdictKind.REPLY_ONLY, verdict.kind is VerdictKind.REPLY_ONLY and (verdict.named or verdict.limit)),
            (VerdictKind.COUNT, verdict.named not in (None, LimitName.TOOLS, LimitName.BODY)),
            (VerdictKind.BYTES, verdict.kind is VerdictKind.BYTES and self.is_over_bytes),
            (VerdictKind.MEDIA, verdict.kind is VerdictKind.MEDIA and self.media),
            (VerdictKind.UNKNOWN, is_read and self.names_our_tool and verdict.kind in ABOUT_A_TOOL),
            (verdict.kind, is_read and self.is_repairable),
        )
        return next((reason for reason, holds in reasons if holds), None)

    def proves(self, cures: Sequence[Cure]) -> bool:
        """Whether the upstream, after these cures, names another reason: then it has none left of theirs."""
        return self.reason is not None and not any(
            self.reason is cure.reason and cure.is_about(self.verdict) for cure in cures
        )

    @property
    def is_final(self) -> bool:
        """Whether nothing follows it in any situation: the upstream has accepted the prompt, and cut nothing that we
        know of."""
        return self.is_accepted and self.fitting_tokens is None and not self.verdict.is_suspect

    @property
    def is_accepted(self) -> bool:
        """Whether the response is a reply of the model."""
        return self.status < 400 and self.verdict.kind is VerdictKind.ACCEPTED


class Attempt(Struct, frozen=True):
    """One send and what came of it; a request is the list of its attempts."""

    cure: Cure
    outcome: Outcome
    is_whole: bool = False
    """Whether all of the response was read, so that it can still be passed on after another send."""


AnyAttempt = TypeVar("AnyAttempt", bound=Attempt)
