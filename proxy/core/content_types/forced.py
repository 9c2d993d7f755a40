"""Text that is really a binary file, decoded by force: what `bytes.decode(errors="replace")` makes of a PDF.

Rule: real text, in any language, is never taken for one, whatever a terminal or a careless program puts into it.
"""

from __future__ import annotations

import re
from typing import Final

_WINDOW_CHARACTERS: Final = 16_384
"""Examined from the beginning, the middle and the end."""
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\a\x1b"))
"""C0 without whitespace and without the characters that control terminals."""
_NOT_OF_TEXT: Final = re.compile("[\0-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
"""The same, and the character that replaces invalid UTF-8."""
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
    encoded = sample.encode("utf-8", "replace")
    controls = len(encoded) - len(encoded.translate(None, _CONTROLS))
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
