"""Messages of Ollama's API: a text with images beside it, calls whose arguments are objects.

Rule: results are paired with calls as the server's templates read them: in their order, unless an id or a tool's name
says otherwise. Most clients drop the ids, and some send ids that no call has.

https://docs.ollama.com/api/chat, and `Message` in https://github.com/ollama/ollama/blob/main/api/types.go
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, Self, cast

import msgspec

from proxy.core.content_types import media_type
from proxy.core.conversation import (
    TOOL_ROLES,
    Address,
    Argument,
    Attachment,
    Carried,
    Content,
    ImageView,
    Item,
    Message,
    Part,
    Parts,
    Reasoning,
    Route,
    Shape,
    Shown,
    ToolCall,
    paired_by_order,
)
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.json_messages import JsonMessage, Reader
from proxy.wire.media import may_hold_media

_CONTENT: Final[Path] = ("content",)
_IMAGES: Final[Path] = ("images",)
_THINKING: Final[Path] = ("thinking",)
_CALLS: Final = "tool_calls"
_SIGN_OF_IMAGES: Final = re.compile(rb'"images"\s*:\s*\[\s*"')
"""Some clients send an empty list with every message."""
_IMAGE: Final = b"["
"""First byte of an image among the parts of a message: a list with its base64, so that it is not a text."""
_PLACE: Final = "#"
"""Begins the id of a call that has none: its place among the calls of its message."""
_SIZED_CHARACTERS: Final = 87_384
"""Base64 of the first 64 KiB of an image, which hold its type and its size."""
_TYPED_CHARACTERS: Final = 400


class _Head(msgspec.Struct, gc=False):
    """A message's head, read in one go if every member is of the usual type."""

    role: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_calls: msgspec.Raw = msgspec.Raw()
    thinking: msgspec.Raw = msgspec.Raw()


class _Inside(msgspec.Struct, gc=False):
    """The parts of a message that a model reads."""

    content: Any = None
    thinking: Any = None
    tool_calls: Any = None


_head: Final = Reader(_Head)
_inside: Final = Reader(_Inside)


def may_hold_images(raw: bytes) -> bool:
    """Whether a body, or a piece of one, may contain an image."""
    return raw.find(b'"images"') >= 0 and _SIGN_OF_IMAGES.search(raw) is not None


class OllamaMessage(JsonMessage, frozen=True):
    """One message; the core's `Message` describes the members."""

    is_companion: ClassVar[bool] = False
    must_stay: ClassVar[bool] = False
    is_marked: ClassVar[bool] = False
    cites: str = ""
    """The id of a call, as its client wrote it."""
    reasoning_bytes: int = 0
    is_open: bool = False
    """Whether it is a result of which no call is known."""

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """A view of any JSON value; a value that is no object has no role."""
        kept = bytes(raw)
        head = _head(kept)
        calls = calls_in(head.tool_calls) if head.tool_calls else ()
        role = head.role.lower()
        is_result = role in TOOL_ROLES
        return cls(kept, role, "", head.tool_name, calls, head.tool_call_id, len(head.thinking), is_result)

    def again(self, raw: bytes) -> Self:
        """The pairs stay: calls are known by their places before the proxy put its own among them."""
        made = self.read(raw)
        if made.is_open:
            answers = self.answers if self.role == made.role else ""
            return msgspec.structs.replace(made, answers=answers, is_open=not answers)
        return msgspec.structs.replace(made, calls=self.calls) if len(made.calls) == len(self.calls) else made

    def content_at(self) -> tuple[Path, Raw]:
        return _CONTENT, self.members().get("content", b"null")

    def text(self) -> str:
        """Everything in it that a model reads as text."""
        inside = _inside(self.raw)
        if isinstance(inside.content, str) and not (inside.thinking or inside.tool_calls):
            return inside.content
        texts = [text for text in (inside.content, inside.thinking) if isinstance(text, str)]
        for _, function in _functions(inside.tool_calls):
            texts += [jsontext.string_in(function, "name"), _as_text(function.get("arguments"))]
        return "\n".join(texts)

    def texts(self) -> Iterator[tuple[Address, str]]:
        content = jsontext.opened(self.content_at()[1])
        if isinstance(content, str):
            yield _CONTENT, content

    def arguments(self) -> Iterator[Argument]:
        """The arguments of each call, as JSON."""
        for position, function in _functions(jsontext.opened(self.members().get(_CALLS)) if self.calls else None):
            if isinstance(written := function.get("arguments"), str | dict):
                at = (_CALLS, position, "function", "arguments")
                yield Argument(at, self.calls[position].id, _as_text(written))

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        if isinstance(text := jsontext.opened(self.members().get("thinking")), str):
            yield _THINKING, text

    def reasoning(self) -> Iterator[Reasoning]:
        for at, text in self.thoughts():
            yield Reasoning(at, bytes(self.members()["thinking"]), text)

    def _images(self) -> Sequence[Raw]:
        return jsontext.items_if_any(self.members().get("images")) if may_hold_images(self.raw) else ()

    def parts(self) -> tuple[Address, Sequence[Part]] | None:
        """Its content, and its images."""
        raw = self.content_at()[1]
        content = jsontext.opened(raw)
        if content is not None and not isinstance(content, str):
            return None
        images = [_image_part(image) for image in self._images()]
        texts = [Part(bytes(raw), content)] if content or (content is not None and not images) else []
        return _CONTENT, (*texts, *images)

    def media(self) -> Sequence[ImageView | None]:
        return [ImageView(f"data:;base64,{_base64_in(raw, _SIZED_CHARACTERS)}", None) for raw in self._images()]

    @property
    def images(self) -> int:
        return len(self._images())

    @property
    def may_hold_media(self) -> bool:
        """Whether it has images, or a text that may hold some."""
        return may_hold_images(self.raw) or may_hold_media(self.raw)

    def can_hold(self, shown: Shown) -> bool:
        """Whether it is an image whose bytes are here: the server fetches none."""
        return shown.route is Route.IMAGE and bool(shown.content)

    def images_among(self, items: Sequence[Item]) -> int:
        """How many of these parts are images."""
        return sum(isinstance(item, Shown) or (isinstance(item, Carried) and item.raw[:1] == _IMAGE) for item in items)

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes. New parts of the content are its text and its images."""
        found: dict[Path, bytes | None] = {}
        objects = {one.at for one in self.arguments()} if self.calls else set()
        for at, new in changes.items():
            path = cast(Path, at)
            if isinstance(new, Parts):
                found |= {(name,): raw for name, raw in _members_of(new.items).items()}
                if _IMAGES not in found and "images" in self.members():
                    found[_IMAGES] = None
            elif path in objects:
                found[path] = jsontext.dump_object(cast(str, new))
            else:
                found[path] = None if new is None else jsontext.dump(new)
        return self.again(jsontext.spliced(self.raw, found))

    def beside(self, role: str, items: Sequence[Item] | str) -> Self:
        """Another message with this content."""
        made = {"content": jsontext.dump(items)} if isinstance(items, str) else _members_of(items)
        return self.read(jsontext.join_object({"role": jsontext.dump(role), **made}))

    def ids(self) -> Iterator[tuple[Path, str]]:
        head = _head(self.raw)
        if head.tool_call_id:
            yield ("tool_call_id",), head.tool_call_id
        for position, call in enumerate(calls_in(head.tool_calls) if self.calls else ()):
            if not call.id.startswith(_PLACE):
                yield (_CALLS, position, "id"), call.id

    def with_ids(self, ids: Sequence[str], most: int = 0) -> Self:  # noqa: ARG002 - as the base says
        """The pairs stay those of the ids as they came."""
        found = zip(self.ids(), ids, strict=True)
        return self.spliced({at: jsontext.dump(new) for (at, old), new in found if new != old})

    def unsealed(self, _: str = "en") -> Self | None:
        """No reasoning is sealed."""
        return self


def calls_in(raw: Raw) -> tuple[ToolCall, ...]:
    """The calls in a list of calls, by their ids if all have one, or by their places.

    >>> [call.id for call in calls_in(b'[{"id":"a","function":{"name":"ls"}},{"function":{"name":"cat"}}]')]
    ['#0', '#1']
    """
    found = jsontext.listed(jsontext.opened(raw))
    ids = [jsontext.string_in(call, "id") for call in found]
    if len({*ids} - {""}) < len(ids):
        ids = [f"{_PLACE}{position}" for position in range(len(ids))]
    return tuple(
        ToolCall(one, jsontext.string_in(jsontext.object_in(call, "function"), "name"))
        for one, call in zip(ids, found, strict=True)
    )


def id_of(call_id: str) -> str:
    """The id of a call as its API knows it; empty if it has none."""
    return "" if call_id.startswith(_PLACE) else call_id


def paired(messages: Iterable[Message]) -> Sequence[Message]:
    """The messages, each result with the call that it answers."""
    found = cast(Sequence[OllamaMessage], tuple(messages))
    if not any(map(_IS_OPEN, found)):
        return found
    return tuple(paired_by_order(found, _answering, lambda result: result.cites))


def _answering(result: OllamaMessage, call_id: str) -> OllamaMessage:
    return msgspec.structs.replace(result, answers=call_id, is_open=not call_id)


_IS_OPEN: Final = attrgetter("is_open")
"""Asked of every message in every turn."""


def _functions(calls: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The place and the function of each call."""
    for position, call in enumerate(jsontext.listed(calls)):
        if function := jsontext.object_in(call, "function"):
            yield position, function


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else jsontext.dump(arguments).decode("utf-8", "replace")


def _base64_in(raw: Raw, characters: int) -> str:
    """The beginning of an image."""
    return bytes(memoryview(raw)[1 : characters + 1]).decode("ascii", "replace").rstrip('"')


def _image_part(raw: Raw) -> Part:
    """An image. Its type is not stated, so it is read from its first bytes."""
    payload = jsontext.opened(raw)
    if not isinstance(payload, str):
        return Part(jsontext.join_array([raw]))
    try:
        head = base64.b64decode(payload[:_TYPED_CHARACTERS])
    except ValueError:
        head = b""
    attachment = Attachment(Shape.IMAGE, payload, media_type(head).mime if head else "", is_data_url=True)
    return Part(jsontext.join_array([raw]), attachment=attachment)


def _members_of(items: Sequence[Item]) -> dict[str, bytes]:
    """`content` and `images` of a message that consists of these parts."""
    texts: list[str] = []
    images: list[bytes] = []
    for item in items:
        if isinstance(item, Shown):
            images.append(jsontext.dump(base64.b64encode(item.content or b"").decode()))
        elif not isinstance(item, Carried):
            texts.append(item.text)
        elif item.raw[:1] == _IMAGE:
            images.append(item.raw[1:-1])
        else:
            texts.append(jsontext.value(item.raw))
    made = {"content": jsontext.dump("\n".join(texts))}
    return made | ({"images": jsontext.join_array(images)} if images else {})
