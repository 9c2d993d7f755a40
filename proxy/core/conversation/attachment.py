"""One content as it stands in a message, before it is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from proxy.core.content_types.encoded import decoded, last_of


class Shape(StrEnum):
    """How a content stands in a message."""

    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    BLOCK = "block"
    """A block of MCP, Anthropic or Gemini among the parts of a content."""
    TEXT = "text"
    """Inside a text: a data URI, a block in JSON, base64 of a known type."""
    FORCED = "forced"
    """A text that is a file, decoded by force."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A content, or the address of one."""

    shape: Shape
    payload: str = field(repr=False, default="")
    """Base64."""
    declared: str = ""
    """The media type that is claimed, as it is written there."""
    name: str = ""
    """Of the file, as it is written there."""
    address: str = field(repr=False, default="")
    """Where it is, or what the upstream calls it, when it is not here."""
    plain: bytes | None = field(repr=False, default=None)
    """The content, when it is not base64."""
    is_data_url: bool = False
    is_asked_for: bool = False
    """Whether a tool's result says itself that it is to be shown."""
    is_fetched: bool = False
    """Whether its content was elsewhere, so that what stands in the message is no use."""

    @property
    def is_part(self) -> bool:
        """Whether it came as media, and not inside a text."""
        return self.shape not in (Shape.TEXT, Shape.FORCED)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its content is not here."""
        return bool(self.address)

    @property
    def byte_count(self) -> int:
        """Of its content, told without opening it; a little more where it has line breaks."""
        return len(self.plain) if self.plain is not None else len(self.payload) * 3 // 4

    def fetched(self, content: bytes, declared: str, name: str) -> Attachment:
        """The same, once what stands at its address is here; a name that was stated beside the address stays."""
        stated = self.name if self.name != last_of(self.address) else ""
        return replace(self, address="", plain=content, declared=declared, name=stated or name, is_fetched=True)

    def content(self) -> bytes | None:
        """Its bytes; None when its base64 is broken."""
        return self.plain if self.plain is not None else decoded(self.payload)

    def head(self, max_bytes: int) -> bytes:
        """The beginning of its content, or nothing."""
        if self.plain is not None:
            return self.plain[:max_bytes]
        return decoded(self.payload[: max_bytes // 3 * 4]) or b""


class Route(StrEnum):
    """Where a content goes. The values stand in logs."""

    UNKNOWN = "unknown"
    """It stays: nobody states whether the model reads it."""
    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    TEXT = "text"
    DESCRIPTION = "description"


class Replacement(NamedTuple):
    """What stands in the place of a content inside a text."""

    words: str
    is_shown: bool = False
    """Whether the content is shown after all, and the words say where."""
