"""Messages of the Responses API, of one item each unless a model's items belong together. Reasoning, words and calls of
one reply do.

Rule: a view keeps the bytes that it was made from, including anything that it does not understand; several items have
commas between them, as in the body. An item is parsed when its content is needed, and the result is not kept. The
model's words and actions in one go are one message, because the API refuses its reasoning and its calls without each
other; a call and its outputs are one tool exchange, wherever the outputs are. Reading can resume after every message
whose `may_continue` is false: nothing is unfinished there.

The pairs, and the errors for broken ones: github.com/openai/openai-agents-python/pull/3207 (reasoning belongs to the
next item that is not reasoning), vercel/ai#7099, continuedev/continue#12620, openai/codex#620.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self, cast

from msgspec.structs import replace

from proxy.core.conversation import (
    SYSTEM_ROLES,
    Address,
    Argument,
    Attachment,
    Content,
    ImageView,
    Message,
    Parts,
    Route,
    Shape,
    Shown,
    Words,
)
from proxy.core.notices import HISTORY, Language, say
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.json_messages import ROLES, JsonMessage
from proxy.wire.media import attachment_of, may_hold_media
from proxy.wire.responses.items import (
    FOUND_TOOLS,
    LOCAL_SHELL,
    Head,
    Kind,
    call_of,
    has_foreign_id,
    head_of,
    is_sealed,
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
    kept = {name: value for name, value in old.items() if is_like and name not in _HELD and value is not None}
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
_NAMED: Final = frozenset({None, "message", "reasoning", *_ARGUMENTS})
"""Items whose ids only name them."""


def may_hold_images(raw: bytes) -> bool:
    """Images are found by the name of the part or item that contains one."""
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
    may_continue: bool = False
    """Whether later items may belong to it, or decide how it is read."""

    @classmethod
    def of(cls, raws: Sequence[Raw], heads: Sequence[Head], **members: Any) -> Self:
        """A view of items that belong together."""
        head, kind = heads[0], heads[-1].kind
        raw = b",".join(raws) if len(raws) > 1 else bytes(raws[0])
        if head.is_own:
            calls = tuple([call_of(one) for one in heads if one.kind is Kind.CALL])
            return cls(raw, "assistant", "", "", calls, kind, **members)
        if head.kind is Kind.OUTPUT:
            stays = members.pop("must_stay", False) or head.type == FOUND_TOOLS
            return cls(raw, "tool", head.id, head.name, (), kind, must_stay=stays, **members)
        if head.kind in _STAYING:
            members["must_stay"] = True
        if head.kind is Kind.OTHER:
            members["is_companion"] = True
        return cls(raw, _role_of(head), "", "", (), kind, **members)

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

    def opened(self) -> Sequence[Any]:
        """Its items, opened."""
        if self.role == "tool":
            return [jsontext.opened(self.raw)]
        return cast(Sequence[Any], jsontext.value(b"[" + self.raw + b"]"))

    def text(self) -> str:
        """Everything in it that a model reads as text, joined."""
        found: list[str] = []
        for position, item in enumerate(self.opened()):
            texts = read_texts(item)
            found += [bytes(self.items()[position]).decode("utf-8", "replace")] if texts is None else texts
        return "\n".join(found)

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of its content; none of the model's actions on the server."""
        for position, item in enumerate(self.opened()):
            yield from texts_at(item, (position,))

    def arguments(self) -> Iterator[Argument]:
        """The arguments of each call of a function or a custom tool, as the model wrote them."""
        for position, item in enumerate(self.opened() if self.calls else ()):
            name = _ARGUMENTS.get(str(item.get("type"))) if isinstance(item, dict) else None
            if name is not None and isinstance(text := item.get(name), str):
                yield Argument((position, name), str(item.get("call_id") or ""), text)

    def content_at(self) -> tuple[Path, Raw] | None:
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
        return [medium for item in self.opened() for medium in media_in(item)]

    @property
    def item_count(self) -> int:
        """How many items it is."""
        return len(self.items())

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
        return self.spliced({cast(Path, at): self._replacement(cast(Path, at), new) for at, new in changes.items()})

    def spliced(self, changes: Mapping[Path, bytes | None]) -> Self:
        return replace(self, raw=jsontext.spliced(b"[" + self.raw + b"]", changes)[1:-1]) if changes else self

    def _replacement(self, at: Path, new: Content) -> bytes | None:
        content = self.content_at() if isinstance(new, Parts) else None
        made = self.replacement(new, in_text=content is not None and bytes(content[1])[:1] == b'"')
        is_item = made is not None and made[:1] == b"[" and len(at) == 1  # replaces an item that was a plain text
        return self.made(self.role, made) if made is not None and is_item else made

    def unsealed(self, language: str = "en") -> Self | None:
        """The message without its encrypted reasoning; plain-text reasoning of open models stays. A note stands for a
        compaction, which is encrypted, too."""
        if self.kind is Kind.COMPACTION and self.raw.find(b'"encrypted_content"') >= 0:
            return self.read(self.made("user", jsontext.dump(say(HISTORY, "compacted", cast(Language, language)))))
        if self.role != "assistant" or self.raw.find(b'"encrypted_content"') < 0:
            return self
        raws = self.items()
        left = [raw for raw in raws if not is_sealed(jsontext.opened(raw))]
        if len(left) == len(raws):
            return self
        return replace(self, raw=b",".join(left), kind=head_of(left[-1]).kind) if left else None

    def ids(self) -> Iterator[tuple[Path, str]]:
        for position, raw in enumerate(self.items() if self.calls or self.answers else ()):
            head = head_of(raw)
            if head.kind in (Kind.CALL, Kind.OUTPUT):
                yield (position, "call_id"), head.id

    def with_ids(self, ids: Sequence[str], most: int = 0) -> Self:
        """Ids of items that are too long for the same limit, or of another API, are left out: a client need not send
        any. https://platform.openai.com/docs/api-reference/responses/create"""
        found = super().with_ids(ids)
        opened = found.opened() if most and self.raw.find(b'"id"') >= 0 else ()
        return found.spliced({(at, "id"): None for at, item in enumerate(opened) if has_foreign_id(item, most)})

    def without_names(self) -> Self | None:
        items = self.opened()
        changes: dict[Path, bytes | None] = {(at,): None for at, item in enumerate(items) if _is_only_named(item)}
        left = [at for at in range(len(items)) if (at,) not in changes]
        changes |= {(at, "id"): None for at in left if "id" in items[at] and items[at].get("type") in _NAMED}
        if not changes or not left:
            return self if left else None
        found = self.spliced(changes)
        return replace(found, kind=head_of(found.items()[-1]).kind)


def _is_only_named(item: Mapping[str, Any]) -> bool:
    """Whether it is a reference, or reasoning whose text only a server has that holds it."""
    is_held = item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
    return is_held or item.get("type") == "item_reference"


def _role_of(head: Head) -> str:
    match head.kind:
        case Kind.MESSAGE:
            return ROLES.get(head.role, head.role)
        case Kind.REFERENCE | Kind.COMPACTION:
            return "reference"
    return "item"


def _items(raw: bytes) -> Sequence[Raw]:
    return jsontext.items(b"[" + raw + b"]")


# Which items belong together

Read = list[tuple[Message, int]]
_UNNAMED: Final = 10**12


class Batch(NamedTuple):
    """A call up to its last output, together with all calls and outputs that overlap; indexes of items."""

    first: int
    last: int
    is_mixed: bool
    """Whether it contains other items, such as a user's words, which may not be left out with it."""


def read_items(items: Sequence[Raw]) -> Read:
    """The messages of a list of items, each with the number of items read up to its end."""
    heads = _by_call([head_of(raw) for raw in items])
    batches, unanswered = _batches(heads)
    coming = iter([*batches, Batch(_UNNAMED, _UNNAMED, False)])
    batch = next(coming)
    found: Read = []
    start = 0
    while start < len(heads):
        is_own = heads[start].is_own
        stop = _end_of_own(heads, start) if is_own else start + 1
        while batch.last < start:
            batch = next(coming)
        message = ResponsesMessage.of(
            items[start:stop],
            heads[start:stop],
            is_companion=is_own and batch.first < start,
            must_stay=batch.is_mixed and batch.first < stop,
            may_continue=is_own or unanswered < stop,
        )
        found.append((message, stop))
        start = stop
    return found


def read_held(items: Sequence[Raw]) -> Read:
    """The messages if the upstream holds the earlier ones. These may contain the calls that new outputs answer, so
    nothing may be left out: the new messages are one exchange."""
    read = read_items(items)
    messages = as_one_exchange([message for message, _ in read])
    return [(message, stop) for message, (_, stop) in zip(messages, read, strict=True)]


def as_one_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, of which none may be left out alone."""
    found: list[Message] = []
    is_begun = False
    for message in messages:
        assert isinstance(message, ResponsesMessage)
        is_same = message.is_companion == is_begun and not message.must_stay
        found.append(message if is_same else replace(message, is_companion=is_begun, must_stay=False))
        is_begun = is_begun or message.role not in SYSTEM_ROLES
    return found


def _by_call(heads: list[Head]) -> list[Head]:
    """The heads with the call id in each output that names a local shell call by its item's id."""
    named = {head.item_id: head.id for head in heads if head.type == LOCAL_SHELL and head.item_id}
    if not named:
        return heads
    return [replace(head, id=named.get(head.id, head.id)) if head.kind is Kind.OUTPUT else head for head in heads]


def _batches(heads: Sequence[Head]) -> tuple[list[Batch], int]:
    """The batches, in order, and the index of the first call that no output answers."""
    spans: list[list[int]] = []
    newest: dict[str, list[int]] = {}
    for index, head in enumerate(heads):
        if head.kind is Kind.CALL and head.id:
            newest[head.id] = [index, _UNNAMED]  # some servers use the same id for calls in several turns
            spans.append(newest[head.id])
        elif head.kind is Kind.OUTPUT and head.id in newest:
            newest[head.id][1] = index
    unanswered = next((first for first, last in spans if last == _UNNAMED), _UNNAMED)
    ranges: list[tuple[int, int]] = []
    for first, last in spans:
        if last == _UNNAMED:
            continue
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    others = [index for index, head in enumerate(heads) if _is_anothers(head)] if ranges else []
    mixed = [bisect_left(others, first) < bisect_left(others, last) for first, last in ranges]
    return [Batch(*where, is_mixed) for where, is_mixed in zip(ranges, mixed, strict=True)], unanswered


def _is_anothers(head: Head) -> bool:
    """Whether an item in a batch is of a known kind, but neither the model's nor an output."""
    return not head.is_own and head.kind not in (Kind.OUTPUT, Kind.OTHER)


def _end_of_own(heads: Sequence[Head], start: int) -> int:
    """The index after the last item of the model's message that begins at `start`."""
    has_call, has_thought = False, False
    for stop in range(start + 1, len(heads)):
        head, following = heads[stop - 1], heads[stop]
        has_call = has_call or (head.kind is Kind.CALL and bool(head.id))
        has_thought = has_thought or head.kind is Kind.REASONING
        if not following.is_own:
            # The reasoning may belong to this item of an unknown kind.
            if head.kind is Kind.REASONING and following.kind is Kind.OTHER and following.type:
                continue
            return stop
        if has_call:
            continue
        is_next_thought = following.kind is Kind.REASONING and head.kind is not Kind.REASONING
        stands_alone = not has_thought and (Kind.DONE in (head.kind, following.kind) or head.kind is following.kind)
        if is_next_thought or stands_alone:
            return stop
    return len(heads)
