"""Views over the messages of a request.

Rule: a view never changes and keeps the bytes it was made from; what it does not understand it carries along. A message
is opened when somebody needs its inside, and not kept open: conversations of many megabytes are remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw

TOOL_ROLES = frozenset({"tool", "function"})
"""Roles of a tool's answer; `function` is what the API called it until 2023, and some servers still do."""
SYSTEM_ROLES = frozenset({"system", "developer"})
_ROLES: Final = {role: role for role in (*TOOL_ROLES, *SYSTEM_ROLES, "user", "assistant")}
"""One text for each, whoever writes it: a conversation has thousands."""


class _Head(msgspec.Struct, gc=False):
    """What a message says of itself, read in one go when every member is of the usual type."""

    role: str = ""
    tool_call_id: str = ""
    name: str = ""
    tool_calls: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()


class _Inside(msgspec.Struct, gc=False):
    """What a model reads of a message, read in one go when it is as a strict reader wants it."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = msgspec.UNSET


_head: Final = msgspec.json.Decoder(_Head)
_inside: Final = msgspec.json.Decoder(_Inside)


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """What an assistant asks for."""

    id: str
    name: str


class Message(msgspec.Struct, frozen=True, weakref=True):
    """One message. Whatever is missing or of an odd type reads as empty: the upstream may know better. A struct, as
    messages are made by the thousand."""

    raw: bytes
    """Its JSON, as received."""
    role: str = ""
    tool_call_id: str = ""
    """The call that a tool message answers."""
    name: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning_bytes: int = 0
    """Length of the JSON of `reasoning_content`."""

    def __repr__(self) -> str:
        """Without its text, which must not reach a log."""
        return f"Message({self.role!r}, {len(self.raw)} bytes)"

    @classmethod
    def read(cls, raw: Raw) -> Message:
        """A view of any JSON value; what is no object has no role."""
        kept = bytes(raw)
        try:
            head = _head.decode(kept)
        except jsontext.UNREADABLE:
            return cls._read_leniently(kept)
        calls = _calls(head.tool_calls) if bytes(head.tool_calls) else ()
        reasoning_bytes = len(bytes(head.reasoning_content))
        role = _ROLES.get(head.role, head.role)
        return cls(kept, role, head.tool_call_id, head.name, calls, reasoning_bytes)

    @classmethod
    def _read_leniently(cls, kept: bytes) -> Message:
        try:
            members = jsontext.members(kept)
        except jsontext.NotJson:
            return cls(kept)
        return cls(
            kept,
            role=_text(members, "role"),
            tool_call_id=_text(members, "tool_call_id"),
            name=_text(members, "name"),
            calls=_calls(members["tool_calls"]) if "tool_calls" in members else (),
            reasoning_bytes=len(bytes(members.get("reasoning_content", b""))),
        )

    def members(self) -> Mapping[str, Raw]:
        """The members of its object, unopened; none when it is no object."""
        try:
            return jsontext.members(self.raw)
        except jsontext.NotJson:
            return {}

    def content(self) -> Any:
        """Its `content`, opened: a string, a list of parts, or whatever stands there."""
        return jsontext.opened(self.members().get("content"))

    def text(self) -> str:
        """Everything in it that a model reads as text, together: contents, tool calls, reasoning."""
        try:
            inside = _inside.decode(self.raw)
        except jsontext.UNREADABLE:
            inside = self._inside_leniently()
        content = inside.content
        if isinstance(content, str) and inside == _Inside(content):  # as mostly, and asked of every message
            return content
        return "\n".join(_texts_inside(inside))

    def _inside_leniently(self) -> _Inside:
        members = self.members()
        names = [name for name in _Inside.__struct_fields__ if name in members]
        return _Inside(**{name: jsontext.opened(members[name]) for name in names})

    def media_parts(self) -> Sequence[Mapping[str, Any]]:
        """The parts of its content that are no text: images, audio, files."""
        if b'"type"' not in self.raw:
            return ()
        parts = _listed(jsontext.opened(self.members().get("content")))
        return [part for part in parts if isinstance(part, dict) and not isinstance(part.get("text"), str)]


def texts_of(content: Any) -> Iterator[str]:
    """The texts of a `content`: a string, or a list of parts.

    >>> list(texts_of([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]))
    ['a', 'b']
    """
    if isinstance(content, str):
        yield content
    for part in _listed(content):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


@dataclass(frozen=True, slots=True)
class Conversation(Sequence[Message]):
    """The messages of a request, in order."""

    messages: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


def _text(members: Mapping[str, Raw], name: str) -> str:
    found = jsontext.opened(members.get(name))
    return found if isinstance(found, str) else ""


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _calls(raw: Raw) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=str(call.get("id") or ""), name=_called(call))
        for call in _listed(jsontext.opened(raw))
        if isinstance(call, dict)
    )


def _texts_inside(inside: _Inside) -> Iterator[str]:
    yield from texts_of(inside.content)
    for text in (inside.reasoning_content, inside.reasoning, inside.refusal):
        if isinstance(text, str):
            yield text
    for call in _listed(inside.tool_calls):
        yield from _call_texts(call)
    if inside.function_call is not msgspec.UNSET:
        yield from _call_texts({"function": inside.function_call})


def _called(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    name = called.get("name") if isinstance(called, dict) else call.get("name")
    return name if isinstance(name, str) else ""


def _call_texts(call: Any) -> Iterator[str]:
    """Name and arguments of a call to a function, or to a custom tool, whose `input` is free text."""
    for kind in ("function", "custom") if isinstance(call, dict) else ():
        called = call.get(kind)
        for name in ("name", "arguments", "input"):
            if isinstance(called, dict) and isinstance(text := called.get(name), str):
                yield text
