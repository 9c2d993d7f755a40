"""Text that is a binary file, decoded by force: what `bytes.decode(errors="replace")` leaves of a PDF.

Rule: real text, in any language, with whatever a terminal or a careless program puts into it, is never taken for one.
"""

from __future__ import annotations

import re
from typing import Final

_WINDOW_CHARACTERS: Final = 16_384
"""Looked at from the beginning, the middle and the end."""
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\a\x1b"))
"""C0 without blanks and without what terminals are steered by."""
_BAD_SHARE: Final = 0.2
"""Of the characters. A compressed file has 0.4 to 0.6; a Western text in a wrong encoding 0.02 to 0.15."""
_BAD_CHARACTERS: Final = 16
"""At least so many, so that a word or two are no file."""

_SIGNATURE: Final = re.compile(
    "[\ufffd\x89]PNG\r?\n\x1a|[\ufffdÿ][\ufffdØ][\ufffdÿ][\ufffdàáâÛî]|GIF8[79]a[^\n]{0,8}[\ufffd\0]|PK\x03\x04"
    "|\x7fELF[\x01\x02]|ID3[\x02-\x04]\0|%PDF-\\d\\.\\d[ \t]*[\r\n].{0,1024}?\\d+ \\d+ obj\\b|\x1f[\ufffd\x8b]\x08"
    "|7z[\ufffd¼][\ufffd¯]'\x1c|Rar!\x1a\x07|[\ufffdý]7zXZ\0|OggS\0|fLaC[\0\ufffd\x80]\0|\0\0\0[^\n]ftyp"
    "|RIFF[^\n]{1,4}(?:WAVEfmt |WEBPVP8|AVI LIST)|[\ufffdÐ][\ufffdÏ]\x11|\x1aE[\ufffdß][\ufffd£]|SQLite format 3\0"
    "|BZh[1-9]1AY&SY|II\\*\0|MM\0\\*|\0asm\x01",
    re.DOTALL,
)
"""How the files of `signatures.py` begin after being decoded as UTF-8 or Latin-1."""


def looks_decoded_by_force(text: str) -> bool:
    """Whether a text is no text.

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
    if replaced + controls < max(_BAD_CHARACTERS, _BAD_SHARE * len(sample)):
        return False
    return not _is_interleaved(sample)


def _sample(text: str) -> str:
    if len(text) <= 3 * _WINDOW_CHARACTERS:
        return text
    middle = (len(text) - _WINDOW_CHARACTERS) // 2
    return text[:_WINDOW_CHARACTERS] + text[middle : middle + _WINDOW_CHARACTERS] + text[-_WINDOW_CHARACTERS:]


def _is_interleaved(sample: str) -> bool:
    """UTF-16 of a Western text, read as UTF-8: each second character is NUL. It can be read, so it is text."""
    body = sample.lstrip("\ufffd")
    return any(
        not body[first::2].strip("\0") and "\0" not in body[1 - first :: 2] and "\ufffd" not in body for first in (0, 1)
    )
