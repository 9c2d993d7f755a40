"""Routes media to where the model can read them, or describes them.

Rule: a local step. The same content, role and capability give the same route, and nothing here raises. Content that was
sent as media stays byte for byte if it is unknown whether the model reads it; binary inside a text never does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field, structs

from proxy.core.artifact import Artifact
from proxy.core.conversation import (
    TOOL_ROLES,
    Address,
    Attachment,
    Carried,
    Edit,
    Item,
    Message,
    Moved,
    Part,
    Parts,
    Reason,
    Replacement,
    Resolved,
    RoutedMedia,
    Shape,
    Unfetched,
    Words,
    references_in,
)
from proxy.core.media.descriptions import fetched_here, label, named_file, shown
from proxy.core.media.placement import MediaPlacement, Routes, modality_claimed, not_here, place, unheld
from proxy.core.models import Modality, ToolImages
from proxy.core.notices import MEDIA, Notices, say
from proxy.core.retrieval_tool import is_page
from proxy.core.text import Discreet

MAX_SHOWN: Final = 32
"""Contents of one message that are shown although they were not sent as media: a page has hundreds of icons."""
MAX_REPLACED: Final = 1_000
"""Contents of one message that are replaced by texts. The rest stays, because the texts would be longer than it."""
_ROLES: Final = frozenset({"user", "assistant", *TOOL_ROLES})
"""System and developer texts are never changed."""


class RouteMedia(Discreet, frozen=True):
    """How media are routed for one model."""

    routes: Routes
    tool_images: ToolImages = ToolImages.USER_AFTER_BATCH
    resolved: Resolved = field(default_factory=dict)
    """Content from elsewhere, as far as it was looked up."""
    in_place: bool = False
    """Whether nothing may be moved into another message: what a result shows already stays there, and what a text of it
    holds is described."""

    def __call__(self, index: int, message: Message, tool: str, notices: Notices) -> Iterator[Edit]:
        """One edit for each content that is routed; all of them make the same change to the message's content."""
        if message.role not in _ROLES or not message.may_hold_media or is_page(message, tool):
            return
        target = self._target(message)
        routes = structs.replace(self.routes, is_strict=self.routes.is_strict or target is ToolImages.TEXT)
        work = _Work(routes, self._resolved_for(message), message, tool, notices, target)
        found = work.content()
        if found is None:
            return
        at, content = found
        moved = work.moved()
        for number, (media, artifact) in enumerate(work.done):
            yield Edit(
                index,
                at,
                content,
                Reason.ROUTE_MEDIA,
                artifact,
                tool,
                moved=moved if number == 0 else None,
                media=media,
            )

    def _target(self, message: Message) -> ToolImages:
        """Where images of this message go."""
        if message.role not in TOOL_ROLES:
            return ToolImages.KEEP
        if not self.in_place or self.tool_images in (ToolImages.KEEP, ToolImages.TEXT):
            return self.tool_images
        return ToolImages.KEEP if message.media() else ToolImages.TEXT

    def _resolved_for(self, message: Message) -> Resolved:
        """Lookups for this message's own references."""
        named = references_in(message) if self.resolved else ()
        return {one.address: self.resolved[one.address] for one in named if one.address in self.resolved}


class _Work(Struct):
    """One message being routed."""

    routes: Routes
    resolved: Resolved
    message: Message
    tool: str
    notices: Notices
    target: ToolImages
    done: list[tuple[RoutedMedia, Artifact | None]] = []
    """Routed media, each with the artifact to be kept of it."""
    shown: int = 0
    images_over: int = 0
    """Number of image parts, from here on, that are over the limit: the newest are shown."""
    behind: list[Item] = []
    """Parts that go after the batch."""

    def content(self) -> tuple[Address, Parts] | None:
        """The new content of the message, and where it goes; None if the message stays as it is."""
        found = self.message.parts()
        if found is None:
            return None
        at, parts = found
        images = [part for part in parts if part.attachment and modality_claimed(part.attachment) is Modality.VISION]
        self.images_over = len(images) - (self.routes.max_images or len(images))
        items = [item for part in parts for item in self._routed_part(part)]
        # An upstream that refuses media often accepts no list of parts at all.
        return (at, Parts(tuple(items), as_text=bool(self.routes.refused))) if self.done else None

    def moved(self) -> Moved | None:
        """The parts that go after the batch."""
        is_answered = self.target is ToolImages.USER_AFTER_ASSISTANT
        words = say(MEDIA, "spoken", self.notices.language) if is_answered else None
        return Moved(tuple(self.behind), words) if self.behind else None

    def _routed_part(self, part: Part) -> list[Item]:
        if part.attachment is not None:
            return self._routed_media(part, part.attachment)
        if part.text is None:
            return [Carried(part.raw)]
        before = len(self.done)
        items = self._text_parts(part.text, part.raw)
        return [Carried(part.raw)] if len(self.done) == before else items

    def _text_parts(self, text: str, like: bytes) -> list[Item]:
        """A text part with texts in place of the contents in it, followed by those contents that are shown here."""
        here: list[Item] = []

        def words_for(attachment: Attachment) -> Replacement | None:
            if len(self.done) >= MAX_REPLACED:
                return None
            placed, name = self._placed(attachment, None)
            if placed.stays:
                return None
            self.done.append((placed.noted, placed.artifact))
            if placed.part is None:
                return Replacement(placed.words)
            self.shown += 1
            if self._goes_behind:
                self._put_behind(placed.part, name)
            else:
                here.append(placed.part)
            return Replacement(self._shown_words(placed, name), is_shown=True)

        return [Words(self.message.with_replaced(text, words_for), like), *here]

    def _routed_media(self, part: Part, attachment: Attachment) -> list[Item]:
        placed, name = self._placed(attachment, part.rest)
        if placed.stays and (not self._goes_behind or attachment.shape is Shape.BLOCK):
            return [Carried(part.raw)]
        self.done.append((placed.noted, placed.artifact))
        if placed.words:
            return [Words(placed.words, instead_of=part.rest)]
        item = Carried(part.raw) if placed.part is None else placed.part
        if not self._goes_behind:
            kept = placed.artifact
            return [item] if kept is None else [Words(fetched_here(name, kept, self.notices)), item]
        self.shown += 1
        self._put_behind(item, name)
        return [Words(self._shown_words(placed, name), instead_of=part.rest)]

    def _shown_words(self, placed: MediaPlacement, name: str) -> str:
        file = named_file(name, placed.artifact, self.notices)
        return shown(placed.found, self.shown, file, behind=self._goes_behind, language=self.notices.language)

    @property
    def _goes_behind(self) -> bool:
        return self.target in (ToolImages.USER_AFTER_BATCH, ToolImages.USER_AFTER_ASSISTANT)

    def _put_behind(self, item: Item, name: str) -> None:
        file = named_file(name, None, self.notices)
        words = label(self.tool, self.message.answers, self.shown, file, self.notices.language)
        self.behind += [Words(words), item]

    def _placed(self, attachment: Attachment, part: bytes | None) -> tuple[MediaPlacement, str]:
        """Where a content goes, and the name of its file."""
        origin = attachment.address
        found = self.resolved.get(origin) if attachment.is_elsewhere else None
        if isinstance(found, Unfetched):
            return not_here(attachment, found, self.notices), ""
        if found is not None:
            attachment = attachment.fetched(found.content, found.declared, found.name)
        can_hold = self.message.role != "assistant" and self.target is not ToolImages.TEXT
        is_too_many = self._is_too_many(attachment)
        placed = place(
            self.routes, attachment, part, self.tool, self.notices, can_hold=can_hold, is_too_many=is_too_many
        )
        if placed.part is not None and not self.message.can_hold(placed.part):
            placed = unheld(self.routes, attachment, part, placed.found, self.tool, self.notices)
        if found is not None and placed.part is not None and origin.startswith("artifact:"):
            placed = structs.replace(placed, artifact=None)  # it is kept already, and its place is known
        return placed, attachment.name

    def _is_too_many(self, attachment: Attachment) -> bool:
        """Whether enough images are shown without this one: the newest parts are, and the first ones of a text."""
        limit = self.routes.max_images
        if limit == 0:
            return True
        if not attachment.is_part:
            return self.shown >= min(MAX_SHOWN, limit or MAX_SHOWN)
        if modality_claimed(attachment) is not Modality.VISION:
            return False
        self.images_over -= 1
        return self.images_over >= 0
