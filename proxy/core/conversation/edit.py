"""One change to a request, and what it takes out. Requests change only by edits.

Rule: whatever no edit names keeps its bytes; an artifact carries what an edit takes out, so that it can be kept before
anything is sent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from msgspec import Struct

from proxy.core.artifact import Artifact
from proxy.core.conversation.message import Address, Content, Item
from proxy.core.text import Discreet


class Reason(StrEnum):
    """Why something was changed. The names appear in logs, headers and metrics, the words on the dashboard."""

    one: str
    """What was done, in words, if it was done once."""
    several: str
    """If it was done `#` times."""

    def __new__(cls, name: str, one: str, several: str = "") -> Self:
        made = str.__new__(cls, name)
        made._value_ = name
        made.one, made.several = one, several or one
        return made

    ROUTE_MEDIA = "route_media", "1 image or file moved or described", "# images or files moved or described"
    """To where the model can read them; what it cannot read is replaced by a description."""
    TRUNCATE_TOOL_OUTPUT = "truncate_tool_output", "1 long tool result cut", "# long tool results cut"
    """They exceeded their limit and were replaced by excerpts."""
    QUOTED_NOTICE = "quoted_notice", "1 quoted notice marked", "# quoted notices marked"
    """Tool output that looked like one of the proxy's own notices."""
    SANITISE = "sanitise", "characters replaced in 1 text", "characters replaced in # texts"
    """Characters that this model's upstream cannot handle."""
    OLD_REASONING = "old_reasoning", "reasoning of 1 finished turn left out", "reasoning of # finished turns left out"
    LONG_OLD_TEXT = "long_old_text", "1 very long old text cut in the middle", "# very long old texts cut in the middle"
    """A user's or an assistant's text in a finished turn."""
    OLD_RESULT = "old_result", "1 old tool result cut down", "# old tool results cut down"
    """To the room that was left."""
    OLD_EXCHANGE = "old_exchange", "1 old message left out", "# old messages left out"
    """Calls and results together."""
    OMISSION_NOTE = "omission_note", "a note says what was left out", "# notes say what was left out"
    """Before the message that carries the note."""
    NEWEST_RESULT = "newest_result", "1 of the newest tool results cut", "# of the newest tool results cut"
    """They did not fit and were replaced by excerpts."""
    NEWEST_TEXT = "newest_text", "1 of the newest texts cut in the middle", "# of the newest texts cut in the middle"
    """The newest assistant text or call arguments, or the user's request, did not fit."""
    CLAMP_REPLY = "clamp_reply", "reply limit lowered"
    """So that the prompt fits."""
    UPSTREAM_TRUNCATION = "upstream_truncation", "the upstream was asked to drop old messages"
    """It had refused the conversation that it stores."""
    HISTORY_HEALED = "history_healed", "1 mistake in the history repaired", "# mistakes in the history repaired"
    """An upstream had refused it: a result without a call was left out, a missing result was added, or reasoning that
    it could not verify was left out."""
    RETRIEVAL_TOOL = "retrieval_tool", "the tool read_artifact was offered"


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
    limit: str = ""
    """The limit that the text exceeded, and its value: `tool_output.max_lines=2000`; empty: another reason."""
