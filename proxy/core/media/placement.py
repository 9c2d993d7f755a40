"""Where one content goes: into a part that the model reads, into a text, or into a description.

Rule: a function of content, capability and place; nothing here raises, whatever the bytes. An unstated capability is
neither yes nor no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from proxy.core.artifact import FETCHED, Artifact, digest_of
from proxy.core.content_types import (
    ContentKind,
    MediaType,
    decoded,
    is_binary,
    kind_claimed,
    known,
    media_type,
    modality_of,
    plain_mime,
    text_of,
)
from proxy.core.conversation import Attachment, Message, Route, RoutedMedia, Shape, Shown, Unfetched
from proxy.core.media.descriptions import OmissionReason, default_name, description, named, not_fetched
from proxy.core.models import Modality
from proxy.core.notices import Notices
from proxy.core.tokens import image_size

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

MAX_TEXT_BYTES: Final = 51_200
"""Largest text file that is put into a message as text."""
_HEAD_BYTES: Final = 65_536
"""JPEG has its size after its EXIF block, which is at most this long."""
_NOT_SHOWN: Final = frozenset({"image/svg+xml", "image/vnd.adobe.photoshop"})
"""Images that no model reads: drawings and layered files."""
_WIDELY_READ: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types that OpenAI, Anthropic and Gemini all read; for others, the client that sends them as media has to know.
https://platform.openai.com/docs/guides/images-vision, https://docs.anthropic.com/en/docs/build-with-claude/vision"""
_PARTS: Final = {ContentKind.IMAGE: Route.IMAGE, ContentKind.AUDIO: Route.AUDIO}
"""The part for a content that was not in a part of its own; for any other, a file."""
_BY_PREFIX: Final = {
    kind.value: modality_of(kind) for kind in (ContentKind.IMAGE, ContentKind.AUDIO, ContentKind.VIDEO)
}


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
        """Logged details."""
        return RoutedMedia(self.found.kind.value, self.found.mime, self.route.value, self.byte_count, self.reason)


class Routes(Struct, frozen=True):
    """Media that one model reads, and the limits for them."""

    modalities: frozenset[Modality] | None = None
    """None: unknown."""
    refused: frozenset[str] = frozenset()
    """Kinds, and digests of contents, that its upstream has refused before, whatever is stated."""
    is_strict: bool = False
    """Whether a model is assumed not to read the kinds that are unknown, text excepted."""
    max_bytes: int = MAX_BYTES
    """Limit of one content."""
    max_image_pixels: int = MAX_IMAGE_PIXELS
    max_images: int | None = None
    """Limit of one message."""
    unstated: frozenset[Modality] = frozenset()
    """Unknown, although other kinds are stated."""
    hidden: frozenset[Modality] = frozenset()
    """Kinds of which a message shows none, because the request has too many."""
    max_image_bytes: int | None = None
    max_side: int | None = None
    """Limit of the longer side of an image, in pixels."""

    def reads(self, modality: Modality) -> bool | None:
        """Whether the model reads it; None if unknown."""
        if modality in self.refused:
            return False
        if self.modalities is None or modality in self.unstated:
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
    return _BY_PREFIX.get(attachment.declared.partition("/")[0].strip().lower(), Modality.FILE)


def place(
    routes: Routes,
    attachment: Attachment,
    part: bytes | None,
    tool: str,
    notices: Notices,
    *,
    can_hold: bool,
    is_too_many: bool = False,
) -> MediaPlacement:
    """Where a content goes. `part`: the part that contained it. `can_hold`: whether its message may hold media, or they
    may be moved out of it. `is_too_many`: whether enough images of its message are shown without it."""
    claimed = modality_claimed(attachment)
    placing = _Placing(routes, attachment, part, tool, notices, can_hold, is_too_many, claimed)
    return placing.elsewhere() if attachment.is_elsewhere else placing.placed()


def not_here(attachment: Attachment, unfetched: Unfetched, notices: Notices) -> MediaPlacement:
    """A content that could not be fetched is replaced by the reason."""
    kept_in = (notices.way.folder or notices.way.url or "") if notices.kept else ""
    words = not_fetched(attachment.address, unfetched, notices.language, kept_in)
    found = MediaType("", ContentKind.IMAGE, "")
    return MediaPlacement(Route.DESCRIPTION, found, words=words, reason=unfetched.obstacle.value)


def unheld(
    routes: Routes, attachment: Attachment, part: bytes | None, found: MediaType, tool: str, notices: Notices
) -> MediaPlacement:
    """A content for which the API has no part is described."""
    claimed = modality_claimed(attachment)
    placing = _Placing(routes, attachment, part, tool, notices, can_hold=False, is_too_many=False, claimed=claimed)
    placing.found, placing.content = found, b"" if attachment.is_elsewhere else attachment.content() or b""
    return placing.described(OmissionReason.PLACE)


_UNOPENED: Final = MediaType("", ContentKind.OTHER, "")


@dataclass(slots=True)
class _Placing:
    """One content on the way to its place."""

    routes: Routes
    attachment: Attachment
    part: bytes | None
    tool: str
    notices: Notices
    can_hold: bool
    is_too_many: bool
    claimed: Modality
    content: bytes = b""
    found: MediaType = _UNOPENED
    pixels: tuple[int, int] | None = None

    def elsewhere(self) -> MediaPlacement:
        """A content that is not here is shown where it is, or replaced by its address."""
        attachment, reads = self.attachment, self.routes.reads(self.claimed)
        found = self.found = MediaType("", kind_claimed(self.claimed), "")
        is_shown = reads and self.can_hold
        if not attachment.is_part:
            if not (is_shown and attachment.is_asked_for and attachment.address.startswith("http")):
                return self._stays()
            return MediaPlacement(Route.IMAGE, found, Shown(Route.IMAGE, found, address=attachment.address))
        is_hidden = self.claimed in self.routes.hidden
        is_too_many = self.is_too_many and found.kind is ContentKind.IMAGE
        if (reads is None or is_shown) and not is_too_many and not is_hidden:
            return self._stays(
                SHAPES[attachment.shape][1] if is_shown and attachment.shape in SHAPES else Route.UNKNOWN
            )
        other = OmissionReason.TOO_MANY_FILES if is_hidden else OmissionReason.PLACE
        why = OmissionReason.TOO_MANY if is_too_many else other
        return self.described(self._why_not_read if reads is False else why)

    def placed(self) -> MediaPlacement:
        """A content that is here."""
        attachment, routes = self.attachment, self.routes
        is_unstated = not (routes.modalities is not None or routes.refused or routes.hidden or routes.is_strict)
        if self._is_as_received and is_unstated and not self.is_too_many and not self._is_over_a_limit():
            return self._stays()
        content = attachment.content()
        self.found = media_type(content or b"", attachment.declared, attachment.name)
        if content:
            self.content = content
            if attachment.shape is Shape.FORCED:
                return self.described(OmissionReason.FORCED)
            return self._text() if self.found.kind is ContentKind.TEXT else self._media()
        if self._is_as_received and routes.reads(self.claimed) is None:
            return self._stays()  # the upstream decides about a part that is broken, as about any other
        if content is not None:
            return self.described(OmissionReason.EMPTY)
        self.content = attachment.payload.encode("utf-8", "surrogatepass")
        self.found = known(plain_mime(attachment.declared)) or MediaType("", kind_claimed(self.claimed), "")
        return self.described(OmissionReason.BROKEN, suffix="txt")  # as it was received

    @property
    def _is_as_received(self) -> bool:
        """Whether the part that was received holds it."""
        return self.attachment.is_part and not self.attachment.is_fetched

    @property
    def _why_not_read(self) -> OmissionReason:
        return self.routes.why_not(self.claimed, can_hold=self.can_hold)

    def _is_over_a_limit(self) -> bool:
        """Decided without decoding the whole content."""
        attachment = self.attachment
        self.pixels = image_size(attachment.head(_HEAD_BYTES)) if attachment.shape is Shape.IMAGE else None
        return attachment.byte_count > self._most_bytes or self._has_too_many_pixels or self._is_too_long

    @property
    def _most_bytes(self) -> int:
        of_image = self.routes.max_image_bytes if self.claimed is Modality.VISION else None
        return self.routes.max_bytes if of_image is None else min(of_image, self.routes.max_bytes)

    @property
    def _has_too_many_pixels(self) -> bool:
        return self.pixels is not None and self.pixels[0] * self.pixels[1] > self.routes.max_image_pixels

    @property
    def _is_too_long(self) -> bool:
        return self.pixels is not None and self.routes.max_side is not None and max(self.pixels) > self.routes.max_side

    def _media(self) -> MediaPlacement:
        attachment, found = self.attachment, self.found
        is_image = found.kind is ContentKind.IMAGE
        if is_image:
            self.pixels = image_size(self.content[:_HEAD_BYTES])
        answers = {self.routes.reads(modality): route for modality, route in reversed(self._candidates())}
        reads = next(answer for answer in (True, None, False) if answer in answers)
        unstated = OmissionReason.UNSTATED if attachment.is_fetched else OmissionReason.IN_TEXT
        is_head = not attachment.is_part and len(self.content) < _HEAD_BYTES and found.mime in _WIDELY_READ
        is_odd = answers[reads] is Route.IMAGE and attachment.shape not in SHAPES and found.mime not in _WIDELY_READ
        refused = (
            (OmissionReason.REFUSED, bool(self.routes.refused) and digest_of(self.content) in self.routes.refused),
            (OmissionReason.TOO_LARGE, len(self.content) > self._most_bytes),
            (OmissionReason.TOO_MANY_PIXELS, self._has_too_many_pixels),
            (OmissionReason.TOO_LONG_A_SIDE, self._is_too_long),
            (OmissionReason.TOO_MANY_FILES, self.claimed in self.routes.hidden),
            (OmissionReason.TOO_MANY, self.is_too_many and is_image and reads is not False),
            (unstated, reads is None and not attachment.is_part),
            (self._why_not_read, reads is False),
            (OmissionReason.PLACE, not self.can_hold and (reads or attachment.is_fetched)),
            # A text may contain the beginning of an image without its size, which an upstream would refuse.
            (OmissionReason.BROKEN, reads and is_head and self.pixels is None),
            (OmissionReason.FORMAT, reads and (is_odd or found.mime in _NOT_SHOWN)),
        )
        if why := next((why for why, holds in refused if holds), None):
            return self.described(why)
        if reads is None and not attachment.is_fetched:
            return self._stays()
        return self._shown(answers[reads])

    def _candidates(self) -> list[tuple[Modality, Route]]:
        """Ways to show it to the model, the best first."""
        kind, shape = self.found.kind, self.attachment.shape
        own, as_written = (modality_of(kind), _PARTS.get(kind, Route.FILE)), SHAPES.get(shape)
        if as_written is None:
            return [own]
        if kind is ContentKind.OTHER or own[0] is self.claimed:
            return [as_written]  # raw samples, rare formats: the sender of the part has to know
        if shape is Shape.FILE:
            return [own, as_written] if kind is ContentKind.IMAGE else [as_written, own]
        return [own]

    def _text(self) -> MediaPlacement:
        """A text that was sent as a file is text, unless the model reads files."""
        attachment, name = self.attachment, self.attachment.name
        is_meant = attachment.is_part or attachment.is_asked_for or is_binary(attachment.declared)
        reads = self.routes.reads(self.claimed) if attachment.is_part else False
        is_small = len(self.content) <= self.routes.max_bytes
        if (attachment.is_data_url and not is_meant) or (is_small and reads is None and not attachment.is_fetched):
            return self._stays()
        if is_small and reads and attachment.shape is Shape.FILE and self.can_hold:
            return self._shown(Route.FILE)
        if len(self.content) > MAX_TEXT_BYTES:
            return self.described(OmissionReason.LONG_TEXT)
        text = text_of(self.content)
        if text is None:
            return self.described(OmissionReason.ENCODING)
        if not (name or attachment.is_part) and decoded(text) is not None:
            name = default_name(self.found)  # otherwise the text would be taken for base64 itself
        return MediaPlacement(Route.TEXT, self.found, words=named(name, text), byte_count=len(self.content))

    def _stays(self, route: Route = Route.UNKNOWN) -> MediaPlacement:
        return MediaPlacement(route, self.found)

    def described(self, why: OmissionReason, suffix: str = "") -> MediaPlacement:
        attachment, found, routes = self.attachment, self.found, self.routes
        limits = {
            OmissionReason.TOO_LARGE: self._most_bytes,
            OmissionReason.TOO_MANY_PIXELS: routes.max_image_pixels,
            OmissionReason.TOO_LONG_A_SIDE: routes.max_side or 0,
        }
        artifact = Artifact(self.content, self.tool, suffix or found.suffix) if self.content else None
        count = None if attachment.is_elsewhere else len(self.content)
        words = description(
            found,
            why,
            artifact,
            self.notices,
            name=attachment.name,
            byte_count=count,
            pixels=self.pixels,
            address=attachment.address,
            limit=limits.get(why, 0),
        )
        return MediaPlacement(Route.DESCRIPTION, found, None, words, artifact, count, why.value)

    def _shown(self, route: Route) -> MediaPlacement:
        """The part that the model reads; the original one if it is right."""
        attachment, found, notices = self.attachment, self.found, self.notices
        is_typed = found.kind is ContentKind.OTHER or plain_mime(attachment.declared) == found.mime
        is_written_so = attachment.shape in SHAPES and SHAPES[attachment.shape][1] is route
        if is_written_so and is_typed and (attachment.is_data_url or route is Route.AUDIO):
            return MediaPlacement(route, found, byte_count=len(self.content))
        name = attachment.name or default_name(found)
        part = Shown(route, found, self.content, "", name, self.part, attachment.is_fetched)
        # The agent has only the address of an image that was fetched, and may want to put the file somewhere.
        is_kept = attachment.is_fetched and notices.kept and notices.way.folder is not None and route is Route.IMAGE
        artifact = Artifact(self.content, FETCHED, found.suffix) if is_kept else None
        return MediaPlacement(route, found, part, "", artifact, len(self.content))
