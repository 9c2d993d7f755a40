"""The everyday name of a type, a kind and a size of media, and the layout of a notice that replaces media.

Rule: the same as for the catalogue; a type has its everyday name, and a type without one is called by its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.core.content_types import ContentKind, MediaType
from proxy.core.notices.catalogue import KINDS, SIZES, TYPES, Language, say

_UNITS: Final = ("KB", "MB", "GB")


def friendly_type(media_type: MediaType, language: Language) -> str:
    """The everyday name of a type.

    >>> from proxy.core.content_types import media_type
    >>> friendly_type(media_type(b"%PDF-1.7"), "en"), friendly_type(media_type(b"%PDF-1.7"), "zh")
    ('PDF document', 'PDF 文档')
    """
    if media_type.mime in TYPES:
        return say(TYPES, media_type.mime, language)
    return friendly_kind(media_type.kind, language)


def friendly_size(count: int, language: Language = "en") -> str:
    """A number of bytes as people read it; a thousand is a thousand.

    >>> friendly_size(2_500_000), friendly_size(999), friendly_size(1), friendly_size(999_960), friendly_size(1, "zh")
    ('2.5 MB', '999 bytes', '1 byte', '1 MB', '1 字节')
    """
    if count < 1_000:
        return say(SIZES, "byte" if count == 1 else "bytes", language, count=count)
    size = count / 1_000
    unit = 0
    while round(size, 1) >= 1_000 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:,.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def friendly_kind(kind: ContentKind, language: Language) -> str:
    """The everyday name of a kind.

    >>> friendly_kind(ContentKind.IMAGE, "en"), friendly_kind(ContentKind.OTHER, "en")
    ('image', 'binary file')
    """
    return say(KINDS, kind, language)


def laid_out(title: str, facts: Sequence[str], reason: str) -> str:
    """The text that replaces media: what it is, what is known about it, and why it is not shown."""
    return "\n".join((title, *facts, reason))
