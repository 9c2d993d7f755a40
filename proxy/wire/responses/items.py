"""The items of an input, by their kinds.

Rule: an item of an unknown kind is kept as received, counted by its bytes, and never left out alone.
Source of kinds and members: openai-python 3.54.0, `types/responses/response_input_item_param.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from proxy.core.conversation import ImageView, ToolCall
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.json_messages import Reader


class Kind(IntEnum):
    """The role of an item in the conversation."""

    MESSAGE = 0
    REASONING = 1
    CALL = 2
    """Needs an output."""
    OUTPUT = 3
    DONE = 4
    """An action of the model on the server, call and result in one: a search, code that was run, a call over MCP."""
    TOOLS = 5
    """Adds tools or settings, from the developer."""
    REFERENCE = 6
    """Refers to an item that the server holds, which may be of any kind."""
    COMPACTION = 7
    """Replaces everything before it, in a form that only the server reads."""
    TRIGGER = 8
    """Asks for a compaction; it is the last item."""
    LISTED = 9
    """Tools that the server has found; without this item, it would ask for them again."""
    OTHER = 10


_KINDS: Final = {
    "message": Kind.MESSAGE,
    "reasoning": Kind.REASONING,
    "item_reference": Kind.REFERENCE,
    "compaction": Kind.COMPACTION,
    "compaction_trigger": Kind.TRIGGER,
    "additional_tools": Kind.TOOLS,
    "configuration_update": Kind.TOOLS,
    "mcp_list_tools": Kind.LISTED,
    **dict.fromkeys(
        ("mcp_call", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"), Kind.DONE
    ),
    **dict.fromkeys(
        (
            *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"),
            *("computer_call", "tool_search_call", "program", "mcp_approval_request"),
        ),
        Kind.CALL,
    ),
    **dict.fromkeys(
        (
            *("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output"),
            *("apply_patch_call_output", "computer_call_output", "tool_search_output", "program_output"),
            "mcp_approval_response",
        ),
        Kind.OUTPUT,
    ),
}
_MODELS_OWN: Final = frozenset({Kind.REASONING, Kind.CALL, Kind.DONE})
ADDITIONAL_TOOLS: Final = "additional_tools"
FOUND_TOOLS: Final = "tool_search_output"
"""Later calls depend on the tools in it."""
LOCAL_SHELL: Final = "local_shell_call"
_ANSWERED_BY_ID: Final = "local_shell_call_output"
"""Its `id` is the id of the call item."""
_TEXT_MEMBERS: Final = ("text", "refusal")
_SEALED_BYTES: Final = 650
"""The overhead in sealed content."""
_BYTES_PER_TOKEN: Final = 4
_NEVER_READ: Final = frozenset({"type", "id", "call_id", "status", "encrypted_content", "container_id", "item_id"})
"""Members that only programs read."""
_MEDIA_TYPES: Final = frozenset({"input_image", "input_file", "input_audio", "computer_screenshot", "image"})


class Head(msgspec.Struct, frozen=True, gc=False):
    """The head of an item. A struct, because there are thousands."""

    kind: Kind
    type: str = ""
    role: str = ""
    id: str = ""
    """The id that a call and its output share."""
    name: str = ""
    item_id: str = ""
    is_own: bool = False
    """Whether it is the model's: its words, its reasoning, or its action."""


class _Members(msgspec.Struct, gc=False):
    """An item's head, read in one go if every member is of the usual type."""

    type: str | None = None
    role: str | None = None
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    approval_request_id: str | None = None


_members: Final = Reader(_Members)


def head_of(raw: Raw) -> Head:
    """The head of any JSON value; a plain text is a user's message.

    >>> [head_of(raw).kind.name for raw in (b'{"role":"user","content":"hi"}', b'{"id":"rs_1"}', b'"hi"', b"7")]
    ['MESSAGE', 'REFERENCE', 'MESSAGE', 'OTHER']
    """
    found = _members(raw)
    kind_name, role = found.type or "", found.role or ""
    if not kind_name:
        role = "user" if bytes(raw)[:1] == b'"' else role
        # Messages and references may omit their type.
        kind = Kind.MESSAGE if role else Kind.REFERENCE if found.id else Kind.OTHER
        return Head(kind, "", role, "", "", found.id or "", role == "assistant")
    kind = _KINDS[kind_name] if kind_name in _KINDS else _guessed(kind_name, found.call_id)
    call_id = found.call_id or ""
    if kind is Kind.CALL:
        call_id = call_id or found.id or ""
    elif kind is Kind.OUTPUT:
        call_id = call_id or found.approval_request_id or (found.id or "" if kind_name == _ANSWERED_BY_ID else "")
    is_own = kind in _MODELS_OWN or (kind is Kind.MESSAGE and role == "assistant")
    return Head(kind, kind_name, role, call_id, found.name or "", found.id or "", is_own)


def _guessed(kind_name: str, call_id: str | None) -> Kind:
    """The kind of an unknown type: calls and outputs have a call id and a name that ends accordingly."""
    if call_id and kind_name.endswith("_output"):
        return Kind.OUTPUT
    return Kind.CALL if call_id and kind_name.endswith("_call") else Kind.OTHER


def call_of(head: Head) -> ToolCall:
    """A call as the core knows it; a call that names no tool is named by its type."""
    return ToolCall(head.id, head.name or head.type.removesuffix("_call"))


def texts_at(item: Any, at: Path) -> Iterator[tuple[Path, str]]:
    """The texts in a message or an output, with their paths. Other items have none, because nothing in them may be
    changed."""
    if isinstance(item, str):
        yield at, item
        return
    if not isinstance(item, dict):
        return
    for name in _saying(item):
        content = item.get(name)
        if isinstance(content, str):
            yield (*at, name), content
        elif isinstance(content, list):
            for position, part in enumerate(content):
                for member in ("text", "stdout", "stderr") if isinstance(part, dict) else ():
                    if isinstance(text := part.get(member), str):
                        yield (*at, name, position, member), text


def _saying(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The members that contain what an item says."""
    name = item.get("type") or "message"
    if name == "message":
        return ("content",)
    if name == "program_output":
        return ("result",)
    return ("output",) if isinstance(name, str) and name.endswith("_output") else ()


def said_at(item: Any) -> str | None:
    """The member with a plain text or parts, if either may replace the other; None if the shape is fixed."""
    name = item.get("type") if isinstance(item, dict) else None
    if isinstance(item, dict) and (name or "message") == "message":
        return "content"
    return "output" if name in ("function_call_output", "custom_tool_call_output") else None


def read_texts(item: Any) -> list[str] | None:
    """Everything in an item that a model reads as text; None if that is the item as it is written."""
    if isinstance(item, str):
        return [item]
    if not isinstance(item, dict):
        return None
    match _type_of(item):
        case "message":
            return _texts_in(item.get("content"))
        case "function_call" | "custom_tool_call" | "mcp_call":
            return [text for name in _CALLED if isinstance(text := item.get(name), str)]
        case "reasoning":
            return _thought(item)
        case "compaction":
            return [sealed(item.get("encrypted_content"))]
        case "additional_tools":
            return []  # counted with the tool list
        case name if name != FOUND_TOOLS and (name.endswith("_output") or _KINDS.get(name) in _OF_STRINGS):
            return list(_strings(item))
    return None


def _type_of(item: Mapping[str, Any]) -> str:
    name = item.get("type")
    if isinstance(name, str) and name:
        return name
    return "message" if isinstance(item.get("role"), str) else ""


_OF_STRINGS: Final = frozenset({Kind.OUTPUT, Kind.CALL, Kind.DONE})
_CALLED: Final = ("name", "arguments", "input", "output", "error")


def _texts_in(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            found += [text for name in _TEXT_MEMBERS if isinstance(text := part.get(name), str)]
    return found


def _thought(item: Mapping[str, Any]) -> list[str]:
    """Sealed reasoning counts by its estimated length; plain reasoning, of open models, as it is; a summary only if
    there is nothing else."""
    found = sealed(item.get("encrypted_content")) or "\n".join(_texts_in(item.get("content")))
    return [found or "\n".join(_texts_in(item.get("summary")))]


def sealed(content: Any) -> str:
    """A text with about as many tokens as a sealed content, which is base64 of something that only the server can read.

    Codex counts it by the same rule, `estimate_reasoning_length` in codex-rs/core/src/context_manager/history.rs: three
    quarters, less 650 bytes.

    >>> len(sealed("g" * 4_000)), sealed(None)
    (1174, '')
    """
    length = len(content) * 3 // 4 - _SEALED_BYTES if isinstance(content, str) else 0
    return " a" * (length // _BYTES_PER_TOKEN)


def is_sealed(item: Any) -> bool:
    """Whether an item is encrypted reasoning."""
    return isinstance(item, dict) and item.get("type") == "reasoning" and bool(item.get("encrypted_content"))


_PREFIXES: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}


def has_foreign_id(item: Any, most: int) -> bool:
    """Whether an item has an id of its own that is longer than that, or of another kind than its API gives it.

    >>> has_foreign_id({"type": "function_call", "id": "call_1"}, 64), has_foreign_id({"type": "message"}, 64)
    (True, False)
    """
    one = jsontext.string_in(item, "id")
    kind = item.get("type") or "message" if isinstance(item, dict) else None
    if not one or (kind not in _PREFIXES and not str(kind).endswith("_output")):
        return False
    return len(one) > most or not one.startswith(_PREFIXES.get(str(kind), ""))


def _strings(found: Any) -> Iterator[str]:
    """All strings in a value that a model may read, in order, as deep as msgspec parses."""
    left = [found]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            left.extend(reversed(one))
        elif isinstance(one, dict) and jsontext.string_in(one, "type") not in _MEDIA_TYPES:
            is_image = one.get("type") == "image_generation_call"
            names = [name for name in one if name not in _NEVER_READ and not (is_image and name == "result")]
            left.extend(one[name] for name in reversed(names))


def media_in(item: Any) -> Iterator[ImageView | None]:
    """The media of an item; None for each that is not an image."""
    if not isinstance(item, dict):
        return
    if item.get("type") == "image_generation_call":
        if isinstance(result := item.get("result"), str):
            yield ImageView(f"data:image/png;base64,{result}", None)
        return
    for name in ("content", "output", "outputs"):
        content = item.get(name)
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict) and jsontext.string_in(part, "type") in _MEDIA_TYPES:
                yield _viewed(part)


def _viewed(part: Mapping[str, Any]) -> ImageView | None:
    if part["type"] in ("input_file", "input_audio"):
        return None
    detail = part.get("detail")
    return ImageView(part.get("image_url") or part.get("url"), detail if isinstance(detail, str) else None)
