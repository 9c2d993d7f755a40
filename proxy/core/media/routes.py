"""The route table: what a model reads, and in which part.

Rule: the same kind of content and the same capability give the same route. An unstated capability is neither yes nor
no.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType, modality_of
from proxy.core.conversation.attachment import Attachment, Route, Shape
from proxy.core.conversation.edit import RoutedMedia
from proxy.core.conversation.message import Message, Shown
from proxy.core.media.descriptions import OmissionReason
from proxy.core.models.profile import Modality

MAX_IMAGE_PIXELS: Final = 89_478_485
"""Pillow, which vLLM, SGLang and most servers use to open images, treats anything larger as a decompression bomb.
https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.open"""
MAX_BYTES: Final = 20 * 1024 * 1024


SHAPES: Final = {
    Shape.IMAGE: (Modality.VISION, Route.IMAGE),
    Shape.AUDIO: (Modality.AUDIO, Route.AUDIO),
    Shape.AUDIO_ADDRESS: (Modality.AUDIO, Route.AUDIO_ADDRESS),
    Shape.VIDEO: (Modality.VIDEO, Route.VIDEO),
    Shape.FILE: (Modality.FILE, Route.FILE),
}
"""The modality that a model needs to read a part as it is written."""


def modalities_in(message: Message) -> frozenset[Modality]:
    """The modalities that a model needs for the media parts of a message, by what the parts declare."""
    found = message.parts()
    parts = found[1] if found is not None else ()
    return frozenset(modality_claimed(part.attachment) for part in parts if part.attachment is not None)


class MediaPlacement(Struct, frozen=True):
    """Where a content goes, and what is put there."""

    route: Route
    found: MediaType
    part: Shown | None = None
    """The new part; None if the old one stays, or a text replaces it."""
    words: str = ""
    artifact: Artifact | None = None
    byte_count: int | None = None
    reason: str = ""

    @property
    def stays(self) -> bool:
        """Whether the original is right as it is."""
        return self.part is None and not self.words

    @property
    def noted(self) -> RoutedMedia:
        """For the log."""
        return RoutedMedia(self.found.kind.value, self.found.mime, self.route.value, self.byte_count, self.reason)


class Routes(Struct, frozen=True):
    """What one model reads, and the most that is shown to it."""

    modalities: frozenset[Modality] | None = None
    """None: nobody states it."""
    refused: frozenset[Modality] = frozenset()
    """What its upstream has refused before, whatever is stated."""
    is_strict: bool = False
    """Whether a model is assumed to read only text if nobody states what it reads."""
    max_bytes: int = MAX_BYTES
    """Of one content."""
    max_image_pixels: int = MAX_IMAGE_PIXELS
    max_images: int | None = None
    """Of one message."""

    def reads(self, modality: Modality) -> bool | None:
        """Whether the model reads it; None if nobody states it."""
        if modality in self.refused:
            return False
        if self.modalities is None:
            return (modality is Modality.TEXT) if self.is_strict else None
        return modality in self.modalities

    def why_not(self, modality: Modality, *, can_hold: bool) -> OmissionReason:
        """Why something is not read: the model is known to lack it, or its place cannot hold it."""
        is_stated = self.modalities is not None or modality in self.refused
        return OmissionReason.MODEL if is_stated or can_hold else OmissionReason.PLACE


def modality_claimed(attachment: Attachment) -> Modality:
    """The modality that a model needs for a part, by what the part declares."""
    if attachment.shape in SHAPES:
        return SHAPES[attachment.shape][0]
    kind = attachment.declared.partition("/")[0].strip().lower()
    return _BY_PREFIX.get(kind, Modality.FILE)


_BY_PREFIX: Final = {
    kind.value: modality_of(kind) for kind in (ContentKind.IMAGE, ContentKind.AUDIO, ContentKind.VIDEO)
}
