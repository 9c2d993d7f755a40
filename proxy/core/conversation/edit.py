"""One change to a request, and what it takes out. The only way a request changes.

Rule: what is not named by an edit keeps its bytes; what an edit takes out is carried by an artifact, so that it can be
kept before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.artifact import Artifact
from proxy.core.conversation.message import Address, Content, Item


class Reason(StrEnum):
    """Why something was changed. The names stand in logs, headers and metrics."""

    ROUTE_MEDIA = "route_media"
    """Media went where the model can read them, or a description stands in their place."""
    TRUNCATE_TOOL_OUTPUT = "truncate_tool_output"
    """A tool result was over its limit: an excerpt stands in its place."""
    QUOTED_NOTICE = "quoted_notice"
    """What a tool printed looked like a notice of the proxy: it is marked as quoted."""
    SANITISE = "sanitise"
    """Characters that this model's upstream chokes on were replaced."""
    OLD_REASONING = "old_reasoning"
    """Long reasoning of finished turns was left out."""
    LONG_OLD_TEXT = "long_old_text"
    """A very long user or assistant text of a finished turn was cut in its middle."""
    OLD_RESULT = "old_result"
    """An old tool result was cut down to what was left of the room."""
    OLD_EXCHANGE = "old_exchange"
    """Old messages were left out, calls and results together."""
    OMISSION_NOTE = "omission_note"
    """A message carries the note of what was left out before it."""
    NEWEST_RESULT = "newest_result"
    """The newest tool results did not fit: excerpts stand in their place."""
    NEWEST_TEXT = "newest_text"
    """The newest words or calls, or what the user asked, did not fit: they were cut in their middle."""
    CLAMP_REPLY = "clamp_reply"
    """The reply limit was lowered so that the prompt fits."""
    UPSTREAM_TRUNCATION = "upstream_truncation"
    """The upstream was asked to leave out what it holds of the conversation, as it had refused all of it."""
    HISTORY_HEALED = "history_healed"
    """A result of no call was left out, or a call got the result that it lacked, after an upstream had refused that."""
    RETRIEVAL_TOOL = "retrieval_tool"
    """The proxy's own tool was added to the tool list."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Parts that a tool's result cannot hold: they go into a user message behind the whole batch of results."""

    parts: tuple[Item, ...] = field(repr=False)
    spoken: str | None = field(repr=False, default=None)
    """What an assistant message says that goes before, for upstreams that take no user message right after a result."""


@dataclass(frozen=True, slots=True)
class RoutedMedia:
    """Where one content went: for the log, so neither content nor name."""

    kind: str
    mime: str
    route: str
    """The type of the part that holds it now, `text`, or `description`."""
    byte_count: int | None = None
    """None: its content was never here."""
    reason: str = ""
    """Why it is a description."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `becomes` in the place of what stands at an address in a message, or take that out."""

    message: int | None
    """Index in the request as received; None for a member of the request itself."""
    at: Address
    becomes: Content = field(repr=False)
    """None takes it out."""
    reason: Reason
    artifact: Artifact | None = None
    """What must be kept before this is sent."""
    tool: str = ""
    before_chars: int = 0
    """Of the text that is changed."""
    after_chars: int = 0
    moved: Moved | None = None
    """What it takes out that is sent all the same, behind the batch."""
    media: RoutedMedia | None = None
    """The content for which it was made."""
