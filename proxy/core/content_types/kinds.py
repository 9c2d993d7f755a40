"""What a content is to a model, and what a model must read to take it.

Rule: each kind has one route, whatever the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.core.models.profile import Modality


class ContentKind(StrEnum):
    """What a content is to a model."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"
    TEXT = "text"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class MediaType:
    """The type of one content."""

    mime: str
    kind: ContentKind
    suffix: str
    """What a file name of this type ends with, without the dot."""


def modality_of(kind: ContentKind) -> Modality:
    """What a model must read to take it."""
    return _MODALITIES.get(kind, Modality.FILE)


def kind_claimed(modality: Modality) -> ContentKind:
    """What a content is taken for that is claimed to be read so; a file is a document until it is opened."""
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
    """The `format` of an `input_audio` part: `wav` and `mp3` are what OpenAI takes, others take more.

    >>> audio_format(MediaType("audio/mpeg", ContentKind.AUDIO, "mp3"))
    'mp3'
    """
    return found.suffix
