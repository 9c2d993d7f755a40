"""One media content in a message, before it is decoded."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.content_types.texts import decoded, last_of
from proxy.core.text.discreet import Discreet


class Shape(StrEnum):
    """How a content is written in a message."""

    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    BLOCK = "block"
    """A block of MCP, Anthropic or Gemini among the parts of a message's content."""
    TEXT = "text"
    """Inside a text: a data URI, a block in JSON, base64 of a known type."""
    FORCED = "forced"
    """A text that is a binary file which the client decoded as text."""


class Attachment(Discreet, frozen=True):
    """A content, or the address of one."""

    shape: Shape
    payload: str = ""
    """Base64."""
    declared: str = ""
    """The declared media type, as written in the message."""
    name: str = ""
    """Of the file, as written in the message."""
    address: str = ""
    """Where the content is, or the upstream's name for it, if it is not in the message."""
    plain: bytes | None = None
    """The content, if it is not base64."""
    is_data_url: bool = False
    is_asked_for: bool = False
    """Whether the tool result itself says that it is to be shown."""
    is_fetched: bool = False
    """Whether its content was fetched from elsewhere, so that the original part of the message cannot be reused."""

    @property
    def is_part(self) -> bool:
        """Whether it came as media, not inside a text."""
        return self.shape not in (Shape.TEXT, Shape.FORCED)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its content is not in the message."""
        return bool(self.address)

    @property
    def byte_count(self) -> int:
        """Size of its content, computed without decoding it; slightly too large if the base64 has line breaks."""
        return len(self.plain) if self.plain is not None else len(self.payload) * 3 // 4

    def fetched(self, content: bytes, declared: str, name: str) -> Attachment:
        """The same after its content was fetched; a name that was stated beside the address stays."""
        stated = self.name if self.name != last_of(self.address) else ""
        return replace(self, address="", plain=content, declared=declared, name=stated or name, is_fetched=True)

    def content(self) -> bytes | None:
        """Its bytes; None if its base64 is broken."""
        return self.plain if self.plain is not None else decoded(self.payload)

    def head(self, max_bytes: int) -> bytes:
        """The beginning of its content; empty if it cannot be decoded."""
        if self.plain is not None:
            return self.plain[:max_bytes]
        return decoded(self.payload[: max_bytes // 3 * 4]) or b""


class Route(StrEnum):
    """Where a content goes. The values appear in logs."""

    UNKNOWN = "unknown"
    """It stays: nothing states whether the model reads it."""
    IMAGE = "image"
    AUDIO = "audio"
    AUDIO_ADDRESS = "audio_address"
    VIDEO = "video"
    FILE = "file"
    TEXT = "text"
    DESCRIPTION = "description"


class Replacement(NamedTuple):
    """The text that replaces a content inside a text."""

    words: str
    is_shown: bool = False
    """Whether the content is still shown, and the words say where."""
