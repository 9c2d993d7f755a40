"""The parts and blocks that contain media, in the shapes of OpenAI, vLLM, MCP, Anthropic and Gemini.

Rule: a shape is recognised by its members; a member of an odd type means that it is not media, and is left to the
upstream.

https://platform.openai.com/docs/api-reference/chat/create (image_url, input_audio, file),
https://docs.vllm.ai/en/latest/features/multimodal_inputs.html (video_url, audio_url),
https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result (image, audio, resource),
https://docs.anthropic.com/en/api/messages (source), https://ai.google.dev/api/caching#Blob (inline_data).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from proxy.core.content_types.texts import data_url, is_address, last_of
from proxy.core.conversation.attachment import Attachment, Shape
from proxy.core.text.jsontext import string_in

_BY_ADDRESS: Final = (
    ("image_url", Shape.IMAGE),
    ("video_url", Shape.VIDEO),
    ("audio_url", Shape.AUDIO_ADDRESS),
)
_TYPE_NAMES: Final = ("mimeType", "mime_type", "media_type", "mediaType", "content_type", "contentType", "format")
_FILE_NAMES: Final = ("filename", "file_name", "fileName", "name", "title", "display_name", "displayName")
_DESCRIBING: Final = ("metadata", "meta")
_BLOCK_TYPES: Final = frozenset({"image", "audio", "video", "document", "file"})


def attachment_of(part: Mapping[str, Any]) -> Attachment | None:
    """The content of a part; None for text, and for anything unrecognised."""
    for member, shape in _BY_ADDRESS:
        if member in part:
            return _addressed(shape, part[member], name_in(part[member], part))
    for member in ("input_audio", "inline_data", "inlineData"):
        if member in part:
            shape = Shape.AUDIO if member == "input_audio" else Shape.BLOCK
            return _held(shape, part[member], name=name_in(part[member], part))
    if "file" in part:
        return _file(part["file"], part)
    kind = string_in(part, "type")
    if kind == "input_file":
        return _file(part)
    if kind == "resource":
        resource = part.get("resource")
        return _held(Shape.BLOCK, resource, "blob", name_in(resource, part) or last_of(string_in(resource, "uri")))
    if kind not in _BLOCK_TYPES:
        return None
    source = part.get("source", part)
    if string_in(source, "type") == "text":
        return None
    address, name = string_in(source, "url"), name_in(source, part)
    if is_address(address):
        return Attachment(Shape.BLOCK, address=address, declared=f"{kind}/*", name=name)
    return _held(Shape.BLOCK, source, name=name)


def name_in(*members: Any) -> str:
    """The file name that objects state for their content, themselves, in their `metadata` or in their `meta`; the first
    object with a name decides.

    >>> name_in({"data": "…"}, {"name": "a", "meta": {"filename": "b.png"}})
    'b.png'
    """
    for one in members:
        stating = [one, *_about(one)]
        if found := next((found for name in _FILE_NAMES for each in stating if (found := string_in(each, name))), ""):
            return found
    return ""


def declared_in(*members: Any) -> str:
    """The media type that objects state for their content, in the same places."""
    stating = (one for member in members for one in (member, *_about(member)))
    return next((found for one in stating for name in _TYPE_NAMES if (found := string_in(one, name))), "")


def _about(found: Any) -> list[Any]:
    """The members of an object that describe it."""
    return [found.get(name) for name in _DESCRIBING] if isinstance(found, Mapping) else []


def _held(shape: Shape, inside: Any, member: str = "data", name: str = "") -> Attachment | None:
    """A content that is written as it is, with its type beside it."""
    if not isinstance(inside, Mapping) or not isinstance(payload := inside.get(member), str):
        return None
    return _written(shape, payload, declared_in(inside), name)


def _addressed(shape: Shape, inside: Any, name: str) -> Attachment | None:
    """`{"url": …}`, or the URL itself."""
    url = inside.get("url") if isinstance(inside, Mapping) else inside
    return _written(shape, url, name=name) if isinstance(url, str) else None


def _file(inside: Any, around: Any = None) -> Attachment | None:
    name = name_in(inside, around)
    for member in ("file_data", "data"):
        if isinstance(inside, Mapping) and isinstance(written := inside.get(member), str):
            return _written(Shape.FILE, written, declared_in(inside), name)
    elsewhere = string_in(inside, "file_url") or string_in(inside, "file_id") or string_in(inside, "url")
    return Attachment(Shape.FILE, address=elsewhere, name=name) if elsewhere else None


def _written(shape: Shape, text: str, declared: str = "", name: str = "") -> Attachment:
    """A content as it is written: an address, a data URL, or plain base64."""
    if is_address(text):
        return Attachment(shape, address=text, declared=declared, name=name or last_of(text))
    url = data_url(text)
    if url is None:
        return Attachment(shape, text, declared, name)
    claimed = url.declared or declared
    if url.is_base64:
        return Attachment(shape, url.payload, claimed, name, is_data_url=True)
    return Attachment(shape, declared=claimed, name=name, plain=unquote_to_bytes(url.payload), is_data_url=True)
