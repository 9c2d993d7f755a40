"""Binary content inside a text: a file decoded by force, base64 in JSON, data URIs, base64 of a known type.

Rule: base64 alone is a file only if it is long, begins with a signature and its bytes prove it; a claim beside it (a
data URI, a block, a declared type) is proof enough, however short it is. A text that is JSON stays JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import structs

from proxy.core.content_types import ContentKind, is_binary, media_type, mime_by_name, plain_mime
from proxy.core.content_types.texts import data_url, decoded, is_address, last_of, looks_decoded_by_force
from proxy.core.conversation.attachment import Attachment, Replacement, Shape
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.media_shapes.parts import attachment_of, declared_in, name_in
from proxy.wire.media_shapes.signs import MIN_CHARACTERS

Replace: TypeAlias = Callable[[Attachment], Replacement | None]
"""The replacement of a found content; None leaves it."""

_BASE64: Final = r"A-Za-z0-9+/_\-"
_DATA_URI: Final = re.compile(
    rf"data:([\w.+-]{{1,64}}/[\w.+-]{{1,128}})?((?:;[\w.+-]{{1,64}}=[^\s;,\"']{{0,128}}){{0,4}});base64,"
    rf"([%{_BASE64}]{{1,}}={{0,2}})",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(r"[_-]|%(?![0-9A-Fa-f]{2})")
"""In the short payload of a data URI: a placeholder in documentation (`YOUR_IMAGE`); RFC 2397 has only plain base64."""
_GOES_ON: Final = ("...", "…", "{", "$", "[")
"""What follows a short payload that is only the beginning, or that a program completes."""
_RUN: Final = re.compile(
    rf"(?<![{_BASE64}])(?:(?:[{_BASE64}]{{76}}\r?\n)+[{_BASE64}]{{0,76}}|(?:[{_BASE64}]{{64}}\r?\n)+[{_BASE64}]{{0,64}}"
    rf"|[{_BASE64}]{{{MIN_CHARACTERS},}})={{0,2}}(?![{_BASE64}=])"
)
"""On one line, or in lines as `base64` and PEM wrap them."""
_SIGNED: Final = re.compile(
    "iVBORw0KGgo|/9j/|R0lGOD|UklGR|Qk[0-3]|SUkqA|TU0AK|AAA[AB]|PHN2Z|JVBERi0|UEsDB|0M8R4KGxGuE|UmFyIR|N3q8ryc|H4sI"
    "|QlpoO|/Td6WF|KLUv|SUQz|T2dnUw|ZkxhQw|GkXfo|Rk9STQ|TVqQ|f0VMR|U1FMaXRl|ewpxdGY|d09G|OEJQUw"
)
"""The beginnings of the base64 of files that have a signature at their start."""
_BEGINS_AS_BASE64: Final = re.compile(rf"(?:[\r\n]{{0,2}}[{_BASE64}]){{{MIN_CHARACTERS}}}")
_DECODED_BY_FORCE: Final = re.compile("[\ufffd\x00-\x08\x0e-\x1a]|%PDF-")
_NAMES_OF_BASE64: Final = frozenset({"data", "blob", "base64", "bytes", "b64_json", "file_data"})
_NAMES_OF_CONTENT: Final = _NAMES_OF_BASE64 | {"content", "body", "file"}
_WORD: Final = re.compile(r"[A-Z]?[a-z]*|[A-Z]*|\d*")
"""Four characters that are as likely to be text as base64."""
_ROUTED: Final = {"image_url": "image/*", "file": ""}
"""Structured results, and the types that they claim."""
_ROUTED_MEMBERS: Final = frozenset({"imageUrl", "file", "artifact", "content"})
_CLAIMS: Final = {
    Shape.IMAGE: "image/*",
    Shape.VIDEO: "video/*",
    Shape.AUDIO: "audio/*",
    Shape.AUDIO_ADDRESS: "audio/*",
}
_MAX_DEPTH: Final = 100
_MAX_NODES: Final = 200_000
"""Of a JSON text that is walked through; a deeper or larger one is treated as plain text."""
_MAX_NESTED_TEXTS: Final = 8
"""JSON in strings of JSON."""


def with_replaced(text: str, replace: Replace, nested: int = 0) -> str:
    """A text in which each content that it contains is replaced by words."""
    if nested > _MAX_NESTED_TEXTS:
        return text
    if len(text) >= MIN_CHARACTERS and _DECODED_BY_FORCE.search(text) and looks_decoded_by_force(text):
        stands = replace(Attachment(Shape.FORCED, plain=text.encode("utf-8", "surrogatepass")))
        return text if stands is None else stands.words
    if text.lstrip()[:1] in ("{", "["):
        in_json = _in_json(text, replace, nested)
        if in_json is not None:
            return in_json
    return _in_plain(text, replace)


def _in_plain(text: str, replace: Replace) -> str:
    def uri(match: re.Match[str]) -> str:
        if len(match[3]) < MIN_CHARACTERS and not _is_short_content(match):
            return match[0]
        stands = replace(Attachment(Shape.TEXT, match[3], match[1] or "", is_data_url=True))
        return match[0] if stands is None else stands.words

    def run(match: re.Match[str]) -> str:
        stands = replace(Attachment(Shape.TEXT, match[0])) if _is_file(match[0]) else None
        return match[0] if stands is None else stands.words

    if ";base64," in text:
        text = _DATA_URI.sub(uri, text)
    return _RUN.sub(run, text) if _SIGNED.search(text) else text


def _is_short_content(uri: re.Match[str]) -> bool:
    """Whether a short data URI is a whole content of a declared type, and not a placeholder in documentation."""
    if not is_binary(uri[1] or "") or _PLACEHOLDER.search(uri[3]) or decoded(uri[3]) is None:
        return False
    return not uri.string.startswith(_GOES_ON, uri.end())


def _is_file(payload: str, *, is_whole: bool = False) -> bool:
    """Whether the bytes of a base64 text are a file of a known type; only a whole value may begin with anything."""
    if not is_whole and not _SIGNED.match(payload):
        return False
    content = decoded(payload)
    if content is None:
        # Broken or truncated: content that begins like a file counts as one.
        return _SIGNED.match(payload) is not None and _is_known(decoded(payload[: MIN_CHARACTERS // 4 * 4]) or b"")
    return _is_known(content)


def _is_known(content: bytes) -> bool:
    found = media_type(content)
    return found.kind is not ContentKind.TEXT and found.mime != plain_mime("bin")


def _in_json(text: str, replace: Replace, nested: int) -> str | None:
    """The same JSON with words instead of contents; None if it is not JSON, too large or too deep."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        opened = jsontext.value(raw)
    except jsontext.NotJson:
        return None
    if not isinstance(opened, dict | list) or not _is_small(opened):
        return None
    if isinstance(opened, dict) and jsontext.string_in(opened, "routing") in _ROUTED and nested == 0:
        changes = _routed_changes(opened, replace)
    else:
        changes = dict(_changes(opened, (), replace, nested))
    if not changes:
        return text
    try:
        return spliced(raw, changes).decode("utf-8", "surrogatepass")
    except (jsontext.NotJson, RecursionError):
        return None


def _is_small(found: Any) -> bool:
    """Whether a JSON value has few enough values and levels to be walked through. It is counted no further than needed,
    and level by level: which depth the decoder itself refuses depends on the version of Python."""
    count, containers = 1, [found]
    for _ in range(_MAX_DEPTH):
        inner = [value for one in containers for value in _inside(one)]
        count += len(inner)
        containers = [value for value in inner if isinstance(value, dict | list)]
        if not containers or count > _MAX_NODES:
            return count <= _MAX_NODES
    return False


def _inside(found: Any) -> Iterable[Any]:
    """The values to walk through; the bytes of a buffer are none."""
    if isinstance(found, dict):
        return () if found.get("type") == "Buffer" else found.values()
    return found if isinstance(found, list) else ()


def _routed_changes(found: Mapping[str, Any], replace: Replace) -> dict[Path, bytes | None]:
    """Like `_changes`, for a result that asks for its content to be shown, which may also be an address.

    If words replace the content, it becomes a text result: `{"routing": "text", "content": WORDS, "metadata": …}`.
    """
    changes: dict[Path, bytes | None] = {}
    described: dict[str, str] = {}
    is_shown = False

    def asked(attachment: Attachment) -> Replacement | None:
        return replace(structs.replace(attachment, is_asked_for=True))

    for name, item in found.items():
        attachment = _routed_content(found, name) if name in _ROUTED_MEMBERS else None
        stands = asked(attachment) if attachment is not None else None
        if stands is None:
            changes |= _changes(item, (name,), asked, 0)
        elif stands.is_shown:
            is_shown = True
            changes[(name,)] = jsontext.dump(stands.words)
        else:
            described[name] = stands.words
    if is_shown or not described:
        return changes | {(name,): jsontext.dump(words) for name, words in described.items()}
    changes |= dict.fromkeys([(name,) for name in described])
    said = found.get("content") if "content" not in described else None
    if isinstance(said, str) and said.strip():
        described["content"] = with_replaced(said, asked, 1)
    elif said:
        return changes | {(name,): jsontext.dump(words) for name, words in described.items()}
    return changes | {("routing",): b'"text"', ("content",): jsontext.dump("\n".join(described.values()))}


def _routed_content(found: Mapping[str, Any], member: str) -> Attachment | None:
    """The content in a member of a structured result: a part, the inside of one, an address, a data URL, base64."""
    item, name = found[member], name_in(found)
    declared = declared_in(found) or mime_by_name(name) or _ROUTED[found["routing"]]
    if isinstance(item, dict):
        inside = {"file": item} if member == "file" else {"image_url": item}
        block = attachment_of(item) or attachment_of(inside)
        if block is None or not _holds_content(block, item):
            return None
        return structs.replace(_in_text(block), declared=block.declared or declared, name=block.name or name)
    if not isinstance(item, str):
        return None
    if is_address(item):
        return Attachment(Shape.TEXT, address=item, declared=_ROUTED[found["routing"]], name=name or last_of(item))
    url = data_url(item)
    if url is not None:
        whole = Attachment(Shape.TEXT, url.payload, url.declared or declared, name, is_data_url=True)
        return whole if url.is_base64 else None
    is_alone = member != "content" or found.keys().isdisjoint(_ROUTED_MEMBERS - {"content"})
    is_claimed = _is_base64(item) and _is_claimed(declared, item, "data" if is_alone else member)
    if is_claimed or (_is_base64(item) and _is_file(item, is_whole=True)):
        return Attachment(Shape.TEXT, item, declared, name)
    return None


def _changes(
    found: Any, path: Path, replace: Replace, nested: int, around: str = ""
) -> Iterator[tuple[Path, bytes | None]]:
    """Where a JSON value has contents, and the JSON that replaces each. `around`: the file name that the enclosing
    object states."""
    if isinstance(found, str):
        yield from _string_changes(found, path, replace, nested)
    elif isinstance(found, list):
        for position, item in enumerate(found):
            yield from _changes(item, (*path, position), replace, nested)
    elif isinstance(found, dict):
        name = name_in(found) or around
        buffer = _buffer(found)
        if buffer is not None:
            stands = replace(Attachment(Shape.TEXT, plain=buffer, name=name))
            if stands is not None:
                yield path, jsontext.dump({"type": "text", "text": stands.words})
            return
        block = attachment_of(found) if isinstance(found.get("type"), str) else None
        if block is not None and _holds_content(block, found):
            stands = replace(structs.replace(_in_text(block), name=block.name or around))
            if stands is not None:
                yield path, jsontext.dump({"type": "text", "text": stands.words})
                return
        declared = declared_in(found)
        for member, item in found.items():
            if isinstance(item, str):
                claim = declared if member in _NAMES_OF_CONTENT else ""
                if member == "file_data":
                    claim = claim or mime_by_name(name)
                yield from _string_changes(item, (*path, member), replace, nested, claim, name)
            else:
                yield from _changes(item, (*path, member), replace, nested, name)


def _buffer(found: Mapping[str, Any]) -> bytes | None:
    """The bytes of a Node.js `Buffer` in JSON, if they are no text. https://nodejs.org/api/buffer.html#buftojson"""
    data = found.get("data")
    if found.get("type") != "Buffer" or not isinstance(data, list) or len(data) < MIN_CHARACTERS:
        return None
    try:
        content = bytes(data)
    except (TypeError, ValueError):
        return None
    return content if media_type(content).kind is not ContentKind.TEXT else None


def _string_changes(
    text: str, path: Path, replace: Replace, nested: int, declared: str = "", name: str = ""
) -> Iterator[tuple[Path, bytes]]:
    member = path[-1] if path else ""
    is_long = len(text) >= MIN_CHARACTERS
    if (
        (declared or is_long)
        and _is_base64(text)
        and (_is_claimed(declared, text, member) or _is_file(text, is_whole=True))
    ):
        stands = replace(Attachment(Shape.TEXT, text, declared, name))
        words = text if stands is None else stands.words
    elif is_long or ";base64," in text or text.lstrip()[:1] in ("{", "["):
        words = with_replaced(text, replace, nested + 1)
    else:
        return
    if words != text:
        yield path, jsontext.dump(words)


def _is_base64(text: str) -> bool:
    return bool(text) and not re.search(rf"[^{_BASE64}=\s]", text)


def _is_claimed(declared: str, payload: str, member: str | int) -> bool:
    """Whether a type other than text is declared beside a base64 text. A short payload counts in a member that holds
    base64; in a member that may also hold text, such as `content`, a word is left alone."""
    mime = plain_mime(declared)
    if not mime or mime.startswith("text/") or " " in payload or decoded(payload) is None:
        return False
    if len(payload) >= MIN_CHARACTERS:
        return True
    if not is_binary(declared):
        return False
    return member in _NAMES_OF_BASE64 or (len(payload) % 4 == 0 and not _WORD.fullmatch(payload))


def _holds_content(block: Attachment, found: Mapping[str, Any]) -> bool:
    """Whether something that looks like a block is one: APIs use `file`, `data` and `image_url` for many things whose
    value is a name, a path on their server or a text. Truncated base64 is recognised by its signature or declared type.
    """
    if block.is_elsewhere or block.is_data_url:
        return True
    if len(block.payload) < MIN_CHARACTERS:
        is_blob = found.get("type") == "resource" and decoded(block.payload) is not None
        return is_blob or _is_claimed(block.declared or mime_by_name(block.name), block.payload, "data")
    if not _BEGINS_AS_BASE64.match(block.payload):
        return False
    return bool(block.declared) or _SIGNED.match(block.payload) is not None or decoded(block.payload) is not None


def _in_text(block: Attachment) -> Attachment:
    """A block in JSON counts as content inside a text."""
    return structs.replace(block, shape=Shape.TEXT, declared=block.declared or _CLAIMS.get(block.shape, ""))
