"""The heads of messages and of their blocks, read without their texts: what a reader has to know of every message.

Rule: a strict reader reads nearly all of them in one go; anything odd is read leniently, with the same result. Nothing
here raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.messages.blocks import CALL, RESULT, THINKING, kind_of, listed

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


class _Said(msgspec.Struct, gc=False):
    content: Any = None


class _Answered(msgspec.Struct, gc=False):
    content: list[_Said]


_head: Final = msgspec.json.Decoder(_Head)
_heads: Final = msgspec.json.Decoder(list[BlockHead])
_said: Final = msgspec.json.Decoder(_Said)
_answered: Final = msgspec.json.Decoder(_Answered)


def said_in(raw: bytes) -> tuple[str, bytes]:
    """Role and content of a message; each is empty if it is missing.

    >>> said_in(b'{"role":"user","content":"hi"}'), said_in(b"7")
    (('user', b'"hi"'), ('', b''))
    """
    try:
        head = _head.decode(raw)
    except jsontext.UNREADABLE:
        role = jsontext.opened(_inside(raw, "role"))
        return role if isinstance(role, str) else "", bytes(_inside(raw, "content") or b"")
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
        return [_leniently(block) for block in listed(jsontext.opened(content))]


def _leniently(block: Any) -> BlockHead:
    if not isinstance(block, Mapping):
        return BlockHead()
    name, answers = block.get("name"), block.get("tool_use_id")
    return BlockHead(
        kind_of(block),
        str(block.get("id") or ""),
        name if isinstance(name, str) else "",
        answers if isinstance(answers, str) else "",
        msgspec.Raw(jsontext.dump(block.get("content"))),
    )


def may_bring_tools(heads: Sequence[BlockHead]) -> bool:
    """Whether blocks with these heads may add tools. Most are texts, calls, and results that are a plain text, which do
    not; the others have to be opened."""
    for head in heads:
        if head.type not in _NO_TOOLS and (head.type != RESULT or bytes(head.content)[:1] == b"["):
            return True
    return False


def opened_in(raw: bytes) -> Any:
    """The content of a message or of a result, opened; None if it has none."""
    try:
        return _said.decode(raw).content
    except jsontext.UNREADABLE:
        return jsontext.opened(content_in(raw))


def opened_in_first(raw: bytes) -> Any:
    """The content of the first block of a message, opened; None if it has none."""
    try:
        found = _answered.decode(raw).content
        return found[0].content if found else None
    except jsontext.UNREADABLE:
        return jsontext.opened(content_in_first(raw))


def content_in(raw: bytes) -> Raw | None:
    """The content of a message or of a result, unopened; None if it has none."""
    return _inside(raw, "content")


def content_in_first(raw: bytes) -> Raw | None:
    """The content of the first block of a message, unopened; None if it has none."""
    return _inside(_inside(_inside(raw, "content"), 0), "content")


def _inside(raw: Raw | None, step: str | int) -> Raw | None:
    if raw is None:
        return None
    try:
        if isinstance(step, int):
            found = jsontext.items(raw)
            return found[step] if step < len(found) else None
        return jsontext.members(raw).get(step)
    except jsontext.NotJson:
        return None
