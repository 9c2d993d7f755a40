"""Content blocks: the text that a model reads in them, the media that they show, their cache marks. The heads of
messages and blocks, which a reader has to know of every message, are read without their texts.

Rule: nothing here raises, whatever a block contains; in a block of an unknown kind, every text counts. A strict reader
reads nearly all heads in one go; anything odd is read leniently, with the same result.
Source of the kinds: https://platform.claude.com/docs/en/api/messages and the types of anthropic-sdk-python.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proxy.core.content_types import is_address, last_of
from proxy.core.conversation import Attachment, ImageView, Route, Shape, Shown
from proxy.core.text import jsontext
from proxy.wire.json_messages import LONG, Reader, leniently
from proxy.wire.media import attachment_of as attachment_of_any
from proxy.wire.media import name_in

# Blocks

MARK: Final = "cache_control"
"""Marks a possible end of a prompt cache. The mark moves: agents set it on the last block of every request.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching"""
COMPACTION: Final = "compaction"
""""All content blocks before it are ignored": https://platform.claude.com/docs/en/build-with-claude/compaction"""
CALL: Final = "tool_use"
RESULT: Final = "tool_result"
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
IMAGE: Final = "image"
DOCUMENT: Final = "document"
_THOUGHTS: Final = {"thinking": "thinking", "compaction": "content"}
"""Kinds that are a single text, with the member that contains it."""
_CALLS: Final = frozenset({CALL, "server_tool_use", "mcp_tool_use"})
_NO_TEXT: Final = frozenset({IMAGE, "redacted_thinking", "container_upload"})
_UNREAD: Final = frozenset(
    {
        MARK,
        "type",
        "id",
        "tool_use_id",
        "file_id",
        "signature",
        "data",
        "citations",
        "encrypted_content",
        "encrypted_index",
        "encrypted_stdout",
    }
)
"""Members that a model does not read, or whose text only the server knows. The quoted text of citations is not counted:
https://platform.claude.com/docs/en/build-with-claude/citations"""
_BRINGS_TOOLS: Final = frozenset({"tool_reference", "tool_addition", "tool_removal", "mcp_tool_listing"})
"""Kinds that add tools, which later messages call."""
_SIGNS_OF_TOOLS: Final = tuple(f'"{kind}"'.encode() for kind in sorted(_BRINGS_TOOLS))
_MAX_DEPTH: Final = 16
_IMAGE_HEAD_CHARACTERS: Final = 90_000
"""The beginning of an image's base64, which contains its dimensions; slightly more than is searched for them."""


def kind_of(block: Any) -> str:
    """The `type` of a block; empty if it has none."""
    return jsontext.string_in(block, "type")


def text_in(block: Any) -> str | None:
    """The text of a text block; None for any other."""
    found = block.get("text") if isinstance(block, Mapping) and kind_of(block) == "text" else None
    return found if isinstance(found, str) else None


def texts_of(content: Any) -> Iterator[str]:
    """Everything in a content that a model reads as text. It does not read anything before a compaction.

    >>> list(texts_of([{"type": "thinking", "thinking": "why", "signature": "s"}, {"type": "text", "text": "so"}]))
    ['why', 'so']
    """
    if isinstance(content, str):
        yield content
    blocks = jsontext.listed(content)
    begun = max((at for at, block in enumerate(blocks) if kind_of(block) == COMPACTION), default=0)
    for block in blocks[begun:]:
        yield from _texts_of_block(block)


def _texts_of_block(block: Any) -> Iterator[str]:
    kind = kind_of(block)
    if (text := text_in(block)) is not None:
        yield text
    elif kind in _CALLS:
        yield from (name for name in [block.get("name")] if isinstance(name, str))
        yield jsontext.dump(block.get("input")).decode("utf-8", "replace")
    elif kind in _THOUGHTS:
        yield from _all_texts(block.get(_THOUGHTS[kind]))
    elif kind not in _NO_TEXT:
        yield from _all_texts(block)


def _all_texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text in a value, down to the maximum depth, except in members that a model does not read."""
    if isinstance(value, str):
        yield value
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        unread = _UNREAD - {"data"} if value.get("type") == "text" else _UNREAD  # a document of plain text
        for name, inner in value.items():
            if name not in unread and kind_of(inner) != IMAGE:
                yield from _all_texts(inner, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, list):
        for inner in value:
            yield from _all_texts(inner, depth + 1) if kind_of(inner) not in _NO_TEXT else ()


def media_in(content: Any) -> Iterator[ImageView | None]:
    """The images and files of a content; None for a file that is not an image. A plain-text document is text."""
    for block in jsontext.listed(content):
        kind = kind_of(block)
        source = block.get("source") if kind in (IMAGE, DOCUMENT) else None
        if kind == IMAGE:
            yield ImageView(_url_of(source), None)
        elif isinstance(source, Mapping) and source.get("type") not in ("text", "content"):
            yield None


def _url_of(source: Any) -> object:
    """An image as a URL: its address, or the beginning of its content, which contains its dimensions."""
    found = source if isinstance(source, Mapping) else {}
    data = found.get("data")
    if isinstance(data, str):
        return f"data:{found.get('media_type')};base64,{data[:_IMAGE_HEAD_CHARACTERS]}"
    return found.get("url")


def images_in(content: Any) -> int:
    """How many blocks of a content are images."""
    return sum(kind_of(block) == IMAGE for block in jsontext.listed(content))


def brings_tools(raw: bytes, content: Any) -> bool:
    """Whether a content, given as bytes and as blocks, adds tools, which later messages may call."""
    if max(map(raw.find, _SIGNS_OF_TOOLS)) < 0:
        return False
    return any(_brings_tools(block) for block in jsontext.listed(content))


def _brings_tools(value: Any, depth: int = 0) -> bool:
    kind = kind_of(value)
    if kind in _BRINGS_TOOLS:
        return True
    if kind in _CALLS or depth == _MAX_DEPTH:
        return False
    inner = value.values() if isinstance(value, Mapping) else jsontext.listed(value)
    return any(_brings_tools(one, depth + 1) for one in inner if isinstance(one, Mapping | list))


def holds_compaction(content: Any) -> bool:
    """Whether a content has a compaction block, so that the API ignores everything before it."""
    return any(kind_of(block) == COMPACTION for block in jsontext.listed(content))


# Blocks with media

_SHAPES: Final = {IMAGE: Shape.IMAGE, DOCUMENT: Shape.FILE}
_NOT_KEPT: Final = frozenset({"type", "source", "text"})


def attachment_of(block: Mapping[str, Any]) -> Attachment | None:
    """The content of a media block; None for text, and for a block that cannot be read."""
    kind, source = kind_of(block), block.get("source")
    shape = _SHAPES.get(kind)
    if shape is None or not isinstance(source, Mapping):
        return attachment_of_any(block)
    name, declared = name_in(source, block), jsontext.string_in(source, "media_type")
    match source.get("type"):
        case "base64" if isinstance(data := source.get("data"), str):
            return Attachment(shape, data, declared, name, is_data_url=True)
        case "url" if isinstance(url := source.get("url"), str) and is_address(url):
            return Attachment(shape, address=url, declared=f"{kind}/*", name=name or last_of(url))
        case "file" if isinstance(file_id := source.get("file_id"), str):
            return Attachment(shape, address=file_id, declared=f"{kind}/*", name=name)
    return None


def rest_of(block: Mapping[str, Any]) -> bytes:
    """The members of a media block that are copied to the block that replaces it."""
    members = ((name, one) for name, one in block.items() if name not in _NOT_KEPT)
    return jsontext.dump({name: one for name, one in members if not (isinstance(one, str) and len(one) > LONG)})


def block_of(shown: Shown) -> dict[str, Any]:
    """A block in this API's shape. There are two kinds of media: anything that is not an image is a document."""
    kind = IMAGE if shown.route is Route.IMAGE else DOCUMENT
    if shown.content is None:
        source: dict[str, Any] = {"type": "url", "url": shown.address}
    else:
        data = base64.b64encode(shown.content).decode()
        source = {"type": "base64", "media_type": shown.found.mime, "data": data}
    return {"type": kind, "source": source, **_members(shown.like)}


def mark_in(like: bytes | None) -> dict[str, Any]:
    """The cache mark among the other members of an old block."""
    found = _members(like)
    return {MARK: found[MARK]} if found.get(MARK) is not None else {}


def _members(like: bytes | None) -> dict[str, Any]:
    return {name: value for name, value in jsontext.opened_object(like).items() if name not in _NOT_KEPT}


# Heads

_NO_TOOLS: Final = THINKING | {"text", CALL}
"""Kinds of blocks that bring no tools, whatever they contain."""


class BlockHead(msgspec.Struct, frozen=True, gc=False):
    """A block without its texts; a member that it lacks, or that is no text, is empty."""

    type: str = ""
    id: str = ""
    name: str = ""
    tool_use_id: str = ""
    content: msgspec.Raw = msgspec.Raw()


class _Head(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw()


_head: Final = Reader(_Head)
_heads: Final = msgspec.json.Decoder(list[BlockHead])


def role_and_content(raw: bytes) -> tuple[str, bytes]:
    """Role and content of a message; each is empty if it is missing.

    >>> role_and_content(b'{"role":"user","content":"hi"}'), role_and_content(b"7")
    (('user', b'"hi"'), ('', b''))
    """
    head = _head(raw)
    return head.role, bytes(head.content)


def heads_in(content: bytes) -> Sequence[BlockHead]:
    """The heads of the blocks of a content; none if it is a plain text.

    >>> [head.type for head in heads_in(b'[{"type":"text","text":"a"},{"type":"image"},7]')], heads_in(b'"a"')
    (['text', 'image', ''], ())
    """
    if not content.startswith(b"["):
        return ()
    try:
        return _heads.decode(content)
    except jsontext.UNREADABLE:
        return [leniently(BlockHead, block) for block in jsontext.items_if_any(content)]


def may_bring_tools(heads: Sequence[BlockHead]) -> bool:
    """Whether blocks with these heads may add tools. Most are texts, calls, and results that are a plain text, which do
    not; the others have to be opened."""
    return any(
        head.type not in _NO_TOOLS and (head.type != RESULT or bytes(head.content)[:1] == b"[") for head in heads
    )
