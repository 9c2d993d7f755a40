"""Bytes that are text, and the kind of text.

Rule: a text is valid in its encoding and free of bytes that no text contains; only a bounded part of a long one is
examined.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Final

_SAMPLE_BYTES: Final = 65_536
"""From each end."""
_PARSED_BYTES: Final = 4_096
"""JSON up to this size is parsed; longer JSON is recognised by its ends."""
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, which begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\a\x1b"))
"""Bytes that no text contains, except by accident."""
_ACCIDENTS: Final = 0.01
"""The share of such bytes that a text may have: a NUL in a log."""
_HTML: Final = re.compile(r"(?:<!--.{0,2000}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_JSON_START: Final = re.compile(r"\{\s*[\"}]|\[\s*(?:[\"\[{\]]|-?\d+(?:\.\d+)?\s*,|true\b|false\b|null\b)")


def text_of(content: bytes) -> str | None:
    """The text that these bytes encode, or None: in UTF-8, or as a byte order mark says.

    >>> text_of("naïve".encode()), text_of("naïve".encode("utf-16")), text_of("naïve".encode("latin-1"))
    ('naïve', 'naïve', None)
    """
    try:
        return content.decode(_encoding(content))
    except UnicodeDecodeError:
        return None


def is_text(content: bytes) -> bool:
    """Whether these bytes are Unicode text without bytes that no text contains."""
    head = _head(content)
    if not head:
        return False
    sample = head.encode()
    if _encoding(content) == "utf-8" and len(content) > _SAMPLE_BYTES:
        tail = _tail(content)
        if text_of(tail) is None:
            return False
        sample += tail
    return len(sample) - len(sample.translate(None, _CONTROLS)) <= len(sample) * _ACCIDENTS


def may_be_text(content: bytes) -> bool:
    """Whether these bytes may be text in a national encoding."""
    sample = content[:_SAMPLE_BYTES]
    return len(sample) == len(sample.translate(None, _CONTROLS))


def mime_of_text(content: bytes) -> str:
    """HTML, SVG, XML or JSON by its beginning; empty for other texts."""
    text = (_head(content) or "").lstrip()
    if text.startswith("<"):
        if _HTML.match(text):
            return "text/html"
        root = _root(text)
        if re.match(r"<(?:\w{1,20}:)?svg[\s>/]", root):
            return "image/svg+xml"
        if re.match(r"<html\b", root, re.IGNORECASE):
            return "text/html"
        return "application/xml" if text.startswith("<?xml") else ""
    return "application/json" if _is_json(content, text) else ""


def _root(text: str) -> str:
    """From the root element on: declarations and comments come before it."""
    for _ in range(64):
        if text.startswith("<!--"):
            end = "-->"
        elif text.startswith("<?"):
            end = "?>"
        elif text.startswith("<!"):
            head = text.partition(">")[0]
            end = "]>" if "[" in head else ">"
        else:
            break
        text = text.partition(end)[2].lstrip()
    return text


def _is_json(content: bytes, head: str) -> bool:
    if not _JSON_START.match(head) or content[-64:].rstrip()[-1:] not in (b"}", b"]", b"\0"):
        return False
    if len(content) > _PARSED_BYTES:
        return True
    try:
        json.loads(text_of(content) or "")
    except (ValueError, RecursionError):
        return False
    return True


def _encoding(content: bytes) -> str:
    return next((name for mark, name in _BOMS if content.startswith(mark)), "utf-8")


def _head(content: bytes) -> str | None:
    """The text of the beginning, up to the end of a character."""
    decoder = codecs.getincrementaldecoder(_encoding(content))()
    try:
        return decoder.decode(content[:_SAMPLE_BYTES], final=len(content) <= _SAMPLE_BYTES)
    except UnicodeDecodeError:
        return None


def _tail(content: bytes) -> bytes:
    """The end of a UTF-8 text, starting at a character."""
    start = len(content) - _SAMPLE_BYTES
    while start < len(content) - _SAMPLE_BYTES + 4 and content[start] & 0xC0 == 0x80:
        start += 1
    return content[start:]
