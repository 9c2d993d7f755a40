"""One change to a request, and what it takes out. The only way a request changes.

Rule: what is not named by an edit keeps its bytes; what an edit takes out is carried by an artifact, so that it can be
kept before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from proxy.core.artifact import Artifact
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

Path: TypeAlias = tuple[str | int, ...]
"""Where in a message: names of members and indexes of items. Empty: the message itself."""


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
    RETRIEVAL_TOOL = "retrieval_tool"
    """The proxy's own tool was added to the tool list."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Parts that a tool's result cannot hold: they go into a user message behind the whole batch of results."""

    parts: tuple[bytes, ...] = field(repr=False)
    """JSON."""
    spoken: bytes | None = field(repr=False, default=None)
    """An assistant message that goes before, for upstreams that take no user message right behind a result. JSON."""


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
    """Put `replacement` in the place of what stands at `path` in a message, or take that out."""

    message: int | None
    """Index in the request as received; None for a member of the request itself."""
    path: Path
    replacement: bytes | None = field(repr=False)
    """JSON; None takes the member, the item or the message out."""
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


def spliced(raw: Raw, changes: Mapping[Path, bytes | None]) -> bytes:
    """A JSON value with parts replaced or taken out; all else keeps its bytes. Raises NotJson.

    >>> spliced(b'{"a": {"b":1, "c": 2.0}}', {("a", "b"): b"7"})
    b'{"a":{"b":7,"c":2.0}}'
    """
    whole = changes.get(())
    if whole is not None:
        return whole
    below: dict[str | int, dict[Path, bytes | None]] = {}
    for path, replacement in changes.items():
        below.setdefault(path[0], {})[path[1:]] = replacement
    if any(isinstance(step, int) for step in below):
        found = enumerate(jsontext.items(raw))
        return jsontext.join_array([bytes(part) for _, part in _changed(found, below)])
    parts = dict(jsontext.members(raw))
    added = {name: inner[()] for name, inner in below.items() if name not in parts and inner.get(()) is not None}
    kept = {str(name): part for name, part in _changed(parts.items(), below)}
    return jsontext.join_object(kept | {str(name): part for name, part in added.items() if part is not None})


def _changed(
    parts: Iterable[tuple[str | int, Raw]], below: Mapping[str | int, Mapping[Path, bytes | None]]
) -> Iterable[tuple[str | int, Raw]]:
    for step, part in parts:
        inner = below.get(step)
        if inner is None:
            yield step, part
        elif inner.get((), b"") is not None:
            yield step, spliced(part, inner)
