"""The kinds of content, and the modality that a model needs for each.

Rule: each kind has one route, whatever the type.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.models.profile import Modality


class ContentKind(StrEnum):
    """The kind of a content from a model's point of view."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"
    TEXT = "text"
    OTHER = "other"


class MediaType(Struct, frozen=True):
    """The type of one content."""

    mime: str
    kind: ContentKind
    suffix: str
    """The extension of a file of this type, without the dot."""


def modality_of(kind: ContentKind) -> Modality:
    """The modality that a model needs for this kind."""
    return _MODALITIES.get(kind, Modality.FILE)


def kind_claimed(modality: Modality) -> ContentKind:
    """The kind that a claimed modality implies; a file is a document until it is opened."""
    return _KINDS[modality]


_MODALITIES: Final = {
    ContentKind.IMAGE: Modality.VISION,
    ContentKind.AUDIO: Modality.AUDIO,
    ContentKind.VIDEO: Modality.VIDEO,
    ContentKind.DOCUMENT: Modality.FILE,
    ContentKind.TEXT: Modality.TEXT,
}
_KINDS: Final = {modality: kind for kind, modality in _MODALITIES.items()}


def audio_format(found: MediaType) -> str:
    """The `format` of an `input_audio` part: OpenAI accepts `wav` and `mp3`, others accept more.

    >>> audio_format(MediaType("audio/mpeg", ContentKind.AUDIO, "mp3"))
    'mp3'
    """
    return found.suffix
