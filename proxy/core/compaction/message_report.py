"""What became of each message, for people who ask why: sizes, reasons and names, never content.

Rule: a report is made when its message is read or changed, and is the same object in all later turns, so that the
record of a long conversation costs the next request nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.core.artifact import Artifact
from proxy.core.compaction.budget import Budget
from proxy.core.conversation.edit import Reason
from proxy.core.conversation.tracked_message import TrackedMessage

MAX_ROLE_CHARACTERS: Final = 32
MAX_TOOL_CHARACTERS: Final = 128
"""Limits for names in a record: both are foreign input. APIs allow tool names of 64 characters."""


class MessageReport(NamedTuple):
    """One message of a request: as it came, and as it is sent."""

    role: str
    tool: str
    """The tool whose result it is."""
    tokens_before: int
    tokens_after: int
    """0: it is left out."""
    reasons: tuple[str, ...] = ()
    """Why it was changed; empty: it is sent as it came."""
    artifacts: tuple[str, ...] = ()
    """The artifacts that keep what was taken out."""

    @classmethod
    def of(cls, entry: TrackedMessage) -> MessageReport:
        """The report of a message that is sent."""
        reasons: tuple[str, ...] = ()
        artifacts: tuple[str, ...] = ()
        if entry.edits:
            reasons = tuple(dict.fromkeys(edit.reason.value for edit in entry.edits))
            artifacts = tuple(dict.fromkeys(edit.artifact.id for edit in entry.edits if edit.artifact is not None))
        role, tool = entry.original.role[:MAX_ROLE_CHARACTERS], entry.tool[:MAX_TOOL_CHARACTERS]
        return cls(role, tool, entry.original_size.tokens, entry.sent_size.tokens, reasons, artifacts)

    def left_out(self) -> MessageReport:
        """The report after the whole message is left out: earlier cuts of it no longer matter."""
        return self._replace(tokens_after=0, reasons=(Reason.OLD_EXCHANGE.value,), artifacts=())

    def kept_in(self, artifact: Artifact) -> MessageReport:
        """The report after it is known which artifact keeps its message."""
        return self._replace(artifacts=(*self.artifacts, artifact.id))

    def with_note(self, tokens: int, artifact: Artifact | None) -> MessageReport:
        """The report of the message that carries the omission note, which adds `tokens`."""
        noted = self if artifact is None or artifact.id in self.artifacts else self.kept_in(artifact)
        reasons = (*self.reasons, Reason.OMISSION_NOTE.value)
        return noted._replace(tokens_after=self.tokens_after + tokens, reasons=reasons)


def in_model_tokens(blocks: Iterable[MessageReport], budget: Budget) -> tuple[MessageReport, ...]:
    """The reports with sizes in the model's tokens, in which people are told them."""
    told = budget.model_tokens
    return tuple(
        block._replace(tokens_before=told(block.tokens_before), tokens_after=told(block.tokens_after))
        for block in blocks
    )
