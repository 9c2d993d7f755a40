"""Messages of chat completions.

Rule: a view keeps the bytes that it was made from, including anything that it does not understand. A message is parsed
when its content is needed, and not kept parsed, because conversations of many megabytes are remembered.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, cast

import msgspec

from proxy.core.conversation import (
    TOOL_ROLES,
    Address,
    Argument,
    Content,
    ImageView,
    Parts,
    Reasoning,
    Route,
    Shown,
    ToolCall,
)
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.json_messages import ROLES, JsonMessage, Reader
from proxy.wire.media import ADDRESSED, OTHER_PART, attachment_of, may_hold_media

# Calls


def calls_in(raw: Raw) -> tuple[ToolCall, ...]:
    """The calls in a list of calls."""
    calls = jsontext.listed(jsontext.opened(raw))
    found = [ToolCall(str(call.get("id") or ""), name_of(call)) for call in calls if isinstance(call, dict)]
    return tuple(found)


def name_of(tool: Any) -> str:
    """The name in a tool, or in a call of one: of a function, a custom tool, or of itself. Empty if there is none.

    >>> name_of({"function": {"name": "ls"}}), name_of({"custom": {"name": "sh"}}), name_of({"name": "cat"})
    ('ls', 'sh', 'cat')
    """
    return jsontext.string_in(
        jsontext.object_in(tool, "function") or jsontext.object_in(tool, "custom") or tool, "name"
    )


def texts_of_call(call: Any) -> list[str]:
    """Name and arguments of a call to a function, or to a custom tool, whose `input` is free text. Mistral's API takes
    arguments as an object, too (https://docs.mistral.ai/api); a model reads them as JSON.

    >>> texts_of_call({"function": {"name": "ls", "arguments": {"path": "."}}})
    ['ls', '{"path":"."}']
    """
    found: list[str] = []
    for kind in ("function", "custom") if isinstance(call, dict) else ():
        called = call.get(kind)
        for name in ("name", "arguments", "input") if isinstance(called, dict) else ():
            text = called.get(name)
            if isinstance(text, str):
                found.append(text)
            elif isinstance(text, dict):
                found.append(jsontext.dump(text).decode())
    return found


# Parts with media

_MEMBERS: Final = {
    Route.IMAGE: "image_url",
    Route.AUDIO: "input_audio",
    Route.AUDIO_ADDRESS: "audio_url",
    Route.VIDEO: "video_url",
    Route.FILE: "file",
}


def part_of(shown: Shown) -> dict[str, Any]:
    """A part in OpenAI's shape."""
    member = _MEMBERS[shown.route]
    if shown.content is None:
        return {"type": member, member: {"url": shown.address}}
    encoded = base64.b64encode(shown.content).decode()
    url = f"data:{shown.found.mime};base64,{encoded}"
    old = jsontext.object_in(jsontext.opened(shown.like), member)
    kept = {name: value for name, value in old.items() if not (shown.is_fetched and name in ADDRESSED)}
    match shown.route:
        case Route.AUDIO:
            inner = kept | {"data": encoded, "format": shown.found.suffix}
        case Route.FILE:
            inner = {"filename": shown.name} | kept | {"file_data": url}
        case _:
            inner = kept | {"url": url}
    return {"type": member, member: inner}


# Messages

_CONTENT: Final[Path] = ("content",)
_CALLS: Final = "tool_calls"
_ONE_CALL: Final = "function_call"
"""Predates tools. https://platform.openai.com/docs/api-reference/chat/create"""
_SIGN_OF_ONE_CALL: Final = b'"function_call"'
_LEFT_OUT_LATER: Final = "reasoning_content"
"""The member that DeepSeek, Qwen, Kimi and GLM use. OpenRouter's `reasoning` goes back upstream unchanged."""
_THOUGHTS: Final = (_LEFT_OUT_LATER, "reasoning")
_BLANK: Final = (b"null", b'""')
_UNSAID: Final = '"…"'.encode()
"""Reasoning of a model that has not thought, where an empty one is refused."""
_STANDARD: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "function_call"})
"""Members of a message that every server takes. Groq: `property 'reasoning_content' is unsupported`."""
_ARGUMENTS: Final = (("function", "arguments"), ("custom", "input"))
"""Path in a call of the text that the model wrote for it. A custom tool takes free text."""
_SEALED: Final = ("reasoning_details", "thinking_blocks")
"""OpenRouter's and LiteLLM's. https://openrouter.ai/docs/use-cases/reasoning-tokens,
https://docs.litellm.ai/docs/reasoning_content"""
_SIGNS_OF_SEALS: Final = tuple(f'"{name}"'.encode() for name in _SEALED)
_SIGNATURES: Final = (b"thought_signature", b"thoughtSignature")
_UNVERIFIED: Final = "skip_thought_signature_validator"
"""Google's own value for a call of another model: https://ai.google.dev/gemini-api/docs/thought-signatures"""
_IMAGE: Final = b'"image_url"'
_OPENED: Final = (b"[", b"{")
"""First byte of content that may have parts."""
_WORDS: Final = ("thinking", "refusal")
"""Parts of an assistant's content that a model reads as text, and the members in which they have it: a text or, in
Mistral's thoughts, a list of parts. https://docs.mistral.ai/studio-api/conversations/reasoning,
https://platform.openai.com/docs/api-reference/chat/create"""


class _Head(msgspec.Struct, gc=False):
    """A message's head, read in one go if every member is of the usual type."""

    role: str = ""
    tool_call_id: str = ""
    name: str = ""
    content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()


class _Inside(msgspec.Struct, gc=False):
    """The parts of a message that a model reads, read in one go if they satisfy a strict reader."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = msgspec.UNSET


_head: Final = Reader(_Head)
_inside: Final = Reader(_Inside)


class ChatMessage(JsonMessage, frozen=True):
    """One message; the core's `Message` describes the members."""

    is_companion: ClassVar[bool] = False
    must_stay: ClassVar[bool] = False
    is_marked: ClassVar[bool] = False
    image_sign: ClassVar[bytes] = _IMAGE
    attachment_of = staticmethod(attachment_of)
    media_part = staticmethod(part_of)
    reasoning_bytes: int = 0
    has_parts: bool = False
    """Whether its content is a list, or an object."""

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """A view of any JSON value; a value that is no object has no role."""
        kept = bytes(raw)
        head = _head(kept)
        calls = calls_in(head.tool_calls) if head.tool_calls else ()
        reasoning_bytes = len(head.reasoning_content)
        role = ROLES.get(head.role, head.role)
        has_parts = bytes(memoryview(head.content)[:1]) in _OPENED
        return cls(kept, role, head.tool_call_id, head.name, calls, reasoning_bytes, has_parts)

    def content_at(self) -> tuple[Path, Raw]:
        """Its `content`. A tool result may be an object, although the API forbids it: then the text of its JSON."""
        raw = self.members().get("content", b"null")
        if self.role in TOOL_ROLES and bytes(memoryview(raw)[:1]) == b"{":
            raw = jsontext.dump(bytes(raw).decode("utf-8", "surrogateescape"))
        return _CONTENT, raw

    def content(self) -> Any:
        """Its `content`, opened: a string, a list of parts, or any other value."""
        return jsontext.opened(self.content_at()[1])

    def text(self) -> str:
        """Everything in it that a model reads as text, joined: contents, tool calls, reasoning."""
        inside = _inside(self.raw)
        content = inside.content
        if isinstance(content, str) and inside == _Inside(content):  # the usual case, for every message
            return content
        if isinstance(content, dict):
            inside.content = self.content()
        return "\n".join(_texts_inside(inside))

    def texts(self) -> Iterator[tuple[Address, str]]:
        """The texts of its content."""
        content = self.content()
        if isinstance(content, str):
            yield _CONTENT, content
        elif isinstance(content, list):
            for position, part in enumerate(content):
                if isinstance(part, dict) and isinstance(text := part.get("text"), str):
                    yield ("content", position, "text"), text

    def arguments(self) -> Iterator[Argument]:
        """The arguments of each call, as the model wrote them; those that are an object, as JSON."""
        for at, call_id, written in self._arguments():
            yield Argument(at, call_id, written if isinstance(written, str) else jsontext.dump(written).decode())

    def _arguments(self) -> Iterator[tuple[Path, str, str | dict[str, Any]]]:
        """The place of each call's arguments, the call's id, and the arguments. Some agents put them in as an object,
        which vLLM, llama.cpp and Ollama take as well as its text."""
        calls = jsontext.opened(self.members().get(_CALLS)) if self.calls else None
        for position, call in enumerate(jsontext.listed(calls)):
            for kind, name in _ARGUMENTS:
                called = call.get(kind) if isinstance(call, dict) else None
                if isinstance(called, dict) and isinstance(written := called.get(name), str | dict):
                    call_id = self.calls[position].id if position < len(self.calls) else ""
                    yield (_CALLS, position, kind, name), call_id, written
        called = jsontext.opened(self.members().get(_ONE_CALL)) if self.raw.find(_SIGN_OF_ONE_CALL) >= 0 else None
        if isinstance(called, dict) and isinstance(written := called.get("arguments"), str | dict):
            yield (_ONE_CALL, "arguments"), "", written

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        """Reasoning that is plain text."""
        members = self.members()
        for name in _THOUGHTS:
            if isinstance(text := jsontext.opened(members.get(name)), str):
                yield (name,), text

    def reasoning(self) -> Iterator[Reasoning]:
        if (raw := self.members().get(_LEFT_OUT_LATER)) is not None:
            text = jsontext.opened(raw)
            yield Reasoning((_LEFT_OUT_LATER,), bytes(raw), text if isinstance(text, str) else None)

    def _media_parts(self) -> Sequence[Mapping[str, Any]]:
        """The parts of its content that are not text: images, audio, files."""
        if not self.has_parts:
            return ()
        parts = [part for part in jsontext.listed(self.content()) if isinstance(part, dict)]
        return [part for part in parts if not isinstance(part.get("text"), str) and part.get("type") not in _WORDS]

    def media(self) -> Sequence[ImageView | None]:
        """The images among those parts, None for others."""
        return [_image(part) for part in self._media_parts()]

    @property
    def images(self) -> int:
        """How many of those parts are images."""
        return sum("image_url" in part for part in self._media_parts()) if self.raw.find(_IMAGE) >= 0 else 0

    @property
    def may_hold_media(self) -> bool:
        """Whether it may contain media, judged by its bytes."""
        return may_hold_media(self.raw, OTHER_PART if self.has_parts else None)

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        """The message with these changes; everything else keeps its bytes."""
        plain = isinstance(self.content(), str) if any(isinstance(new, Parts) for new in changes.values()) else False
        found = {cast(Path, at): self.replacement(new, in_text=plain) for at, new in changes.items()}
        if any(at[0] in (_CALLS, _ONE_CALL) for at in found):
            objects = {at for at, _, written in self._arguments() if isinstance(written, dict)}
            found |= {at: jsontext.dump_object(cast(str, changes[at])) for at in objects & found.keys()}
        return self.read(jsontext.spliced(self.raw, found))

    def unsealed(self, _: str = "en") -> Self | None:
        """The message without the members in which gateways carry such reasoning."""
        if self.role != "assistant" or max(map(self.raw.find, _SIGNS_OF_SEALS)) < 0:
            return self
        gone: dict[Path, bytes | None] = {(name,): None for name in _SEALED if name in self.members()}
        return self.read(jsontext.spliced(self.raw, gone)) if gone else self

    def ids(self) -> Iterator[tuple[Path, str]]:
        if self.answers:
            yield ("tool_call_id",), self.answers
        for position, call in enumerate(self.calls):
            yield (_CALLS, position, "id"), call.id

    def with_reasoning(self, *, says_something: bool) -> Self:
        written = self.members().get(_LEFT_OUT_LATER)
        if self.role != "assistant" or (written is not None and not (says_something and bytes(written) in _BLANK)):
            return self
        return self.spliced({(_LEFT_OUT_LATER,): _UNSAID if says_something else b'""'})

    def with_text(self) -> Self:
        content = self.content()
        parts, texts = jsontext.listed(content), [text for _, text in self.texts()]
        is_text = content is None or (isinstance(content, list) and len(texts) == len(parts))
        return self.spliced({_CONTENT: jsontext.dump("\n".join(texts))}) if is_text else self

    def without_blanks(self) -> Self:
        content = self.content()
        if content == "" and self.calls:
            return self.spliced({_CONTENT: b"null"})
        parts = jsontext.listed(content)
        blank = [at for at, one in enumerate(parts) if isinstance(one, dict) and one.get("text") == ""]
        return self.spliced({("content", at): None for at in blank}) if len(blank) < len(parts) else self

    def without_other_members(self, _: str) -> Self:
        return self.spliced(dict.fromkeys((name,) for name in self.members() if name not in _STANDARD))

    def with_signature(self) -> Self:
        calls = self.members().get(_CALLS) if self.calls else None
        if calls is None or any(sign in bytes(calls) for sign in _SIGNATURES):
            return self
        first = jsontext.opened_object(jsontext.items(calls)[0])
        extra = jsontext.object_in(first, "extra_content")
        google = {**jsontext.object_in(extra, "google"), "thought_signature": _UNVERIFIED}
        return self.spliced({(_CALLS, 0, "extra_content"): jsontext.dump({**extra, "google": google})})


def texts_of(content: Any) -> Iterator[str]:
    """The texts of a `content`: a string, or a list of parts.

    >>> list(texts_of([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]))
    ['a', 'b']
    """
    if isinstance(content, str):
        yield content
    for part in jsontext.listed(content):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _image(part: Mapping[str, Any]) -> ImageView | None:
    image = part.get("image_url")
    if image is None:
        return None
    url, detail = (image.get("url"), image.get("detail")) if isinstance(image, dict) else (image, None)
    return ImageView(url, detail if isinstance(detail, str) else None)


def _texts_inside(inside: _Inside) -> list[str]:
    found = list(texts_of(inside.content))
    for part in jsontext.listed(inside.content):
        if isinstance(part, dict) and not isinstance(part.get("text"), str):
            for name in _WORDS:
                found += texts_of(part.get(name))
    found += [text for text in (inside.reasoning_content, inside.reasoning, inside.refusal) if isinstance(text, str)]
    for call in jsontext.listed(inside.tool_calls):
        found += texts_of_call(call)
    if inside.function_call is not msgspec.UNSET:
        found += texts_of_call({"function": inside.function_call})
    return found
