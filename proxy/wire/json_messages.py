"""Messages as all JSON APIs share them.

Rule: a view keeps the bytes that it was made from, including anything that it does not understand; a part keeps its
bytes until it is replaced. A message is parsed when its content is needed, and not kept parsed, because conversations
of many megabytes are remembered. The proxy's own tool goes to the end of a tool list; the client's entries keep their
bytes.
"""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from proxy.core.conversation import (
    SYSTEM_ROLES,
    TOOL_ROLES,
    Address,
    Attachment,
    Carried,
    Content,
    Item,
    Part,
    Parts,
    Reasoning,
    Replacement,
    Route,
    Shown,
    ToolCall,
    Words,
)
from proxy.core.retrieval_tool import RetrievalPolicy, is_offered
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.media import addresses_in, with_replaced

ROLES: Final = {role: role for role in (*TOOL_ROLES, *SYSTEM_ROLES, "user", "assistant")}
"""One string object per role: a conversation has thousands of messages."""
_PLAIN_PART: Final = frozenset({"type", "text"})
_PLAIN_OR_PARTS: Final = (b'"', b"[", b"n")
"""First byte of content that may be a text, parts, or null."""
LONG: Final = 1_000
"""Characters; a name or a word of an API has fewer."""
_Head = TypeVar("_Head", bound=msgspec.Struct)


def leniently(kind: type[_Head], raw: Raw | None) -> _Head:
    """Read a message that strict decoding refused: only members of the declared types are kept."""
    members, found = jsontext.members_if_any(raw), dict[str, Any]()
    for name in members.keys() & kind.__annotations__.keys():
        annotation, opened = kind.__annotations__[name], jsontext.opened(members[name])
        if annotation == "msgspec.Raw":
            found[name] = msgspec.Raw(bytes(members[name]))
        elif isinstance(opened, str) or "str" not in annotation:
            found[name] = opened
    return kind(**found)


class Reader(Generic[_Head]):
    """Reads a head in one go if every member is of the usual type, otherwise leniently, with the same result."""

    def __init__(self, kind: type[_Head]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def __call__(self, raw: Raw) -> _Head:
        """The head of any JSON value."""
        try:
            return self._decoder.decode(raw)
        except jsontext.UNREADABLE:
            return leniently(self._kind, raw)


class JsonMessage(msgspec.Struct, frozen=True, weakref=True):
    """One message. A struct, because there are thousands; the core's `Message` describes the members. An API overrides
    what differs."""

    takes_notes_apart: ClassVar[bool] = False
    image_sign: ClassVar[bytes]
    """Part of every part that contains an image."""
    named: ClassVar[Mapping[str, Raw]] = {}
    """The first members of a message that is made."""
    free_text: ClassVar[str] = "input"
    """The last step to the arguments of a call that are a text, as of a custom tool."""
    raw: bytes
    role: str = ""
    answers: str = ""
    name: str = ""
    calls: tuple[ToolCall, ...] = ()

    def __repr__(self) -> str:
        """Omit the text, which must not reach a log."""
        return f"{type(self).__name__}({self.role!r}, {len(self.raw)} bytes)"

    @property
    def item_count(self) -> int:
        """One entry of the list, in most APIs."""
        return 1

    @classmethod
    @abstractmethod
    def read(cls, raw: Raw) -> Self:
        """A view of any JSON value."""

    @abstractmethod
    def content_at(self) -> tuple[Path, Raw] | None:
        """The path and the JSON of its content; None if it has none, or several."""

    @staticmethod
    @abstractmethod
    def attachment_of(part: Mapping[str, Any], /) -> Attachment | None:
        """The content of a media part; None for text, and for a part that cannot be read."""

    @staticmethod
    @abstractmethod
    def media_part(shown: Shown, /) -> Mapping[str, Any]:
        """A part with media in this API's shape."""

    @staticmethod
    def text_part(words: Words, role: str, /) -> Mapping[str, Any]:  # noqa: ARG004 - some APIs have other parts for a model
        """A text part of a message with this role."""
        return {"type": "text", "text": words.text}

    @staticmethod
    def text_of(part: Any, /) -> str | None:
        """The text of a text part; None for any other."""
        found = part.get("text") if isinstance(part, dict) else part
        return found if isinstance(found, str) else None

    @staticmethod
    def rest_of(part: Mapping[str, Any], /) -> bytes:
        """A media part without its content: long strings are emptied, so that the rest keeps its order."""
        return jsontext.dump({name: _emptied(inside) for name, inside in part.items()})

    def members(self) -> Mapping[str, Raw]:
        """The members of its object, unopened; none if it is no object."""
        return jsontext.members_if_any(self.raw)

    def opened(self) -> Any:
        """Its JSON, as its API's paths lead into it."""
        return jsontext.opened(self.raw)

    def again(self, raw: bytes) -> Self:
        """Another message, from its bytes."""
        return self.read(raw)

    # What a repair looks at and changes

    def spliced(self, changes: Mapping[Path, bytes | None]) -> Self:
        """The message with parts of its JSON replaced or removed; the same object without changes."""
        return self.again(jsontext.spliced(self.raw, changes)) if changes else self

    def rewritten(self, raw: bytes) -> Self:
        """The message with other bytes of the same shape."""
        return msgspec.structs.replace(self, raw=raw)

    def ids(self) -> Iterator[tuple[Path, str]]:
        """The ids of its calls, or of the call that it answers, with their places."""
        return iter(())

    def with_ids(self, ids: Sequence[str], most: int = 0) -> Self:  # noqa: ARG002 - one API has ids of other things
        """The message with these ids in place of its own, in the same order."""
        found = list(self.ids())
        changes = {at: jsontext.dump(new) for (at, old), new in zip(found, ids, strict=True) if new != old}
        if not changes:
            return self
        calls = [ToolCall(new, call.name) for call, new in zip(self.calls, ids, strict=False)]
        answers = ids[0] if self.answers else ""
        return msgspec.structs.replace(self.spliced(changes), calls=tuple(calls), answers=answers)

    def with_names(self, fitting: Callable[[str], str]) -> Self:
        """The message with the names of its calls, and of the call that it answers, as they fit."""
        found = called_names(self.opened())
        changes = {at: jsontext.dump(new) for at, old in found if (new := fitting(old)) != old}
        if not changes:
            return self
        calls = [ToolCall(call.id, fitting(call.name)) for call in self.calls]
        return msgspec.structs.replace(self.spliced(changes), calls=tuple(calls))

    def marks(self) -> Iterator[Path]:
        """The places of its cache marks."""
        return marks_in(jsontext.opened(self.raw)) if self.raw.find(MARK) >= 0 else iter(())

    def without_blanks(self) -> Self:
        """The message without empty texts beside anything else."""
        return self

    def with_reasoning(self, *, says_something: bool) -> Self:  # noqa: ARG002 - one API demands it
        """The model's message with the reasoning that must come back with it, if it lacks that."""
        return self

    def with_text(self) -> Self:
        """The message with a string as its content, if that is one of texts, or null."""
        return self

    def without_names(self) -> Self | None:
        """The message without ids by which a server looks items up, and without what only they name."""
        return self

    def without_other_members(self, member: str) -> Self:
        """The message without a member that other servers of its API put into it, its items or its blocks."""
        return self.spliced(dict.fromkeys(places_of(member, self.opened())))

    def with_signature(self) -> Self:
        """The model's message with a signature that no server verifies, if its call lacks one."""
        return self

    def without_lonely_blocks(self) -> Self | None:
        """The message without uses of the server's tools that have no result, and without results alone."""
        return self

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        """None: no reasoning may be changed."""
        return iter(())

    def reasoning(self) -> Iterator[Reasoning]:
        """None: no reasoning may be left out."""
        return iter(())

    def parts(self) -> tuple[Address, Sequence[Part]] | None:
        """Its content, part by part."""
        found = self.content_at()
        if found is None:
            return None
        at, raw = found
        opened = jsontext.opened(raw)
        if isinstance(opened, str):
            return at, (Part(bytes(raw), opened),)
        if not isinstance(opened, list):
            return None
        return at, [self.read_part(item, part) for item, part in zip(jsontext.items(raw), opened, strict=True)]

    @classmethod
    def read_part(cls, raw: Raw, part: Any) -> Part:
        """A part, also opened, as the core sees it."""
        kept, text = bytes(raw), cls.text_of(part)
        attachment = cls.attachment_of(part) if text is None and isinstance(part, dict) else None
        return Part(kept, text, attachment, b"" if attachment is None else cls.rest_of(part))

    @classmethod
    def json_of(cls, item: Item, role: str) -> bytes:
        """The JSON of a part in a message with this role. A text keeps the members of the one that it replaces."""
        if isinstance(item, Carried):
            return item.raw
        if isinstance(item, Shown):
            return jsontext.dump(cls.media_part(item))
        like = jsontext.opened(item.like)
        is_like = isinstance(like, dict) and cls.text_of(like) is not None
        return jsontext.dump({**like, "text": item.text} if is_like else cls.text_part(item, role))

    def can_hold(self, shown: Shown) -> bool:  # noqa: ARG002 - some APIs have fewer parts
        """Whether its API has a part for this content."""
        return True

    def images_among(self, items: Sequence[Item]) -> int:
        """How many of these parts are images."""
        return sum(
            item.route is Route.IMAGE
            if isinstance(item, Shown)
            else isinstance(item, Carried) and self.image_sign in item.raw
            for item in items
        )

    def addresses(self) -> Iterator[str]:
        """The addresses in it of content that is elsewhere."""
        if self.raw.find(b"artifact:") >= 0 or (self.raw.find(b"image_url") >= 0 and self.raw.find(b"http") >= 0):
            found = self.content_at()
            if found is not None:
                yield from addresses_in(jsontext.opened(found[1]), is_result=self.role in TOOL_ROLES)

    def with_replaced(self, text: str, replace: Callable[[Attachment], Replacement | None]) -> str:
        """A text in which each content that it contains is replaced by words."""
        return with_replaced(text, replace)

    def replacement(self, new: Content, *, in_text: bool) -> bytes | None:
        """The JSON of a new content. `in_text`: whether it replaces a plain text, and stays one if it can."""
        if not isinstance(new, Parts):
            return None if new is None else jsontext.dump(new)
        first = new.items[0]
        if in_text and len(new.items) == 1 and isinstance(first, Words):
            return jsontext.dump(first.text)
        written = [self.json_of(item, self.role) for item in new.items]
        text = as_one_text(written) if new.as_text and not in_text else None
        return jsontext.join_array(written) if text is None else jsontext.dump(text)

    @property
    def can_carry_a_note(self) -> bool:
        """Whether a text may be put into its content, although the content has none."""
        found = self.content_at()
        return found is not None and bytes(found[1])[:1] in _PLAIN_OR_PARTS

    def with_note(self, note: str, *, after: bool) -> tuple[Address, Content]:
        """The note as the content, or as a part of its own."""
        found = self.content_at()
        assert found is not None, "asked only of what can carry one"
        at, raw = found
        if not isinstance(jsontext.opened(raw), list):
            return at, note
        parts = [Carried(bytes(item)) for item in jsontext.items(raw)]
        return at, Parts((*parts, Words(note)) if after else (Words(note), *parts))

    def beside(self, role: str, items: Sequence[Item] | str) -> Self:
        """Another message with this content."""
        if isinstance(items, str):
            return self.read(self.made(role, jsontext.dump(items)))
        return self.read(self.made(role, jsontext.join_array([self.json_of(item, role) for item in items])))

    @classmethod
    def made(cls, role: str, content: Raw) -> bytes:
        """The JSON of a message."""
        return jsontext.join_object({**cls.named, "role": jsontext.dump(role), "content": content})

    def unmarked(self) -> bytes:
        """The message as received: clients that mark these messages for a cache do not move the marks."""
        return self.raw


def _emptied(inside: Any) -> Any:
    if isinstance(inside, dict):
        return {name: "" if isinstance(value, str) and len(value) > LONG else value for name, value in inside.items()}
    return "" if isinstance(inside, str) and len(inside) > LONG else inside


MARK: Final = b'"cache_control"'


def marks_in(value: Any) -> Iterator[Path]:
    """The places of cache marks in a list, a message, its parts, and those of its results; not in the input of a
    call.

    >>> list(marks_in({"content": [{"type": "text"}, {"cache_control": {}, "input": {"cache_control": 1}}]}))
    [('content', 1, 'cache_control')]
    """
    return places_of("cache_control", value)


def places_of(member: str, value: Any, at: Path = ()) -> Iterator[Path]:
    """The places of a member, where a cache mark may be."""
    if isinstance(value, dict):
        if member in value:
            yield (*at, member)
        yield from places_of(member, value.get("content"), (*at, "content"))
    else:
        for number, one in enumerate(jsontext.listed(value)):
            yield from places_of(member, one, (*at, number))


_NAMED: Final = {
    "name": frozenset({"arguments", "input", "call_id", "tool_call_id"}),
    "tool_name": frozenset({"role"}),
}
"""Members with the name of a tool, and those of which one is beside it: people and images have names, too."""
_MAY_CALL: Final = ("content", "tool_calls", "function", "custom", "function_call")


def called_names(value: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """The names of tools in calls, and in what answers them, with their places.

    >>> list(called_names({"name": "Ann", "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": "{}"}}]}))
    [(('tool_calls', 0, 'function', 'name'), 'ls')]
    """
    if isinstance(value, dict):
        for member, beside in _NAMED.items():
            if beside & value.keys() and (name := jsontext.string_in(value, member)):
                yield (*at, member), name
        for member in _MAY_CALL:
            yield from called_names(value.get(member), (*at, member))
    else:
        for number, one in enumerate(jsontext.listed(value)):
            yield from called_names(one, (*at, number))


def as_one_text(items: Sequence[bytes]) -> str | None:
    """The text that parts form together; None if one is not plain text."""
    parts = [jsontext.value(item) for item in items]
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == _PLAIN_PART]
    return "\n".join(texts) if len(texts) == len(parts) and all(isinstance(text, str) for text in texts) else None


# Tool lists

MAX_NAMES: Final = 1_000
"""Tools of one list whose names are read."""
_MAX_REMEMBERED_BYTES: Final = 256 * 1024
"""Largest tool list that is cached, read once for all requests of its agent; sixty-four lists are."""


def has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    """Whether a tool list has a tool of a type other than these; a tool without one has an empty one.

    >>> known = re.compile("(?:function)?")
    >>> has_others(b'[{"type":"web_search"}]', known), has_others(b'[{"type":"function"},{}]', known)
    (True, False)
    """
    return (_has_others if len(tools) <= _MAX_REMEMBERED_BYTES else _has_others.__wrapped__)(tools, types)


@functools.lru_cache(64)
def _has_others(tools: bytes, types: re.Pattern[str]) -> bool:
    found = (tool for tool in jsontext.listed(jsontext.opened(tools or None)) if isinstance(tool, dict))
    return any(types.fullmatch(jsontext.string_in(tool, "type")) is None for tool in found)


def names_in(tools: Raw, name_of: Callable[[Any], str]) -> list[str]:
    """The names in a tool list; empty for a tool without one."""
    return [name_of(tool) for tool in jsontext.listed(jsontext.opened(tools or None))[:MAX_NAMES]]


class OwnTool:
    """The proxy's own tool in the form of one API."""

    def __init__(self, definition: bytes, names_in: Callable[[bytes], Sequence[str]]) -> None:
        """`definition`: the tool as an item of the list. `names_in`: a tool list → the names in it."""
        self.definition = definition
        self.names_in = names_in
        self._remembered = functools.lru_cache(64)(self._appended)

    def appended(self, members: Mapping[str, Raw], policy: RetrievalPolicy) -> bytes | None:
        """The `tools` of a request with ours at the end; None if its agent does not have our tool: never beside a tool
        of the same name or beyond the maximum."""
        if policy == "never":
            return None
        tools = bytes(members.get("tools", b"null"))
        return (self._remembered if len(tools) <= _MAX_REMEMBERED_BYTES else self._appended)(tools, policy)

    def _appended(self, tools: bytes, policy: RetrievalPolicy) -> bytes | None:
        if not is_offered(self.names_in(tools), policy):
            return None
        if tools == b"null":
            return jsontext.join_array([self.definition])
        if not tools.startswith(b"["):
            return None
        inside = tools[1:-1].strip()
        return b"[" + inside + b"," * bool(inside) + self.definition + b"]"
