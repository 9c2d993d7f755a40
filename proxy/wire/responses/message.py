"""Messages of the Responses API: one item each, except that the model's items that belong together (its reasoning,
words and calls) are one message.

Rule: a view keeps the bytes that it was made from, including anything that it does not understand; several items have
commas between them, as in the body. An item is parsed when its content is needed, and the result is not kept.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, cast

from msgspec.structs import replace

from proxy.core.conversation.message import (
    Address,
    Argument,
    Attachment,
    Content,
    ImageView,
    Parts,
    Route,
    Shape,
    Shown,
    Words,
)
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, Raw, spliced
from proxy.wire.json_messages import MAX_CALLS, ROLES, JsonMessage
from proxy.wire.media import attachment_of, may_hold_media
from proxy.wire.responses.items import (
    ADDITIONAL_TOOLS,
    FOUND_TOOLS,
    Head,
    Kind,
    call_of,
    head_of,
    is_sealed,
    meant_by,
    media_in,
    read_texts,
    said_at,
    texts_at,
)

# Parts with media

_HELD: Final = ("image_url", "file_data", "file_url", "file_id")
"""Members with the content or its address."""
_KINDS: Final = {Route.IMAGE: "input_image", Route.FILE: "input_file"}
_OTHER_MEMBERS: Final = {Route.AUDIO_ADDRESS: "audio_url", Route.VIDEO: "video_url"}
"""The API has no parts for these; servers that accept them use the parts of chat completions."""


def content_of(part: Mapping[str, Any]) -> Attachment | None:
    """The content of a media part; None for text, and for a part that cannot be read."""
    if part.get("type") == "input_image" and not isinstance(part.get("image_url"), str):
        named = jsontext.string_in(part, "file_id")
        return Attachment(Shape.IMAGE, address=named) if named else None
    return attachment_of(part)


def part_of(shown: Shown) -> dict[str, Any]:
    """A part in this API's shape."""
    old, kind = jsontext.opened_object(shown.like), _KINDS.get(shown.route)
    is_like = kind is not None and old.get("type") == kind
    kept = {name: said for name, said in old.items() if is_like and name not in _HELD and said is not None}
    encoded = "" if shown.content is None else base64.b64encode(shown.content).decode()
    url = shown.address if shown.content is None else f"data:{shown.found.mime};base64,{encoded}"
    match shown.route:
        case Route.IMAGE:
            return {"type": "input_image", "detail": "auto"} | kept | {"image_url": url}
        case Route.AUDIO:
            return {"type": "input_audio", "input_audio": {"data": encoded, "format": shown.found.suffix}}
        case Route.FILE:
            return {"type": "input_file", "filename": shown.name} | kept | {"file_data": url}
        case route:
            member = _OTHER_MEMBERS[route]
            return {"type": member, member: {"url": url}}


# Messages

_STAYING: Final = frozenset({Kind.REFERENCE, Kind.COMPACTION, Kind.LISTED, Kind.TOOLS})
_PLAIN_TYPES: Final = re.compile(
    rb'"type"\s*:\s*"(?!text"|message"|input_text"|output_text"|summary_text"|reasoning|function|custom_tool_call'
    rb'|shell_call|local_shell_call|exit"|refusal")'
)
"""Anything with another type may be, or contain, media."""
_MEDIA: Final = re.compile(rb'"(?:input_(?:image|file|audio)|computer_screenshot|image|image_generation_call)"')
_IMAGE: Final = re.compile(rb'"(?:input_image|computer_screenshot|image|image_generation_call)"')
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input"}


def may_hold_images(raw: bytes) -> bool:
    """By the name of the part or item that contains one."""
    return _IMAGE.search(raw) is not None


class ResponsesMessage(JsonMessage, frozen=True):
    """One message; the core's `Message` describes the members."""

    is_marked: ClassVar[bool] = False
    reasoning_bytes: ClassVar[int] = 0
    """No reasoning may be left out: it is sealed, or belongs to the item after it."""
    image_sign: ClassVar[bytes] = b'"input_image"'
    named: ClassVar[Mapping[str, Raw]] = {"type": b'"message"'}
    attachment_of = staticmethod(content_of)
    media_part = staticmethod(part_of)
    kind: Kind = Kind.OTHER
    """The kind of its last item."""
    is_companion: bool = False
    must_stay: bool = False
    goes_on: bool = False
    """Whether later items may belong to it, or decide how it is read."""

    @classmethod
    def of(cls, raws: Sequence[Raw], heads: Sequence[Head], **said: Any) -> Self:
        """A view of items that belong together."""
        head, kind = heads[0], heads[-1].kind
        raw = b",".join(raws) if len(raws) > 1 else bytes(raws[0])
        if head.is_own:
            calls = tuple([call_of(one) for one in heads if one.kind is Kind.CALL])
            return cls(raw, "assistant", "", "", calls, kind, **said)
        if head.kind is Kind.OUTPUT:
            stays = said.pop("must_stay", False) or head.type == FOUND_TOOLS
            return cls(raw, "tool", head.id, head.name, (), kind, must_stay=stays, **said)
        if head.kind in _STAYING:
            said["must_stay"] = True
        if head.kind is Kind.OTHER:
            said["is_companion"] = True
        return cls(raw, _role_of(head), "", "", (), kind, **said)

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """A view of one message, or of items with commas between them."""
        raws = _items(bytes(raw))
        return cls.of(raws, [head_of(one) for one in raws])

    @staticmethod
    def text_part(words: Words, role: str) -> Mapping[str, Any]:
        """The model's words have parts of their own."""
        if role == "assistant":
            return {"type": "output_text", "text": words.text, "annotations": []}
        return {"type": "input_text", "text": words.text}

    def items(self) -> Sequence[Raw]:
        """Its items, unopened."""
        return (self.raw,) if self.role == "tool" else _items(self.raw)

    def _opened(self) -> Sequence[Any]:
        """Its items, opened."""
        if self.role == "tool":
            return (jsontext.opened(self.raw),)
        return cast(Sequence[Any], jsontext.value(b"[" + self.raw + b"]"))

    def text(self) -> str:
        """Everything in it that a model reads as text, joined."""
        found: list[str] = []
        for position, item in enumerate(self._opened()):
            texts = read_texts(item)
            found += [bytes(self.items()[position]).decode("utf-8", "replace")] if texts is None else texts
        return "\n".join(found)

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of its content; none of the model's actions on the server."""
        for position, item in enumerate(self._opened()):
            yield from texts_at(item, (position,))

    def arguments(self) -> Iterator[Argument]:
        """The arguments of each call of a function or a custom tool, as the model wrote them."""
        for position, item in enumerate(self._opened() if self.calls else ()):
            name = _ARGUMENTS.get(str(item.get("type"))) if isinstance(item, dict) else None
            if name is not None and isinstance(text := item.get(name), str):
                yield Argument((position, name), str(item.get("call_id") or ""), text)

    def said(self) -> tuple[Path, Raw] | None:
        """The path and the JSON of its one content; None if there are several, or one of another shape."""
        found: tuple[Path, Raw] | None = None
        for position, raw in enumerate(self.items()):
            if bytes(raw)[:1] == b'"':
                return (position,), raw
            name = said_at(jsontext.opened(raw))
            if name is not None:
                if found is not None:
                    return None
                found = (position, name), jsontext.members(raw).get(name, b"null")
        return found

    def media(self) -> Sequence[ImageView | None]:
        """Images, files and audio in it."""
        if _MEDIA.search(self.raw) is None:
            return ()
        return [medium for item in self._opened() for medium in media_in(item)]

    @property
    def images(self) -> int:
        """How many of those media are images."""
        return sum(medium is not None for medium in self.media())

    @property
    def may_hold_media(self) -> bool:
        """Whether it may contain media, judged by its bytes."""
        return may_hold_media(self.raw, _PLAIN_TYPES)

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes; everything else keeps its bytes."""
        listed = b"[" + self.raw + b"]"
        found = {cast(Path, at): self._replacement(cast(Path, at), new) for at, new in changes.items()}
        return replace(self, raw=spliced(listed, found)[1:-1])

    def _replacement(self, at: Path, new: Content) -> bytes | None:
        said = self.said() if isinstance(new, Parts) else None
        made = self.replacement(new, in_text=said is not None and bytes(said[1])[:1] == b'"')
        is_item = made is not None and made[:1] == b"[" and len(at) == 1  # replaces an item that was a plain text
        return self.made(self.role, made) if made is not None and is_item else made

    def unsealed(self) -> Self | None:
        """Without its encrypted reasoning; reasoning in plain text, of open models, stays."""
        if self.role != "assistant" or b'"encrypted_content"' not in self.raw:
            return self
        raws = self.items()
        left = [raw for raw in raws if not is_sealed(jsontext.opened(raw))]
        if len(left) == len(raws):
            return self
        return replace(self, raw=b",".join(left), kind=head_of(left[-1]).kind) if left else None

    def conversational(self) -> Any:
        """Its calls by their meaning, or otherwise its words."""
        if self.calls:
            calls = [jsontext.opened(raw) for raw in self.items() if head_of(raw).kind is Kind.CALL]
            return [meant_by(call) for call in calls[:MAX_CALLS]]
        return "\n".join(text for _, text in self.texts()).strip()

    def with_calls(self, calls: Mapping[int, bytes]) -> Self:
        """The message with these calls at these positions among its own, each right before the call that followed
        it."""
        found = list(self.items())
        for position, call in sorted(calls.items()):
            places = [index for index, raw in enumerate(found) if head_of(raw).kind is Kind.CALL]
            found.insert(places[position] if position < len(places) else len(found), call)
        heads = [head_of(raw) for raw in found]
        return replace(self, raw=b",".join(found), calls=tuple(call_of(h) for h in heads if h.kind is Kind.CALL))


def _role_of(head: Head) -> str:
    match head.kind:
        case Kind.MESSAGE:
            return ROLES.get(head.role, head.role)
        case Kind.REFERENCE | Kind.COMPACTION:
            return "reference"
    return "item"


def brings_tools(message: ResponsesMessage) -> bool:
    """Whether it adds tools to those of the request."""
    return message.kind is Kind.TOOLS and head_of(message.raw).type == ADDITIONAL_TOOLS


def _items(raw: bytes) -> Sequence[Raw]:
    return jsontext.items(b"[" + raw + b"]")
