"""Measures of a message that upstreams limit, such as the number of its images.

Rule: each is a function of what is sent for one message, in it or after its batch. An image counts by how its header
states its size, never by opening it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from proxy.core.conversation import Attachment, ImageView, Message, TrackedMessage, seen
from proxy.core.media.placement import modality_claimed
from proxy.core.models import LimitName, Modality

Measure: TypeAlias = Callable[[TrackedMessage], int]

_PAGE_COUNT: Final = re.compile(rb"/Count\s+(\d{1,6})")
_PAGE: Final = re.compile(rb"/Type\s*/Page\b")


def _messages(entry: TrackedMessage) -> Iterator[Message]:
    """The message, and what is sent after its batch for it."""
    yield entry.message
    for moved in entry.moved:
        yield entry.message.beside("user", moved.parts)


def _attachments(entry: TrackedMessage) -> Iterator[Attachment]:
    if entry.message.may_hold_media or entry.moved:
        for message in _messages(entry):
            yield from _attached(message)


def _attached(message: Message) -> Iterator[Attachment]:
    found = message.parts()
    yield from (part.attachment for part in (found[1] if found else ()) if part.attachment is not None)


def bytes_of_media(messages: Iterable[Message]) -> int:
    """Bytes of all media, decoded, but for those that are elsewhere."""
    holding = (message for message in messages if message.may_hold_media)
    return sum(attachment.byte_count for message in holding for attachment in _attached(message))


def bytes_of_images(messages: Iterable[Message]) -> Iterator[int]:
    """Bytes of each image, decoded."""
    for message in messages:
        if message.may_hold_media:
            yield from (one.byte_count for one in _attached(message) if modality_claimed(one) is Modality.VISION)


def _images(entry: TrackedMessage) -> Iterator[ImageView]:
    if entry.images:
        for message in _messages(entry):
            yield from (image for image in message.media() if image is not None)


def _count_of(modality: Modality) -> Measure:
    return lambda entry: sum(modality_claimed(attachment) is modality for attachment in _attachments(entry))


_files: Final = _count_of(Modality.FILE)


def _media_bytes(entry: TrackedMessage) -> int:
    return sum(attachment.byte_count for attachment in _attachments(entry))


def _pages(entry: TrackedMessage) -> int:
    """Pages of PDF documents; 1 for one whose count is compressed."""
    contents = (attachment.content() or b"" for attachment in _attachments(entry) if not attachment.is_elsewhere)
    return sum(_pages_of(content) for content in contents if content.startswith(b"%PDF"))


def _pages_of(pdf: bytes) -> int:
    return max([len(_PAGE.findall(pdf)), 1, *(int(count) for count in _PAGE_COUNT.findall(pdf))])


SUMS: Final[Mapping[LimitName, Measure]] = {
    LimitName.IMAGES: lambda entry: entry.images,
    LimitName.MEDIA: lambda entry: entry.images + _files(entry),
    LimitName.AUDIO: _count_of(Modality.AUDIO),
    LimitName.VIDEOS: _count_of(Modality.VIDEO),
    LimitName.FILES: _files,
    LimitName.MEDIA_BYTES: _media_bytes,
    LimitName.PAGES: _pages,
    LimitName.MESSAGES: lambda entry: entry.message.item_count + len(entry.following),
}
"""What all messages together have at most."""


def _longest_side(entry: TrackedMessage) -> int:
    """Of its images, in pixels."""
    return max((max(seen(image)[0] or (0, 0)) for image in _images(entry)), default=0)


def _parts(entry: TrackedMessage) -> int:
    found = entry.message.parts()
    return len(found[1]) if found else 0


SINGLE: Final[Mapping[LimitName, Measure]] = {
    LimitName.IMAGE_BYTES: lambda entry: max(bytes_of_images(_messages(entry)), default=0),
    LimitName.SIDE: _longest_side,
    LimitName.SIDE_OF_MANY: _longest_side,
    LimitName.CALLS: lambda entry: len(entry.message.calls),
    LimitName.PARTS: _parts,
}
"""What any one message, or image of it, has at most."""

HIDING: Final[Mapping[LimitName, frozenset[Modality]]] = {
    LimitName.MEDIA: frozenset({Modality.VISION, Modality.FILE}),
    LimitName.AUDIO: frozenset({Modality.AUDIO}),
    LimitName.VIDEOS: frozenset({Modality.VIDEO}),
    LimitName.FILES: frozenset({Modality.FILE}),
    LimitName.MEDIA_BYTES: frozenset(Modality) - {Modality.TEXT},
    LimitName.PAGES: frozenset({Modality.FILE}),
}
"""The kinds of media that are described where a message is over such a limit."""
