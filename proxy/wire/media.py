"""Binary content in messages, in the parts of each API or inside texts.

Rule: nothing here raises. A part is recognised by its members; a member of an odd type means that it is not media, and
is left to the upstream. In a text, only whole values are found, and only those that a signature, a data URI or a
declared type proves to be a file: base64 alone has to be long and to begin with a signature, and a claim beside it is
proof enough, however short it is. A text that is JSON stays JSON.

https://platform.openai.com/docs/api-reference/chat/create (image_url, input_audio, file),
https://docs.vllm.ai/en/latest/features/multimodal_inputs.html (video_url, audio_url),
https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result (image, audio, resource),
https://docs.anthropic.com/en/api/messages (source), https://ai.google.dev/api/caching#Blob (inline_data).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import structs

from proxy.core.content_types import (
    BINARY,
    ContentKind,
    data_url,
    decoded,
    is_address,
    is_binary,
    last_of,
    looks_decoded_by_force,
    media_type,
    mime_by_name,
    plain_mime,
)
from proxy.core.conversation import REMOTE, Attachment, Replacement, Shape
from proxy.core.text import Path, jsontext

Replace: TypeAlias = Callable[[Attachment], Replacement | None]
"""The replacement of a found content; None leaves it."""

MIN_CHARACTERS: Final = 64
"""Shortest base64 in a text that is not declared as a file: shorter runs are words, names and hashes."""
ADDRESSED: Final = ("url", "file_url", "file_data", "file_id")
"""Members in which a part names its image or file. `file_url` is that of the Responses API."""

_URL: Final = "url"
_FILE: Final = "file_data"
_PARTS: Final = (
    ("image_url", Shape.IMAGE, _URL),
    ("video_url", Shape.VIDEO, _URL),
    ("audio_url", Shape.AUDIO_ADDRESS, _URL),
    ("input_audio", Shape.AUDIO, "data"),
    ("inline_data", Shape.BLOCK, "data"),
    ("inlineData", Shape.BLOCK, "data"),
    ("file", Shape.FILE, _FILE),
)
"""The member of a part · its shape · the member of that member with the content."""
_TYPE_NAMES: Final = ("mimeType", "mime_type", "media_type", "mediaType", "content_type", "contentType", "format")
_FILE_NAMES: Final = ("filename", "file_name", "fileName", "name", "title", "display_name", "displayName")
_DESCRIBING: Final = ("metadata", "meta")
_BLOCK_TYPES: Final = frozenset({"image", "audio", "video", "document", "file"})

_BASE64_BYTES: Final = (string.ascii_letters + string.digits + "+/_-").encode()
_AS_RUNS: Final = bytes(ord("a") if byte in _BASE64_BYTES else ord(" ") for byte in range(256))
_LONG_RUN: Final = b"a" * MIN_CHARACTERS
OTHER_PART: Final = re.compile(rb'"type"\s*:\s*"(?!text"|function")')
_NAME: Final = re.compile(rb'\\"(?:[ \t]|\\+[nrt])*:')
"""The end of a JSON name in a text, where its quotes are escaped. Searched first: most texts are no JSON, and eleven
names take five times as long."""
_DECLARED: Final = (
    b"routing\\",
    b"resource\\",
    b"file_data\\",
    b"format\\",
    b"Buffer\\",
    *(name + end + b"\\" for name in (b"mime", b"media", b"content") for end in (b"_type", b"Type")),
)
"""The end of a JSON name in a text that announces content of any length."""

_BASE64: Final = r"A-Za-z0-9+/_\-"
_DATA_URI: Final = re.compile(
    rf"data:([\w.+-]{{1,64}}/[\w.+-]{{1,128}})?((?:;[\w.+-]{{1,64}}=[^\s;,\"']{{0,128}}){{0,4}});base64,"
    rf"([%{_BASE64}]{{1,}}={{0,2}})",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(r"[_-]|%(?![0-9A-Fa-f]{2})")
"""Marks the payload of a data URI as a placeholder in documentation (`YOUR_IMAGE`); RFC 2397 has only plain base64."""
_GOES_ON: Final = ("...", "…", "{", "$", "[")
"""Follows a short payload that is only the beginning, or that a program completes."""
_RUN: Final = re.compile(
    rf"(?<![{_BASE64}])(?:(?:[{_BASE64}]{{76}}\r?\n)+[{_BASE64}]{{0,76}}|(?:[{_BASE64}]{{64}}\r?\n)+[{_BASE64}]{{0,64}}"
    rf"|[{_BASE64}]{{{MIN_CHARACTERS},}})={{0,2}}(?![{_BASE64}=])"
)
"""A run of base64 on one line, or wrapped as `base64` and PEM do."""
_SIGNED: Final = re.compile(
    "iVBORw0KGgo|/9j/|R0lGOD|UklGR|Qk[0-3]|SUkqA|TU0AK|AAA[AB]|PHN2Z|JVBERi0|UEsDB|0M8R4KGxGuE|UmFyIR|N3q8ryc|H4sI"
    "|QlpoO|/Td6WF|KLUv|SUQz|T2dnUw|ZkxhQw|GkXfo|Rk9STQ|TVqQ|f0VMR|U1FMaXRl|ewpxdGY|d09G|OEJQUw"
)
"""The beginnings of the base64 of files that have a signature at their start."""
_NOT_BASE64: Final = re.compile(rf"[^{_BASE64}=\s]")
_BEGINS_AS_BASE64: Final = re.compile(rf"(?:[\r\n]{{0,2}}[{_BASE64}]){{{MIN_CHARACTERS}}}")
_PERCENT: Final = ord("%")
_ESCAPED_BY_FORCE: Final = re.compile(rb"\\u(?:00|fffd|FFFD)")
_DECODED_BY_FORCE: Final = re.compile("[\ufffd\x00-\x08\x0e-\x1a]|%PDF-")
_NAMES_OF_BASE64: Final = frozenset({"data", "blob", "base64", "bytes", "b64_json", "file_data"})
_NAMES_OF_CONTENT: Final = _NAMES_OF_BASE64 | {"content", "body", "file"}
_WORD: Final = re.compile(r"[A-Z]?[a-z]*|[A-Z]*|\d*")
"""Four characters that are as likely to be text as base64."""
_ROUTED: Final = {"image_url": "image/*", "file": ""}
"""Structured results, and the types that they claim."""
_ROUTED_MEMBERS: Final = ("imageUrl", "file", "artifact", "content")
_CLAIMS: Final = {
    Shape.IMAGE: "image/*",
    Shape.VIDEO: "video/*",
    Shape.AUDIO: "audio/*",
    Shape.AUDIO_ADDRESS: "audio/*",
}
_MAX_DEPTH: Final = 100
_MAX_NODES: Final = 200_000
"""Limit of a JSON text that is walked through; a deeper or larger one is treated as plain text."""
_MAX_NESTED_TEXTS: Final = 8
"""JSON in strings of JSON."""


def may_hold_media(raw: bytes, other_part: re.Pattern[bytes] | None = OTHER_PART) -> bool:
    """Whether a message may contain media, judged by the bytes of its JSON. `other_part`: the sign of a part other than
    plain text on its wire; None if its content has no parts.

    >>> may_hold_media(b'{"role":"user","content":"look at a.png"}'), may_hold_media(b'{"type":"image_url"}')
    (False, True)
    """
    # `find`: for bytes, `in` makes an error and drops it, which takes half a microsecond; for one byte it does not.
    return (
        raw.translate(_AS_RUNS).find(_LONG_RUN) >= 0
        or (other_part is not None and other_part.search(raw) is not None)
        or raw.find(b";base64,") >= 0
        # Decoded by force: U+FFFD or a control character, literal or escaped; or a document that is all ASCII.
        or (0xEF in raw and raw.find(b"\xef\xbf\xbd") >= 0)
        or (_PERCENT in raw and raw.find(b"%PDF-") >= 0)
        or (_NAME.search(raw) is not None and max(map(raw.find, _DECLARED)) >= 0)
        or _ESCAPED_BY_FORCE.search(raw) is not None
    )


def attachment_of(part: Mapping[str, Any]) -> Attachment | None:
    """The content of a part; None for text, and for anything unrecognised."""
    for member, shape, holding in _PARTS:
        if member in part:
            return _held(shape, part[member], holding, part)
    kind = jsontext.string_in(part, "type")
    if kind == "input_file":
        return _held(Shape.FILE, part, _FILE)
    if kind == "resource":
        resource = part.get("resource")
        return _held(Shape.BLOCK, resource, "blob", part, {"name": last_of(jsontext.string_in(resource, "uri"))})
    source = part.get("source", part)
    if kind not in _BLOCK_TYPES or jsontext.string_in(source, "type") == "text":
        return None
    if is_address(address := jsontext.string_in(source, "url")):
        return Attachment(Shape.BLOCK, address=address, declared=f"{kind}/*", name=name_in(source, part))
    return _held(Shape.BLOCK, source, "data", part)


def _held(shape: Shape, inside: Any, holding: str, *around: Any) -> Attachment | None:
    """The content that an object holds, or that a URL without one is."""
    name = name_in(inside, *around)
    if isinstance(inside, str) and holding == _URL:
        return written(shape, inside, "", name)
    if not isinstance(inside, Mapping):
        return None
    for member in (holding, "data") if holding == _FILE else (holding,):
        if isinstance(text := inside.get(member), str):
            return written(shape, text, declared_in(inside), name)
    elsewhere = (jsontext.string_in(inside, member) for member in ("file_url", "file_id", "url") if holding == _FILE)
    address = next(filter(None, elsewhere), "")
    return Attachment(shape, address=address, name=name) if address else None


def written(shape: Shape, text: str, declared: str, name: str) -> Attachment:
    """A content as it is written: an address, a data URL, or plain base64."""
    if is_address(text):
        return Attachment(shape, address=text, declared=declared, name=name or last_of(text))
    if (url := data_url(text)) is None:
        return Attachment(shape, text, declared, name)
    payload, plain = (url.payload, None) if url.is_base64 else ("", unquote_to_bytes(url.payload))
    return Attachment(shape, payload, url.declared or declared, name, plain=plain, is_data_url=True)


def name_in(*members: Any) -> str:
    """The file name that objects state for their content, themselves, in their `metadata` or in their `meta`; the first
    object with a name decides.

    >>> name_in({"data": "…"}, {"name": "a", "meta": {"filename": "b.png"}})
    'b.png'
    """
    for one in members:
        stating = [one, *_about(one)]
        if found := next(
            (found for name in _FILE_NAMES for each in stating if (found := jsontext.string_in(each, name))), ""
        ):
            return found
    return ""


def declared_in(*members: Any) -> str:
    """The media type that objects state for their content, in the same places."""
    stating = (one for member in members for one in (member, *_about(member)))
    return next((found for one in stating for name in _TYPE_NAMES if (found := jsontext.string_in(one, name))), "")


def _about(found: Any) -> list[Any]:
    """The members of an object that describe it."""
    return [found.get(name) for name in _DESCRIBING] if isinstance(found, Mapping) else []


def addresses_in(content: Any, *, is_result: bool) -> Iterator[str]:
    """The addresses in a `content` whose targets are elsewhere. Files on the web are left to the upstream to fetch or
    refuse; only images are fetched here."""
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield from _routed_addresses(text) if is_result else ()
        elif isinstance(part, Mapping) and (found := attachment_of(part)):
            yield from _address(found, may_be_remote="image_url" in part)


def _routed_addresses(text: str) -> Iterator[str]:
    """The addresses in a structured result: `{"routing": "image_url", "imageUrl": PART}`, `{"routing": "file", "file":
    …}`, and either with `"artifact": "artifact:ID"` or `content` instead of the part. A `text` is text."""
    is_routed = '"routing"' in text and text.lstrip().startswith("{")
    found: Any = jsontext.opened(text.encode("utf-8", "surrogatepass")) if is_routed else None
    if jsontext.string_in(found, "routing") not in _ROUTED:
        return
    for member in _ROUTED_MEMBERS:
        item = found.get(member)
        if (isinstance(item, dict) or (isinstance(item, str) and is_address(item))) and (
            block := _routed_content(found, member)
        ):
            yield from _address(block, may_be_remote=member == "imageUrl")


def _address(found: Attachment, *, may_be_remote: bool) -> Iterator[str]:
    if found.address and (may_be_remote or not REMOTE.match(found.address)):
        yield found.address


def with_replaced(text: str, replace: Replace, nested: int = 0) -> str:
    """A text in which each content that it contains is replaced by words."""
    if nested > _MAX_NESTED_TEXTS:
        return text
    if len(text) >= MIN_CHARACTERS and _DECODED_BY_FORCE.search(text) and looks_decoded_by_force(text):
        return _words(replace, Attachment(Shape.FORCED, plain=text.encode("utf-8", "surrogatepass")), text)
    in_json = _in_json(text, replace, nested) if text.lstrip()[:1] in ("{", "[") else None
    return _in_plain(text, replace) if in_json is None else in_json


def _words(replace: Replace, attachment: Attachment, text: str) -> str:
    """The replacement of a text that is a content."""
    replacement = replace(attachment)
    return text if replacement is None else replacement.words


def _in_plain(text: str, replace: Replace) -> str:
    def uri(match: re.Match[str]) -> str:
        if len(match[3]) < MIN_CHARACTERS and not _is_short_content(match):
            return match[0]
        return _words(replace, Attachment(Shape.TEXT, match[3], match[1] or "", is_data_url=True), match[0])

    def run(match: re.Match[str]) -> str:
        return _words(replace, Attachment(Shape.TEXT, match[0]), match[0]) if _is_file(match[0]) else match[0]

    if ";base64," in text:
        text = _DATA_URI.sub(uri, text)
    return _RUN.sub(run, text) if _SIGNED.search(text) else text


def _is_short_content(uri: re.Match[str]) -> bool:
    """Whether a short data URI is a whole content of a declared type, and not a placeholder in documentation."""
    is_complete = not _PLACEHOLDER.search(uri[3]) and not uri.string.startswith(_GOES_ON, uri.end())
    return is_complete and is_binary(uri[1] or "") and decoded(uri[3]) is not None


def _is_file(payload: str, *, is_whole: bool = False) -> bool:
    """Whether the bytes of a base64 text are a file of a known type; only a whole value may begin with anything. Broken
    or truncated, it counts as one if it begins like a file."""
    is_signed = _SIGNED.match(payload) is not None
    content = decoded(payload) if is_signed or is_whole else b""
    if content is None and is_signed:
        content = decoded(payload[: MIN_CHARACTERS // 4 * 4])
    found = media_type(content or b"")
    return found.kind is not ContentKind.TEXT and found.mime != BINARY


def _in_json(text: str, replace: Replace, nested: int) -> str | None:
    """JSON with words instead of contents; None if it is not JSON, too large or too deep."""
    raw = text.encode("utf-8", "surrogatepass")
    opened: Any = jsontext.opened(raw)
    if not isinstance(opened, dict | list) or not _is_small(opened):
        return None
    if isinstance(opened, dict) and jsontext.string_in(opened, "routing") in _ROUTED and nested == 0:
        changes = _routed_changes(opened, replace)
    else:
        changes = dict(_changes(opened, (), replace, nested))
    return jsontext.spliced(raw, changes).decode("utf-8", "surrogatepass") if changes else text


def _is_small(found: Any) -> bool:
    """Whether a JSON value has few enough values and levels to be walked through. It is counted no further than needed,
    and level by level: which depth the decoder itself refuses depends on the version of Python."""
    count, containers = 1, [] if _is_buffer(found) else [found]
    for _ in range(_MAX_DEPTH):
        inner = [value for one in containers for value in (one.values() if isinstance(one, dict) else one)]
        count += len(inner)
        containers = [value for value in inner if isinstance(value, dict | list) and not _is_buffer(value)]
        if not containers or count > _MAX_NODES:
            return count <= _MAX_NODES
    return False


def _is_buffer(found: Any) -> bool:
    """Whether this is a `Buffer` of Node.js: https://nodejs.org/api/buffer.html#buftojson"""
    return isinstance(found, dict) and found.get("type") == "Buffer" and isinstance(found.get("data"), list)


def _routed_changes(found: Mapping[str, Any], replace: Replace) -> dict[Path, bytes | None]:
    """`_changes` for a result that routes its content, which may also be an address.

    If words replace the content, it becomes a text result: `{"routing": "text", "content": WORDS, "metadata": …}`.
    """
    changes: dict[Path, bytes | None] = {}
    words: dict[str, str] = {}
    is_shown = False

    def replacement_for(attachment: Attachment) -> Replacement | None:
        return replace(structs.replace(attachment, is_asked_for=True))

    for name, item in found.items():
        attachment = _routed_content(found, name) if name in _ROUTED_MEMBERS else None
        replacement = replacement_for(attachment) if attachment is not None else None
        if replacement is None:
            changes |= _changes(item, (name,), replacement_for, 0)
        else:
            words[name], is_shown = replacement.words, is_shown or replacement.is_shown
    content = None if "content" in words else found.get("content")
    if is_shown or not words or (content and not (isinstance(content, str) and content.strip())):
        return changes | {(name,): jsontext.dump(text) for name, text in words.items()}
    changes |= {(name,): None for name in words}
    if content:
        words["content"] = with_replaced(content, replacement_for, 1)
    return changes | {("routing",): b'"text"', ("content",): jsontext.dump("\n".join(words.values()))}


def _routed_content(found: Mapping[str, Any], member: str) -> Attachment | None:
    """The content in a member of a structured result: a part, the inside of one, an address, a data URL, base64."""
    item, name, routed = found[member], name_in(found), _ROUTED[found["routing"]]
    declared = declared_in(found) or mime_by_name(name) or routed
    if isinstance(item, dict):
        block = attachment_of(item) or attachment_of({"file" if member == "file" else "image_url": item})
        if block is None or not _holds_content(block, item):
            return None
        return structs.replace(_in_text(block), declared=block.declared or declared, name=block.name or name)
    if not isinstance(item, str):
        return None
    whole = written(Shape.TEXT, item, routed if is_address(item) else declared, name)
    if whole.is_elsewhere or whole.is_data_url:
        return whole if whole.plain is None else None
    is_alone = member != "content" or found.keys().isdisjoint(_ROUTED_MEMBERS[:-1])
    return whole if _is_content(item, declared, "data" if is_alone else member) else None


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
        whole = _whole(found, around)
        replacement = replace(whole) if whole is not None else None
        if replacement is not None:
            yield path, jsontext.dump({"type": "text", "text": replacement.words})
        if replacement is not None or _is_buffer(found):
            return
        name, declared = name_in(found) or around, declared_in(found)
        for member, item in found.items():
            if isinstance(item, str):
                claim = declared if member in _NAMES_OF_CONTENT else ""
                if member == "file_data":
                    claim = claim or mime_by_name(name)
                yield from _string_changes(item, (*path, member), replace, nested, claim, name)
            else:
                yield from _changes(item, (*path, member), replace, nested, name)


def _whole(found: Mapping[str, Any], around: str) -> Attachment | None:
    """The content that an object is: a block, or the bytes of a buffer if they are no text."""
    if not _is_buffer(found):
        block = attachment_of(found) if jsontext.string_in(found, "type") else None
        is_one = block is not None and _holds_content(block, found)
        return structs.replace(_in_text(block), name=block.name or around) if block and is_one else None
    try:
        content = bytes(found["data"])
    except (TypeError, ValueError):
        return None
    is_text = len(content) < MIN_CHARACTERS or media_type(content).kind is ContentKind.TEXT
    return None if is_text else Attachment(Shape.TEXT, plain=content, name=name_in(found) or around)


def _string_changes(
    text: str, path: Path, replace: Replace, nested: int, declared: str = "", name: str = ""
) -> Iterator[tuple[Path, bytes]]:
    words, is_long = text, len(text) >= MIN_CHARACTERS
    if (declared or is_long) and _is_content(text, declared, path[-1] if path else ""):
        words = _words(replace, Attachment(Shape.TEXT, text, declared, name), text)
    elif is_long or ";base64," in text or text.lstrip()[:1] in ("{", "["):
        words = with_replaced(text, replace, nested + 1)
    if words != text:
        yield path, jsontext.dump(words)


def _is_content(text: str, declared: str, member: str | int) -> bool:
    """Whether a whole string is the base64 of a content."""
    if not text or _NOT_BASE64.search(text):
        return False
    return _is_claimed(declared, text, member) or _is_file(text, is_whole=True)


def _is_claimed(declared: str, payload: str, member: str | int) -> bool:
    """Whether a type other than text is declared beside a base64 text. A short payload counts in a member that holds
    base64; in a member that may also hold text, such as `content`, a word is left alone."""
    mime, is_long = plain_mime(declared), len(payload) >= MIN_CHARACTERS
    if not mime or mime.startswith("text/") or " " in payload or not (is_long or is_binary(declared)):
        return False
    is_no_word = member in _NAMES_OF_BASE64 or (len(payload) % 4 == 0 and not _WORD.fullmatch(payload))
    return (is_long or is_no_word) and decoded(payload) is not None


def _holds_content(block: Attachment, found: Mapping[str, Any]) -> bool:
    """Whether something that looks like a block is one: APIs use `file`, `data` and `image_url` for many things whose
    value is a name, a path on their server or a text. Truncated base64 is recognised by its signature or declared type.
    """
    if block.is_elsewhere or block.is_data_url:
        return True
    if len(block.payload) < MIN_CHARACTERS:
        is_blob = found.get("type") == "resource" and decoded(block.payload) is not None
        return is_blob or _is_claimed(block.declared or mime_by_name(block.name), block.payload, "data")
    is_file = bool(block.declared or _SIGNED.match(block.payload)) or decoded(block.payload) is not None
    return is_file and _BEGINS_AS_BASE64.match(block.payload) is not None


def _in_text(block: Attachment) -> Attachment:
    """A block in JSON counts as content inside a text."""
    return structs.replace(block, shape=Shape.TEXT, declared=block.declared or _CLAIMS.get(block.shape, ""))
