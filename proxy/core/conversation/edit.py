"""One change to a request, and what it takes out. Requests change only by edits.

Rule: whatever no edit names keeps its bytes; an artifact carries what an edit takes out, so that it can be kept before
anything is sent.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from proxy.core.artifact import Artifact
from proxy.core.conversation.message import Address, Content, Item
from proxy.core.text.discreet import Discreet


class Reason(StrEnum):
    """Why something was changed. The names appear in logs, headers and metrics."""

    ROUTE_MEDIA = "route_media"
    """Media were moved to where the model can read them, or replaced by a description."""
    TRUNCATE_TOOL_OUTPUT = "truncate_tool_output"
    """A tool result exceeded its limit and was replaced by an excerpt."""
    QUOTED_NOTICE = "quoted_notice"
    """Tool output that looked like a notice of the proxy was marked as quoted."""
    SANITISE = "sanitise"
    """Characters that this model's upstream cannot handle were replaced."""
    OLD_REASONING = "old_reasoning"
    """Long reasoning of finished turns was left out."""
    LONG_OLD_TEXT = "long_old_text"
    """A very long user or assistant text of a finished turn was cut in the middle."""
    OLD_RESULT = "old_result"
    """An old tool result was cut down to the rest of the room."""
    OLD_EXCHANGE = "old_exchange"
    """Old messages were left out, calls and results together."""
    OMISSION_NOTE = "omission_note"
    """A message carries the note about what was left out before it."""
    NEWEST_RESULT = "newest_result"
    """The newest tool results did not fit and were replaced by excerpts."""
    NEWEST_TEXT = "newest_text"
    """The newest assistant text or call arguments, or the user's request, did not fit and were cut in the middle."""
    CLAMP_REPLY = "clamp_reply"
    """The reply limit was lowered so that the prompt fits."""
    UPSTREAM_TRUNCATION = "upstream_truncation"
    """The upstream had refused the conversation that it stores, and was asked to drop old messages of it."""
    HISTORY_HEALED = "history_healed"
    """An upstream had refused the history: a result without a call was left out, a missing result was added, or
    reasoning that it could not verify was left out."""
    RETRIEVAL_TOOL = "retrieval_tool"
    """The proxy's own tool was added to the tool list."""


class Moved(Discreet, frozen=True):
    """Parts that a tool result cannot hold: they go into a user message after the whole batch of results."""

    parts: tuple[Item, ...]
    spoken: str | None = None
    """Text of an assistant message that goes before, for upstreams that accept no user message right after a result."""


class RoutedMedia(Struct, frozen=True):
    """Where one content went; for the log, so it has neither content nor name."""

    kind: str
    mime: str
    route: str
    """The type of the part that holds it now, `text`, or `description`."""
    byte_count: int | None = None
    """None: its content was not in the request and was not fetched."""
    reason: str = ""
    """Why it was replaced by a description."""


class Edit(Discreet, frozen=True):
    """Replaces the content at an address in a message by `becomes`, or takes it out."""

    message: int | None
    """Index in the request as received; None for a member of the request itself."""
    at: Address
    becomes: Content
    """None takes it out."""
    reason: Reason
    artifact: Artifact | None = None
    """What must be kept before this is sent."""
    tool: str = ""
    before_chars: int = 0
    """Length of the text that is changed."""
    after_chars: int = 0
    moved: Moved | None = None
    """Parts that it takes out but that are still sent, after the batch."""
    media: RoutedMedia | None = None
    """The content for which it was made."""
