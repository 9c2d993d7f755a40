"""Binary content inside a text: a file decoded by force, base64 in JSON, data URIs, base64 of a known type.

Rule: base64 alone is a file only when it begins with a signature and its bytes prove it; a claim beside it (a data URI,
a block, a declared type) is proof enough. A text that is JSON stays JSON.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from proxy.core import jsontext
from proxy.core.attachments.encoded import decoded, is_address
from proxy.core.attachments.found import Attachment, Shape
from proxy.core.attachments.parts import attachment_of, declared_in
from proxy.core.attachments.signs import MIN_CHARACTERS
from proxy.core.edits import Path, spliced
from proxy.core.media import Kind, looks_decoded_by_force, media_type, plain_mime

Replace: TypeAlias = Callable[[Attachment], str | None]
"""The words in the place of what was found; None leaves it."""

_BASE64: Final = r"A-Za-z0-9+/_\-"
_DATA_URI: Final = re.compile(
    rf"data:([\w.+-]{{1,64}}/[\w.+-]{{1,128}})?((?:;[\w.+-]{{1,64}}=[^\s;,\"']{{0,128}}){{0,4}});base64,"
    rf"([%{_BASE64}]{{{MIN_CHARACTERS},}}={{0,2}})",
    re.IGNORECASE,
)
_RUN: Final = re.compile(
    rf"(?<![{_BASE64}])(?:(?:[{_BASE64}]{{76}}\r?\n)+[{_BASE64}]{{0,76}}|(?:[{_BASE64}]{{64}}\r?\n)+[{_BASE64}]{{0,64}}"
    rf"|[{_BASE64}]{{{MIN_CHARACTERS},}})={{0,2}}(?![{_BASE64}=])"
)
"""On one line, or in lines as `base64` and PEM wrap them."""
_SIGNED: Final = re.compile(
    "iVBORw0KGgo|/9j/|R0lGOD|UklGR|Qk[0-3]|SUkqA|TU0AK|AAA[AB]|PHN2Z|JVBERi0|UEsDB|0M8R4KGxGuE|UmFyIR|N3q8ryc|H4sI"
    "|QlpoO|/Td6WF|KLUv|SUQz|T2dnUw|ZkxhQw|GkXfo|Rk9STQ|TVqQ|f0VMR|U1FMaXRl|ewpxdGY|d09G|OEJQUw"
)
"""How the base64 of files begins that have a signature at their start."""
_BEGINS_AS_BASE64: Final = re.compile(rf"(?:[\r\n]{{0,2}}[{_BASE64}]){{{MIN_CHARACTERS}}}")
_DECODED_BY_FORCE: Final = re.compile("[\ufffd\x00-\x08\x0e-\x1a]|%PDF-")
_NAMES_OF_CONTENT: Final = frozenset({"data", "blob", "base64", "content", "body", "bytes", "file", "b64_json"})
_ROUTED: Final = {"image_url": "image/*", "file": ""}
"""Structured results, and what they claim to hold."""
_ROUTED_MEMBERS: Final = frozenset({"imageUrl", "file", "artifact", "content"})
_CLAIMS: Final = {Shape.IMAGE: "image/*", Shape.VIDEO: "video/*", Shape.AUDIO: "audio/*", Shape.AUDIO_URL: "audio/*"}
_MAX_DEPTH: Final = 100
_MAX_NODES: Final = 200_000
"""Of a JSON text that is walked through; a larger one is read as plain text."""
_MAX_NESTED_TEXTS: Final = 8
"""JSON in strings of JSON."""


def with_replaced(text: str, replace: Replace, nested: int = 0) -> str:
    """The text with words in the place of each content that it holds."""
    if len(text) < MIN_CHARACTERS or nested > _MAX_NESTED_TEXTS:
        return text
    if _DECODED_BY_FORCE.search(text) and looks_decoded_by_force(text):
        words = replace(Attachment(Shape.FORCED, plain=text.encode("utf-8", "surrogatepass")))
        return text if words is None else words
    if text.lstrip()[:1] in ("{", "["):
        in_json = _in_json(text, replace, nested)
        if in_json is not None:
            return in_json
    return _in_plain(text, replace)


def _in_plain(text: str, replace: Replace) -> str:
    def uri(match: re.Match[str]) -> str:
        words = replace(Attachment(Shape.TEXT, match[3], match[1] or "", is_data_url=True))
        return match[0] if words is None else words

    def run(match: re.Match[str]) -> str:
        words = replace(Attachment(Shape.TEXT, match[0])) if _is_file(match[0]) else None
        return match[0] if words is None else words

    if ";base64," in text:
        text = _DATA_URI.sub(uri, text)
    return _RUN.sub(run, text) if _SIGNED.search(text) else text


def _is_file(payload: str, *, is_whole: bool = False) -> bool:
    """Whether the bytes of a base64 text are a file of a known type; only what is whole may begin with anything."""
    if not is_whole and not _SIGNED.match(payload):
        return False
    content = decoded(payload)
    if content is None:
        # Broken, or cut off by somebody: what begins like a file is one all the same.
        return _SIGNED.match(payload) is not None and _is_known(decoded(payload[: MIN_CHARACTERS // 4 * 4]) or b"")
    return _is_known(content)


def _is_known(content: bytes) -> bool:
    found = media_type(content)
    return found.kind is not Kind.TEXT and found.mime != plain_mime("bin")


def _in_json(text: str, replace: Replace, nested: int) -> str | None:
    """The same JSON with words in the place of contents; None when it is no JSON, or too much of it."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        opened = jsontext.value(raw)
    except jsontext.NotJson:
        return None
    if not isinstance(opened, dict | list) or _nodes(opened) > _MAX_NODES:
        return None
    if isinstance(opened, dict) and opened.get("routing") in _ROUTED and nested == 0:
        changes = dict(_routed_changes(opened, replace))
    else:
        changes = dict(_changes(opened, (), replace, nested))
    if not changes:
        return text
    try:
        return spliced(raw, changes).decode("utf-8", "surrogatepass")
    except (jsontext.NotJson, RecursionError):
        return None


def _nodes(found: Any) -> int:
    """How many values a JSON value holds, counted no further than needed."""
    count, left = 0, [found]
    while left and count <= _MAX_NODES:
        one = left.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += 1 + len(inner)
        left.extend(value for value in inner if isinstance(value, dict | list))
    return count


def _routed_changes(found: Mapping[str, Any], replace: Replace) -> Iterator[tuple[Path, bytes]]:
    """As `_changes`, of a result that says that its content is to be shown: an address will do for that, too."""

    def asked(attachment: Attachment) -> str | None:
        return replace(dataclasses.replace(attachment, is_asked_for=True))

    for name, item in found.items():
        if name in _ROUTED_MEMBERS and isinstance(item, str) and is_address(item):
            words = asked(Attachment(Shape.TEXT, address=item, declared=_ROUTED[found["routing"]]))
            if words is not None:
                yield (name,), jsontext.dump(words)
        else:
            yield from _changes(item, (name,), asked, 0)


def _changes(found: Any, path: Path, replace: Replace, nested: int) -> Iterator[tuple[Path, bytes]]:
    """Where in a JSON value contents stand, and the JSON that stands for each."""
    if isinstance(found, str):
        yield from _string_changes(found, path, replace, nested, "")
    elif len(path) >= _MAX_DEPTH:
        return
    elif isinstance(found, list):
        for position, item in enumerate(found):
            yield from _changes(item, (*path, position), replace, nested)
    elif isinstance(found, dict):
        block = attachment_of(found) if isinstance(found.get("type"), str) else None
        if block is not None and _holds_content(block):
            words = replace(_in_text(block))
            if words is not None:
                yield path, jsontext.dump({"type": "text", "text": words})
                return
        declared = declared_in(found)
        for name, item in found.items():
            if isinstance(item, str):
                claim = declared if name in _NAMES_OF_CONTENT else ""
                yield from _string_changes(item, (*path, name), replace, nested, claim)
            else:
                yield from _changes(item, (*path, name), replace, nested)


def _string_changes(
    text: str, path: Path, replace: Replace, nested: int, declared: str
) -> Iterator[tuple[Path, bytes]]:
    if len(text) < MIN_CHARACTERS:
        return
    words: str | None
    is_base64 = not re.search(rf"[^{_BASE64}=\s]", text)
    if is_base64 and (_is_claimed(declared, text) or _is_file(text, is_whole=True)):
        words = replace(Attachment(Shape.TEXT, text, declared))
    else:
        words = with_replaced(text, replace, nested + 1)
    if words is not None and words != text:
        yield path, jsontext.dump(words)


def _is_claimed(declared: str, payload: str) -> bool:
    """Whether a type that is no text is declared beside a base64 text."""
    mime = plain_mime(declared)
    return bool(mime) and not mime.startswith("text/") and " " not in payload and decoded(payload) is not None


def _holds_content(block: Attachment) -> bool:
    """Whether what looks like a block is one: APIs call many a thing `file`, `data` and `image_url`, whose value is a
    name, a path on their server or a text. Base64 that was cut off is told by its signature, or by its declared type.
    """
    if block.is_elsewhere or block.is_data_url:
        return True
    if not _BEGINS_AS_BASE64.match(block.payload):
        return False
    return bool(block.declared) or _SIGNED.match(block.payload) is not None or decoded(block.payload) is not None


def _in_text(block: Attachment) -> Attachment:
    """A block that stands in JSON came inside a text."""
    return dataclasses.replace(block, shape=Shape.TEXT, declared=block.declared or _CLAIMS.get(block.shape, ""))
