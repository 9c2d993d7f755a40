"""Messages of this API as the core sees them: every tool result is a message of its own. One message of the API may
contain several results, and words besides.

Rule: a view keeps the bytes that it was made from, including anything that it does not understand. Thinking and its
signatures are never changed: "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be
modified". https://platform.claude.com/docs/en/build-with-claude/extended-thinking
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final, Self, cast

import msgspec

from proxy.core.conversation import (
    TOOL_ROLES,
    Address,
    Argument,
    Carried,
    Content,
    ImageView,
    Item,
    Parts,
    Reasoning,
    Route,
    Shown,
    ToolCall,
    Words,
)
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.json_messages import ROLES, JsonMessage, marks_in
from proxy.wire.media import addresses_in, may_hold_media
from proxy.wire.messages.blocks import (
    CALL,
    COMPACTION,
    IMAGE,
    MARK,
    RESULT,
    THINKING,
    attachment_of,
    block_of,
    brings_tools,
    heads_in,
    images_in,
    kind_of,
    mark_in,
    may_bring_tools,
    media_in,
    rest_of,
    role_and_content,
    text_in,
    texts_of,
)

# Blocks

_IMAGE: Final = f'"{IMAGE}"'.encode()
_PDF: Final = "application/pdf"
_MARK: Final = f'"{MARK}"'.encode()


def is_image(item: Item) -> bool:
    """Whether a block is, or will be, an image."""
    if isinstance(item, Shown):
        return item.route is Route.IMAGE
    return isinstance(item, Carried) and _IMAGE in item.raw and kind_of(jsontext.opened(item.raw)) == IMAGE


def markable(raw: bytes) -> bytes:
    """A block, without its cache mark if it is an empty text, which may not have one."""
    block = jsontext.opened(raw) if raw.find(_MARK) >= 0 else None
    if not isinstance(block, dict) or text_in(block) != "":
        return raw
    return jsontext.dump({name: value for name, value in block.items() if name != MARK})


# Messages

_SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})
IGNORED: Final = "ignored"
"""The role of messages that the API does not read."""
REMINDER: Final = "reminder"
"""The role of words beside tool results that no person wrote."""
_THINKING: Final = b'thinking"'
_OTHER_BLOCK: Final = re.compile(
    rb'"type"\s*:\s*"(?!text"|tool_use"|tool_result"|thinking"|redacted_thinking"|ephemeral")'
)
"""Anything with another type may be, or contain, media."""


class Form(IntEnum):
    """Which part of an API message the bytes of a view are."""

    WHOLE = 0
    """A whole message."""
    ALONE = 1
    """A whole message, which contains one result and nothing else."""
    RESULT = 2
    """The block of one result, among other blocks."""
    RUN = 3
    """Several blocks of one message, with the commas between them."""
    IGNORED = 4
    """One or more whole messages that are not parsed."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An API message without the bytes of its views. Neighbouring views with the same frame, in the order of their
    places, are one message."""

    around: tuple[bytes, ...]
    """The bytes before the first view, between the views, and after the last."""


_BEHIND: Final[Mapping[Form, Path]] = {Form.ALONE: ("content",), Form.RESULT: ()}
"""The path of a list in the JSON of a result that something may be added to."""
_RESULT: Final[Mapping[Form, Path]] = {Form.ALONE: ("content", 0), Form.RESULT: ()}
"""The path of the result itself."""
_CONTENT: Final[Mapping[Form, Path]] = {
    Form.WHOLE: ("content",),
    Form.ALONE: ("content", 0, "content"),
    Form.RESULT: ("content",),
    Form.RUN: (),
}
"""The path of the content in the JSON of a view."""


class ApiMessage(JsonMessage, frozen=True):
    """One message; the core's `Message` describes the members."""

    reasoning_bytes: ClassVar[int] = 0
    takes_notes_apart: ClassVar[bool] = True
    """Notes go into an existing message, because a user message of ours must not follow a system message:
    https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages. In a result, the note would
    pass for words of the tool."""
    free_text: ClassVar[str] = ""
    attachment_of = staticmethod(attachment_of)
    media_part = staticmethod(block_of)
    text_of = staticmethod(text_in)
    rest_of = staticmethod(rest_of)
    is_companion: bool = False
    must_stay: bool = False
    is_marked: bool = False
    """Whether its API message contains a cache mark."""
    form: Form = Form.WHOLE
    frame: Frame | None = None
    """The frame of the API message that it is a part of; None if it is a whole one."""
    place: int = 0
    """Its position among the views of that message."""

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """A view of a whole API message, or of any other JSON value. Several results are not split here."""
        raw = bytes(raw)
        role, content = role_and_content(raw)
        role, is_marked = ROLES.get(role, role), raw.find(_MARK) >= 0
        heads = heads_in(content)
        must_stay = may_bring_tools(heads) and brings_tools(raw, jsontext.opened(content))
        if role == "assistant":
            must_stay = must_stay or any(head.type == COMPACTION for head in heads)
            calls = tuple([ToolCall(head.id, head.name) for head in heads if head.type == CALL])
            return cls(raw, role, calls=calls, must_stay=must_stay, is_marked=is_marked)
        if role == "user" and len(heads) == 1 and heads[0].type == RESULT:
            answers = heads[0].tool_use_id
            return cls(raw, "tool", answers, must_stay=must_stay, is_marked=is_marked, form=Form.ALONE)
        return cls(raw, role, must_stay=must_stay, is_marked=is_marked)

    @staticmethod
    def text_part(words: Words, _: str) -> Mapping[str, Any]:
        """A text block, with the cache mark of the media that it replaces."""
        return {"type": "text", "text": words.text, **mark_in(words.instead_of)}

    @property
    def _json(self) -> bytes:
        return b"[" + self.raw + b"]" if self.form is Form.RUN else self.raw

    def opened(self) -> Any:
        return None if self.form is Form.IGNORED else jsontext.opened(self._json)

    def raw_content(self) -> Raw | None:
        """Its content, unopened; None if it has none."""
        return None if self.form is Form.IGNORED else jsontext.found_at(self._json, _CONTENT[self.form])

    def content_at(self) -> tuple[Path, Raw] | None:
        """The place and the JSON of its content."""
        raw = self.raw_content()
        return None if raw is None else (_CONTENT[self.form], raw)

    def content(self) -> Any:
        """Its content, opened: a string, a list of blocks, or any other value."""
        return jsontext.opened(self.raw_content())

    def text(self) -> str:
        """Everything in it that a model reads as text, joined: texts, thinking, calls, results."""
        content = self.content()
        return content if isinstance(content, str) else "\n".join(texts_of(content))

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of its content."""
        if self.form is Form.IGNORED:
            return
        content, at = self.content(), _CONTENT[self.form]
        if isinstance(content, str):
            yield at, content
        for position, block in enumerate(jsontext.listed(content)):
            if (text := text_in(block)) is not None:
                yield (*at, position, "text"), text

    def arguments(self) -> Iterator[Argument]:
        """The input of each call, as JSON."""
        if not self.calls:
            return
        for position, raw in enumerate(jsontext.items(cast(Raw, self.raw_content()))):
            block = jsontext.opened(raw)
            if kind_of(block) == CALL:
                written = bytes(jsontext.members(raw).get("input", b"{}"))
                try:
                    text = written.decode("utf-8", "surrogatepass")
                except UnicodeDecodeError:
                    text = jsontext.dump(block.get("input")).decode("utf-8", "replace")
                yield Argument(("content", position, "input"), str(block.get("id") or ""), text)

    def reasoning(self) -> Iterator[Reasoning]:
        """Its thinking, which a finished turn may lack: "you can omit `thinking` blocks from prior assistant turns". A
        text replaces it. https://platform.claude.com/docs/en/build-with-claude/extended-thinking"""
        if self.role != "assistant" or self.raw.find(_THINKING) < 0:
            return
        content = self.raw_content()
        blocks = jsontext.listed(jsontext.opened(content))
        for position, (raw, block) in enumerate(zip(jsontext.items_if_any(content), blocks, strict=False)):
            if kind_of(block) in THINKING:
                text = block.get("thinking")
                yield Reasoning(("content", position), bytes(raw), text if isinstance(text, str) else None)

    def media(self) -> Sequence[ImageView | None]:
        """The images and files in it."""
        return list(media_in(self.content())) if self.raw.find(b'"source"') >= 0 else ()

    @property
    def images(self) -> int:
        """How many of those media are images."""
        return images_in(self.content()) if self.raw.find(_IMAGE) >= 0 else 0

    def can_hold(self, shown: Shown) -> bool:
        """Whether it is an image, or a PDF: https://docs.claude.com/en/docs/build-with-claude/pdf-support"""
        return shown.route is Route.IMAGE or (shown.route is Route.FILE and shown.found.mime == _PDF)

    def images_among(self, items: Sequence[Item]) -> int:
        """How many of these parts are images."""
        return sum(is_image(item) for item in items)

    @property
    def may_hold_media(self) -> bool:
        """Whether it may contain media, judged by its bytes."""
        return self.form is not Form.IGNORED and may_hold_media(self.raw, _OTHER_BLOCK)

    def addresses(self) -> Iterator[str]:
        """The addresses in it of content that is elsewhere."""
        if self.raw.find(b"artifact:") < 0 and not (self.raw.find(_IMAGE) >= 0 and self.raw.find(b"http") >= 0):
            return
        content = self.content()
        yield from addresses_in(content, is_result=self.role in TOOL_ROLES)
        for block in jsontext.listed(content):
            source = block.get("source") if kind_of(block) == IMAGE else None
            if isinstance(source, Mapping) and isinstance(url := source.get("url"), str):
                yield url

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes; everything else keeps its bytes."""
        found = {cast(Path, at): self._written_at(cast(Path, at), new) for at, new in changes.items()}
        if self.form is Form.RESULT and (behind := found.get(())) is not None:
            return msgspec.structs.replace(self, raw=behind[1:-1], form=Form.RUN)
        if self.form is Form.ALONE and _BEHIND[self.form] in found:
            return msgspec.structs.replace(self, raw=jsontext.spliced(self.raw, found), form=Form.WHOLE)
        return self.spliced(found)

    def spliced(self, changes: Mapping[Path, bytes | None]) -> Self:
        if not changes:
            return self
        raw = jsontext.spliced(self._json, changes)
        return msgspec.structs.replace(self, raw=raw[1:-1].strip() if self.form is Form.RUN else raw)

    def _written_at(self, at: Path, new: Content) -> bytes | None:
        if new is None:
            return None
        if isinstance(new, str) and at and isinstance(at[-1], int):
            return self.json_of(Words(new), self.role)
        if isinstance(new, str):
            return jsontext.dump_object(new) if at[-1:] == ("input",) else jsontext.dump(new)
        if isinstance(self.content(), str) and len(new.items) == 1 and isinstance(first := new.items[0], Words):
            return jsontext.dump(first.text)
        written = [self.json_of(item, self.role) for item in new.items]
        return jsontext.join_array([markable(raw) for raw in written] if self.is_marked else written)

    @property
    def can_carry_a_note(self) -> bool:
        """Whether a text may be put into its content, although the content has none: never into an assistant's, where
        thinking comes first."""
        if self.role not in ("user", "tool", REMINDER):
            return False
        if self.frame is not None and self.place != len(self.frame.around) - 2:
            return False  # results come before any text
        content = self.content()
        return content is None or isinstance(content, str | list)

    def with_note(self, note: str, *, after: bool) -> tuple[Address, Content]:
        """The note as a block of its own, behind a result; or as the content of a message without any."""
        if self.role == "tool":
            result = cast(Raw, jsontext.found_at(self.raw, _RESULT[self.form]))
            return _BEHIND[self.form], Parts((Carried(bytes(result)), Words(note)))
        at, raw, content = _CONTENT[self.form], self.raw_content(), self.content()
        if raw is None or not content:
            return at, note
        blocks: list[Item] = [Words(content)] if isinstance(content, str) else []
        blocks = blocks or [Carried(bytes(item)) for item in jsontext.items(raw)]
        return at, Parts((*blocks, Words(note)) if after else (Words(note), *blocks))

    def unsealed(self, _: str = "en") -> Self | None:
        """The message without its thinking, all of which is signed or encrypted."""
        if self.role != "assistant":
            return self
        blocks = jsontext.listed(self.content())
        gone: dict[Path, bytes | None] = {
            ("content", position): None for position, block in enumerate(blocks) if kind_of(block) in THINKING
        }
        if not gone:
            return self
        return msgspec.structs.replace(self, raw=jsontext.spliced(self.raw, gone)) if len(gone) < len(blocks) else None

    def ids(self) -> Iterator[tuple[Path, str]]:
        if self.answers:
            yield (*_RESULT[self.form], "tool_use_id"), self.answers
        calls = iter(self.calls)
        for position, block in enumerate(jsontext.listed(self.content()) if self.calls else ()):
            if kind_of(block) == CALL:
                yield ("content", position, "id"), next(calls).id

    def marks(self) -> Iterator[Path]:
        return marks_in(self.opened()) if self.is_marked else iter(())

    def without_blanks(self) -> Self:
        blocks = jsontext.listed(self.content())
        blank = [at for at, one in enumerate(blocks) if (text := text_in(one)) is not None and not text.strip()]
        if not blank or len(blank) == len(blocks):
            return self
        return self.spliced({(*_CONTENT[self.form], at): None for at in blank})

    def without_lonely_blocks(self) -> Self | None:
        if self.role != "assistant":
            return self
        blocks = [one if isinstance(one, dict) else {} for one in jsontext.listed(self.content())]
        used = {one.get("id") for one in blocks if kind_of(one) in _SERVER_USES}
        answered = {one.get("tool_use_id") for one in blocks}
        lonely = [
            at
            for at, one in enumerate(blocks)
            if (kind_of(one) in _SERVER_USES and one.get("id") not in answered)
            or ("tool_use_id" in one and one["tool_use_id"] not in used)
        ]
        if not lonely:
            return self
        return self.spliced({("content", at): None for at in lonely}) if len(lonely) < len(blocks) else None

    def unmarked(self) -> bytes:
        """Its bytes without cache marks, and with a single text as a string: clients make it a list to mark it."""
        raw = self.raw
        if raw.find(_MARK) >= 0:
            opened = jsontext.opened(self._json)
            marks = dict.fromkeys(marks_in(opened))
            raw = jsontext.spliced(self._json, marks) if marks else raw
            raw = raw[1:-1] if self.form is Form.RUN and marks else raw
        if self.form is not Form.WHOLE:
            return raw
        content = jsontext.opened_object(raw).get("content")
        first = content[0] if isinstance(content, list) and len(content) == 1 else None
        if isinstance(first, Mapping) and first.keys() == {"type", "text"} and text_in(first) is not None:
            return jsontext.spliced(raw, {("content",): jsontext.dump(first["text"])})
        return raw
