"""Which bytes are a text, which text is really a file.

Rule: nothing here raises. Real text, in any language, is never taken for a file; of base64, whatever a lenient reader
accepts is accepted (line breaks, missing padding, the URL alphabet). Only a bounded part of a long content is examined.
"""

from __future__ import annotations

import binascii
import codecs
import json
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

_SAMPLE_BYTES: Final = 65_536
"""Bytes read from each end."""
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
"""C0 without whitespace and without the characters that control terminals: no text has them, except by accident."""
_CONTINUED: Final = bytes(range(0x80, 0xC0))
"""Bytes within a character of UTF-8."""
_ACCIDENTS: Final = 0.01
"""The share of control characters that a text may have: a NUL in a log."""
_HTML: Final = re.compile(r"(?:<!--.{0,2000}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_BEFORE_ROOT: Final = re.compile(
    r"(?:<!--.*?(?:-->|\Z)\s*|<\?.*?(?:\?>|\Z)\s*|<![^>\[]*(?:>|\[.*?(?:\]>|\Z)|\Z)\s*){0,64}", re.DOTALL
)
"""Comments, instructions and declarations."""
_ROOTS: Final = (
    (re.compile(r"<(?:\w{1,20}:)?svg[\s>/]"), "image/svg+xml"),
    (re.compile(r"<html\b", re.IGNORECASE), "text/html"),
)
_JSON_START: Final = re.compile(r"\{\s*[\"}]|\[\s*(?:[\"\[{\]]|-?\d+(?:\.\d+)?\s*,|true\b|false\b|null\b)")

_WINDOW_CHARACTERS: Final = 16_384
"""Examined from the beginning, the middle and the end."""
_NOT_OF_TEXT: Final = re.compile("[\0-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
"""Control characters, and the one that replaces invalid UTF-8."""
_BAD_SHARE: Final = 0.2
"""Replaced and control characters together. A compressed file has 0.4 to 0.6."""
_CONTROL_SHARE: Final = 0.02
"""A text in another encoding (GBK, Latin-1) has none, however much was replaced; its Latin words are still readable."""
_REPLACED_SHARE: Final = 0.01
"""A list separated by NUL, or a stream of frames around lines (Docker's), has none."""
_MOSTLY_CONTROLS: Final = 0.5
"""This share is enough by itself."""
_BAD_CHARACTERS: Final = 16
"""At least this many, so that one or two lines do not count as a file."""

_SIGNATURE: Final = re.compile(
    "[\ufffd\x89]PNG\r?\n\x1a|[\ufffdÿ][\ufffdØ][\ufffdÿ].(?:\0|.{1,3}(?:JFIF|Exif|Adobe))|GIF8[79]a.{0,8}[\ufffd\0]"
    "|PK\x03\x04|\x7fELF[\x01\x02]|ID3[\x02-\x04]\0|%PDF-\\d\\.\\d[ \t]*[\r\n].{0,1024}?(?<!\\d)\\d{1,9} \\d{1,9} obj"
    "|\x1f[\ufffd\x8b]\x08|7z[\ufffd¼][\ufffd¯]'\x1c|Rar!\x1a\x07|[\ufffdý]7zXZ\0|OggS\0|fLaC[\0\ufffd\x80]\0"
    "|\0\0\0.ftyp|RIFF.{1,4}(?:WAVEfmt |WEBPVP8|AVI LIST)|[\ufffdÐ][\ufffdÏ]\x11|\x1aE[\ufffdß][\ufffd£]"
    "|8BPS\0\x01|BM.{1,4}\0{4}.\0{3}|\0\0\0\x0cjP  |0&.{1,2}u.f.\x11"
    "|SQLite format 3\0|BZh[1-9]1AY&SY|II\\*\0|MM\0\\*|\0asm\x01",
    re.DOTALL,
)
"""The beginnings of the files in `signatures.py` after they were decoded as UTF-8 or Latin-1."""

_MAX_HEAD_CHARACTERS: Final = 1_000
"""Limit of a data URL before its comma: a type and a few parameters."""
_URL_ALPHABET: Final = str.maketrans("-_", "+/")
_ADDRESS: Final = re.compile(r"(?!data:)[a-z][a-z0-9+.-]{1,30}:", re.IGNORECASE)
"""No base64 contains a colon. `https:`, `gs:`, `file:`, our own `artifact:`."""


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
    sample = _head(content).encode()
    if sample and _encoding(content) == "utf-8" and len(content) > _SAMPLE_BYTES:
        tail = content[-_SAMPLE_BYTES:].lstrip(_CONTINUED)
        sample = b"" if text_of(tail) is None else sample + tail
    return bool(sample) and _controls_in(sample) <= len(sample) * _ACCIDENTS


def may_be_text(content: bytes) -> bool:
    """Whether these bytes may be text in a national encoding."""
    return not _controls_in(content[:_SAMPLE_BYTES])


def mime_of_text(content: bytes) -> str:
    """HTML, SVG, XML or JSON by its beginning; empty for other texts."""
    text = _head(content).lstrip()
    if not text.startswith("<"):
        return "application/json" if _is_json(content, text) else ""
    if _HTML.match(text):
        return "text/html"
    before = _BEFORE_ROOT.match(text)
    start = before.end() if before else 0
    stated = "application/xml" if text.startswith("<?xml") else ""
    return next((mime for root, mime in _ROOTS if root.match(text, start)), stated)


def _is_json(content: bytes, head: str) -> bool:
    if not _JSON_START.match(head) or content[-64:].rstrip()[-1:] not in (b"}", b"]", b"\0"):
        return False
    try:
        return len(content) > _PARSED_BYTES or json.loads(text_of(content) or "") is not None
    except (ValueError, RecursionError):
        return False


def _encoding(content: bytes) -> str:
    return next((name for mark, name in _BOMS if content.startswith(mark)), "utf-8")


def _head(content: bytes) -> str:
    """The text of the beginning, up to the end of a character; empty if it is none."""
    decoder = codecs.getincrementaldecoder(_encoding(content))()
    try:
        return decoder.decode(content[:_SAMPLE_BYTES], final=len(content) <= _SAMPLE_BYTES)
    except UnicodeDecodeError:
        return ""


def _controls_in(encoded: bytes) -> int:
    return len(encoded) - len(encoded.translate(None, _CONTROLS))


def looks_decoded_by_force(text: str) -> bool:
    """Whether a text is not really text.

    >>> looks_decoded_by_force(bytes(range(256)).decode(errors="replace"))
    True
    >>> looks_decoded_by_force("PNG is a format, \\ufffd a character, \\x1b[1mand this is bold\\x1b[0m")
    False
    """
    if _SIGNATURE.match(text):
        return True
    sample = _sample(text)
    replaced = sample.count("\ufffd")
    controls = _controls_in(sample.encode("utf-8", "replace"))
    if replaced + controls < max(_BAD_CHARACTERS, _BAD_SHARE * len(sample)) or controls < _CONTROL_SHARE * len(sample):
        return False
    if replaced < _REPLACED_SHARE * len(sample) and controls < _MOSTLY_CONTROLS * len(sample):
        return False
    return not _is_interleaved(sample)


def _sample(text: str) -> str:
    if len(text) <= 3 * _WINDOW_CHARACTERS:
        return text
    middle = (len(text) - _WINDOW_CHARACTERS) // 2
    return text[:_WINDOW_CHARACTERS] + text[middle : middle + _WINDOW_CHARACTERS] + text[-_WINDOW_CHARACTERS:]


def _is_interleaved(sample: str) -> bool:
    """UTF-16 of a Western text, read as UTF-8: every second character is NUL. It is readable, so it is text."""
    body = sample.lstrip("\ufffd")  # from the byte order mark
    halves = (body[::2], body[1::2])
    return any(not half.strip("\0") for half in halves) and any(not _NOT_OF_TEXT.search(half) for half in halves)


class DataUrl(NamedTuple):
    """RFC 2397."""

    declared: str
    payload: str
    is_base64: bool


def data_url(text: str) -> DataUrl | None:
    """The pieces of a data URL.

    >>> data_url("data:image/png;charset=x;base64,AAAA"), data_url("AAAA")
    (DataUrl(declared='image/png', payload='AAAA', is_base64=True), None)
    """
    if text[:5].lower() != "data:":
        return None
    comma = text.find(",", 5, _MAX_HEAD_CHARACTERS)
    if comma < 0:
        return None
    declared, *parameters = text[5:comma].split(";")
    return DataUrl(declared.strip(), text[comma + 1 :], any(one.strip().lower() == "base64" for one in parameters))


def is_address(text: str) -> bool:
    """Whether this names something that is elsewhere.

    >>> is_address("https://example.org/a.png"), is_address("data:,a"), is_address("iVBORw0KGgo=")
    (True, False, False)
    """
    return _ADDRESS.match(text) is not None


def last_of(address: str) -> str:
    """The file name in an address.

    >>> last_of("https://example.org/d/a.png?s=1#f")
    'a.png'
    """
    return address[:4_096].partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]


def decoded(payload: str) -> bytes | None:
    """The bytes that a base64 text encodes; None if it is broken.

    >>> decoded("aGk"), decoded("a\\nGk="), decoded("aG"), decoded("a"), decoded("no base64!")
    (b'hi', b'hi', b'h', None, None)
    """
    if "%" in payload:
        payload = unquote(payload)
    compact = "".join(payload.split()).rstrip("=")
    if "-" in compact or "_" in compact:
        compact = compact.translate(_URL_ALPHABET)
    try:
        return binascii.a2b_base64(compact + "=" * (-len(compact) % 4), strict_mode=True)
    except ValueError:  # not base64, or characters beyond ASCII
        return None
