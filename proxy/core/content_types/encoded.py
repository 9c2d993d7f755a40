"""Base64 and data URLs.

Rule: everything that a lenient reader accepts is accepted (line breaks, missing padding, the URL alphabet); anything
else gives None, never an exception.
"""

from __future__ import annotations

import binascii
import re
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

_MAX_HEAD_CHARACTERS: Final = 1_000
"""Of a data URL before its comma: a type and a few parameters."""
_URL_ALPHABET: Final = str.maketrans("-_", "+/")
_ADDRESS: Final = re.compile(r"(?!data:)[a-z][a-z0-9+.-]{1,30}:", re.IGNORECASE)
"""No base64 contains a colon. `https:`, `gs:`, `file:`, our own `artifact:`."""


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


def unquoted(payload: str) -> bytes:
    """The bytes of a data URL that is not base64."""
    return unquote_to_bytes(payload)
