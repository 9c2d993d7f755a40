"""A look at the bytes of a message to decide whether it is worth parsing.

Rule: it may find a sign where there are no media, but never misses any that the other modules would find.
"""

from __future__ import annotations

import re
import string
from typing import Final

MIN_CHARACTERS: Final = 64
"""Of base64 in a text that is not declared as a file: shorter runs are words, names and hashes."""

_BASE64: Final = (string.ascii_letters + string.digits + "+/_-").encode()
_AS_RUNS: Final = bytes(ord("a") if byte in _BASE64 else ord(" ") for byte in range(256))
_RUN: Final = b"a" * MIN_CHARACTERS
_OTHER_PART: Final = re.compile(rb'"type"\s*:\s*"(?!text"|function")')
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
"""In a text: the end of a JSON name that announces content of any length."""


def may_hold_media(raw: bytes, other_part: re.Pattern[bytes] = _OTHER_PART) -> bool:
    """Whether a message may contain media, judged by the bytes of its JSON. `other_part`: the sign of a part other than
    plain text on its wire.

    >>> may_hold_media(b'{"role":"user","content":"look at a.png"}'), may_hold_media(b'{"type":"image_url"}')
    (False, True)
    """
    return (
        _RUN in raw.translate(_AS_RUNS)
        or other_part.search(raw) is not None
        or b";base64," in raw
        or (_NAME.search(raw) is not None and any(sign in raw for sign in _DECLARED))
        or _may_be_decoded_by_force(raw)
    )


def _may_be_decoded_by_force(raw: bytes) -> bool:
    """U+FFFD or a control character, literal or escaped; or a document that is all ASCII."""
    if b"\xef" in raw and b"\xef\xbf\xbd" in raw:  # one byte is found much faster than three
        return True
    if b"\\" in raw and (b"\\u00" in raw or b"\\ufffd" in raw or b"\\uFFFD" in raw):
        return True
    return b"%" in raw and b"%PDF-" in raw
