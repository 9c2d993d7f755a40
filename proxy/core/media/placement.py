"""Where one content goes: into a part that the model reads, into a text, or into a description.

Rule: a function of content, capability and place; nothing here raises, whatever the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from proxy.core.artifact import FETCHED, Artifact
from proxy.core.content_types import (
    ContentKind,
    MediaType,
    is_binary,
    kind_claimed,
    known,
    media_type,
    modality_of,
    plain_mime,
)
from proxy.core.content_types.texts import decoded, text_of
from proxy.core.conversation.attachment import Attachment, Route, Shape
from proxy.core.conversation.message import Shown
from proxy.core.conversation.references import Unfetched
from proxy.core.media.descriptions import Described, OmissionReason, default_name, description, named
from proxy.core.media.fetch_notices import not_fetched
from proxy.core.media.routes import SHAPES, MediaPlacement, Routes, modality_claimed
from proxy.core.models.profile import Modality
from proxy.core.notices.writing import Notices
from proxy.core.tokens.image_size import image_size

MAX_TEXT_BYTES: Final = 51_200
"""Of a text file that is put into a message as text."""
_HEAD_BYTES: Final = 65_536
"""JPEG has its size after its EXIF block, which is at most this long."""
_NOT_SHOWN: Final = frozenset({"image/svg+xml", "image/vnd.adobe.photoshop"})
"""Images that no model reads: drawings and layered files."""
_WIDELY_READ: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types that OpenAI, Anthropic and Gemini all read; for others, the client that sends them as media has to know.
https://platform.openai.com/docs/guides/images-vision, https://docs.anthropic.com/en/docs/build-with-claude/vision"""
_KINDS: Final = {
    ContentKind.IMAGE: Route.IMAGE,
    ContentKind.AUDIO: Route.AUDIO,
    ContentKind.VIDEO: Route.FILE,
    ContentKind.DOCUMENT: Route.FILE,
    ContentKind.OTHER: Route.FILE,
}
"""The part for a content that was not in a part of its own."""


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
    if attachment.is_elsewhere:
        return _elsewhere(routes, attachment, notices, can_hold=can_hold, is_too_many=is_too_many)
    return _Placing(routes, attachment, part, tool, notices, can_hold, is_too_many).placed()


def _elsewhere(
    routes: Routes, attachment: Attachment, notices: Notices, *, can_hold: bool, is_too_many: bool
) -> MediaPlacement:
    """A content that is not here is shown where it is, or replaced by its address."""
    modality = modality_claimed(attachment)
    kind = kind_claimed(modality)
    found = MediaType("", kind, "")
    reads = routes.reads(modality)
    if not attachment.is_part:
        if not (attachment.is_asked_for and reads and can_hold and attachment.address.startswith("http")):
            return MediaPlacement(Route.UNKNOWN, found)
        return MediaPlacement(Route.IMAGE, found, Shown(Route.IMAGE, found, address=attachment.address))
    is_too_many = is_too_many and kind is ContentKind.IMAGE
    if reads is None and not is_too_many:
        return MediaPlacement(Route.UNKNOWN, found)
    if reads and can_hold and not is_too_many:
        return MediaPlacement(SHAPES.get(attachment.shape, (modality, Route.UNKNOWN))[1], found)
    lacking = routes.why_not(modality, can_hold=can_hold)
    why = lacking if reads is False else OmissionReason.TOO_MANY if is_too_many else OmissionReason.PLACE
    described = Described(found, why, attachment.name, address=attachment.address)
    words = description(described, None, notices)
    return MediaPlacement(Route.DESCRIPTION, found, words=words, reason=why.value)


def not_here(attachment: Attachment, unfetched: Unfetched, notices: Notices) -> MediaPlacement:
    """A content that could not be fetched is replaced by the reason."""
    kept_in = (notices.way.folder or notices.way.url or "") if notices.kept else ""
    words = not_fetched(attachment.address, unfetched, notices.language, kept_in)
    return MediaPlacement(
        Route.DESCRIPTION, MediaType("", ContentKind.IMAGE, ""), words=words, reason=unfetched.obstacle.value
    )


@dataclass(slots=True)
class _Placing:
    """One content that is here, on the way to its place."""

    routes: Routes
    attachment: Attachment
    part: bytes | None
    tool: str
    notices: Notices
    can_hold: bool
    is_too_many: bool
    content: bytes = b""
    is_encoded: bool = False
    """Whether `content` is the base64 as received."""
    found: MediaType = field(default=MediaType("", ContentKind.OTHER, ""))
    pixels: tuple[int, int] | None = None

    def placed(self) -> MediaPlacement:
        attachment = self.attachment
        claimed = modality_claimed(attachment)
        stays = attachment.is_part and not attachment.is_fetched
        if stays and self._nothing_is_known and not self.is_too_many and not self._is_over_a_limit():
            return MediaPlacement(Route.UNKNOWN, self.found)
        content = attachment.content()
        if content is None:
            return self._unless_unknown(claimed, OmissionReason.BROKEN)
        self.content = content
        self.found = media_type(content, attachment.declared, attachment.name)
        if attachment.shape is Shape.FORCED:
            return self._described(OmissionReason.FORCED)
        if not content:
            return self._unless_unknown(claimed, OmissionReason.EMPTY)
        if self.found.kind is ContentKind.TEXT:
            return self._text(claimed)
        if self.found.kind is ContentKind.IMAGE:
            self.pixels = image_size(content[:_HEAD_BYTES])
        return self._media(claimed)

    @property
    def _nothing_is_known(self) -> bool:
        routes = self.routes
        return routes.modalities is None and not routes.refused and not routes.is_strict

    def _is_over_a_limit(self) -> bool:
        """Decided without decoding the whole content."""
        if self.attachment.byte_count > self.routes.max_bytes:
            return True
        self.pixels = image_size(self.attachment.head(_HEAD_BYTES)) if self.attachment.shape is Shape.IMAGE else None
        return self._has_too_many_pixels

    @property
    def _has_too_many_pixels(self) -> bool:
        return self.pixels is not None and self.pixels[0] * self.pixels[1] > self.routes.max_image_pixels

    def _media(self, claimed: Modality) -> MediaPlacement:
        routes, is_part = self.routes, self.attachment.is_part
        reads: bool | None = False
        route = Route.DESCRIPTION
        for modality, candidate in self._candidates(claimed):
            answer = routes.reads(modality)
            if answer:
                reads, route = True, candidate
                break
            reads = None if answer is None else reads
        if len(self.content) > routes.max_bytes:
            return self._described(OmissionReason.TOO_LARGE, routes.max_bytes)
        if self._has_too_many_pixels:
            return self._described(OmissionReason.TOO_MANY_PIXELS, routes.max_image_pixels)
        if self.is_too_many and self.found.kind is ContentKind.IMAGE and reads is not False:
            return self._described(OmissionReason.TOO_MANY)
        if reads is None:
            return self._unknown(claimed) if is_part else self._described(self._why_not_out_of_a_text)
        if not reads:
            return self._described(routes.why_not(claimed, can_hold=self.can_hold))
        if not self.can_hold:
            return self._described(OmissionReason.PLACE)
        if self._is_no_whole_image:
            return self._described(OmissionReason.BROKEN)
        if self.found.mime in _NOT_SHOWN or (route is Route.IMAGE and not self._may_be_shown):
            return self._described(OmissionReason.FORMAT)
        return self._shown(route)

    @property
    def _is_no_whole_image(self) -> bool:
        """Whether a text contains the beginning of an image without its size: an upstream would refuse it."""
        is_head = not self.attachment.is_part and len(self.content) < _HEAD_BYTES
        return is_head and self.pixels is None and self.found.mime in _WIDELY_READ

    @property
    def _why_not_out_of_a_text(self) -> OmissionReason:
        return OmissionReason.UNSTATED if self.attachment.is_fetched else OmissionReason.IN_TEXT

    @property
    def _may_be_shown(self) -> bool:
        return self.attachment.shape in SHAPES or self.found.mime in _WIDELY_READ

    def _candidates(self, claimed: Modality) -> list[tuple[Modality, Route]]:
        """What the model may read it as, the best first."""
        kind, shape = self.found.kind, self.attachment.shape
        own = (modality_of(kind), _KINDS.get(kind, Route.FILE))
        if shape not in SHAPES:
            return [own]
        as_written = SHAPES[shape]
        if kind is ContentKind.OTHER or own[0] is claimed:
            return [as_written]  # raw samples, rare formats: the sender of the part has to know
        if shape is Shape.FILE:
            return [own, as_written] if kind is ContentKind.IMAGE else [as_written, own]
        return [own]

    def _text(self, claimed: Modality) -> MediaPlacement:
        """A text that was sent as a file is text, unless the model reads files."""
        attachment = self.attachment
        if attachment.is_data_url and not (
            attachment.is_part or attachment.is_asked_for or is_binary(attachment.declared)
        ):
            return MediaPlacement(Route.UNKNOWN, self.found)
        reads = self.routes.reads(claimed) if attachment.is_part else False
        if len(self.content) <= self.routes.max_bytes:
            if reads is None and not attachment.is_fetched:
                return MediaPlacement(Route.UNKNOWN, self.found)
            if reads and attachment.shape is Shape.FILE and self.can_hold:
                return self._shown(Route.FILE)
        if len(self.content) > MAX_TEXT_BYTES:
            return self._described(OmissionReason.LONG_TEXT)
        text = text_of(self.content)
        if text is None:
            return self._described(OmissionReason.ENCODING)
        name = attachment.name
        if not (name or attachment.is_part) and decoded(text) is not None:
            name = default_name(self.found)  # otherwise the text would be taken for base64 itself
        words = named(name, text)
        return MediaPlacement(Route.TEXT, self.found, words=words, byte_count=len(self.content))

    def _unless_unknown(self, claimed: Modality, why: OmissionReason) -> MediaPlacement:
        """A broken content is reported in its place; a part stays for the upstream if nobody states that it is not
        read."""
        if self.attachment.is_part and not self.attachment.is_fetched and self.routes.reads(claimed) is None:
            return MediaPlacement(Route.UNKNOWN, self.found)
        if why is OmissionReason.BROKEN:
            self.content = self.attachment.payload.encode("utf-8", "surrogatepass")
            self.is_encoded = True
            self.found = known(plain_mime(self.attachment.declared)) or MediaType("", kind_claimed(claimed), "")
        return self._described(why)

    def _unknown(self, claimed: Modality) -> MediaPlacement:
        """A part of unknown readability: the upstream decides, with the content in it."""
        if not self.attachment.is_fetched:
            return MediaPlacement(Route.UNKNOWN, self.found)
        return self._shown(self._candidates(claimed)[0][1]) if self.can_hold else self._described(OmissionReason.PLACE)

    def _described(self, why: OmissionReason, limit: int = 0) -> MediaPlacement:
        suffix = "txt" if self.is_encoded else self.found.suffix
        artifact = Artifact(self.content, self.tool, suffix) if self.content else None
        described = Described(self.found, why, self.attachment.name, len(self.content), self.pixels, limit=limit)
        words = description(described, artifact, self.notices)
        return MediaPlacement(Route.DESCRIPTION, self.found, None, words, artifact, len(self.content), why.value)

    def _shown(self, route: Route) -> MediaPlacement:
        """The part that the model reads; the original one if it is right."""
        found = self.found
        if self._is_as_written(route):
            return MediaPlacement(route, found, byte_count=len(self.content))
        name = self.attachment.name or default_name(found)
        part = Shown(route, found, self.content, "", name, self.part, self.attachment.is_fetched)
        # The agent has only the address of an image that was fetched, and may want to put the file somewhere.
        is_kept = self.attachment.is_fetched and self.notices.kept and self.notices.way.folder is not None
        artifact = Artifact(self.content, FETCHED, found.suffix) if is_kept and route is Route.IMAGE else None
        return MediaPlacement(route, found, part, "", artifact, len(self.content))

    def _is_as_written(self, route: Route) -> bool:
        attachment = self.attachment
        if attachment.shape not in SHAPES or SHAPES[attachment.shape][1] is not route:
            return False
        is_right = self.found.kind is ContentKind.OTHER or plain_mime(attachment.declared) == self.found.mime
        return is_right and (attachment.is_data_url or route is Route.AUDIO)
