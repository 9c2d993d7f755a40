"""The texts that a model reads in place of media, or beside them.

Rule: the same as for the catalogue; names and addresses from elsewhere are one line of bounded length. A type has its
everyday name, and a type without one is called by its kind. Of a foreign server's response only the status, the media
type and the address without its query are shown: none of them can contain a sentence.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType
from proxy.core.conversation import Unfetched
from proxy.core.notices import (
    FETCH_LIMITS,
    FETCHES,
    KINDS,
    MEDIA,
    SIZES,
    TYPES,
    WHY_NOT_FETCHED,
    WHY_NOT_SHOWN,
    Language,
    Notices,
    quoted,
    say,
)

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


class OmissionReason(StrEnum):
    """Why a text replaces a content. The values name the texts."""

    MODEL = "model"
    """The model does not read this kind."""
    IN_TEXT = "in_text"
    """It was inside a text, and the model is not known to read this kind."""
    UNSTATED = "unstated"
    """A text names it, and the model is not known to read this kind."""
    BROKEN = "broken"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_MANY = "too_many"
    """More than a message or a request may show."""
    TOO_MANY_FILES = "too_many_files"
    """The same, for other media."""
    TOO_LONG_A_SIDE = "too_long_a_side"
    FORMAT = "format"
    """No model reads this format."""
    REFUSED = "refused"
    """The upstream has refused this very content."""
    PLACE = "place"
    """Its message cannot hold it."""
    FORCED = "forced"
    """It was decoded as text."""
    ENCODING = "encoding"
    """It is text, but not Unicode."""
    LONG_TEXT = "long_text"
    """It is text, but too long to be included."""


_CAPABILITY: Final = frozenset({OmissionReason.MODEL, OmissionReason.IN_TEXT, OmissionReason.UNSTATED})
"""Another model might read it: the content is whole, and it is this model or its upstream that does not accept it."""
_NAME_CHARACTERS: Final = 120
_ADDRESS_CHARACTERS: Final = 300
_USER_AND_PASSWORD: Final = re.compile(r"(?<=//)[^/?#]*@")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def description(
    found: MediaType,
    why: OmissionReason,
    artifact: Artifact | None,
    notices: Notices,
    *,
    name: str = "",
    byte_count: int | None = None,
    pixels: tuple[int, int] | None = None,
    address: str = "",
    limit: int = 0,
) -> str:
    """The text that replaces a content: name, type, size, reason, and the way to it. `name`: of the file, as its sender
    wrote it. `address`: where it is, if it was never here. `limit`: in bytes or pixels, if a limit is the reason."""
    language = notices.language
    name = _plain(name, _NAME_CHARACTERS) or default_name(found)
    if artifact is not None and notices.kept:
        name += f" (artifact:{artifact.id})"
    sizes = [] if byte_count is None else [friendly_size(byte_count, language)]
    if pixels is not None:
        sizes.append(say(MEDIA, "pixels", language, width=pixels[0], height=pixels[1]))
    facts = "".join(say(MEDIA, "fact", language, fact=size) for size in sizes)
    lines = [say(MEDIA, "type", language, kind=friendly_type(found, language), facts=facts)]
    if address:
        lines.append(say(MEDIA, "address", language, address=_plain(address, _ADDRESS_CHARACTERS)))
    shown_limit = friendly_size(limit, language) if why is OmissionReason.TOO_LARGE else limit
    reason = say(WHY_NOT_SHOWN, why, language, limit=shown_limit)
    if artifact is not None:
        reason += notices.whole(artifact) if notices.kept else say(MEDIA, "unkept", language)
    # A sub-agent can open the original by its name or address, even if it cannot see the folder of artifacts.
    can_be_handed_over = (artifact is not None and notices.kept) or address.startswith("http")
    if notices.subagent and can_be_handed_over and why in _CAPABILITY:
        reason += say(MEDIA, "subagent", language)
    return "\n".join((say(MEDIA, "title", language, name=name), *lines, reason))


def not_fetched(address: str, unfetched: Unfetched, language: Language, kept_in: str = "") -> str:
    """The diagnosis for one address. `kept_in`: where the image would be now, as the agent sees it.

    >>> from proxy.core.conversation.references import FetchError
    >>> print(not_fetched("https://example.org/a", Unfetched(FetchError.NOT_FOUND, 404, "https://example.org/b"), "en"))
    [cannot fetch] https://example.org/a
    Status: failed; HTTP code: 404; final URL: https://example.org/b
    Likely reason: there is nothing at this address (any more).
    """
    known = (
        ("http_code", unfetched.http_code),
        ("final_url", unfetched.final_url or None),
        ("content_type", unfetched.content_type or None),
    )
    facts = [say(FETCHES, name, language, **{name: value}) for name, value in known if value is not None]
    facts.insert(0, say(FETCHES, "status", language))
    why = say(WHY_NOT_FETCHED, unfetched.obstacle, language)
    if unfetched.limit is not None and unfetched.obstacle in FETCH_LIMITS:
        why += say(FETCH_LIMITS, unfetched.obstacle, language, limit=unfetched.limit)
    reason = say(FETCHES, "reason", language, reason=why)
    reason += say(FETCHES, "kept_in", language, kept_in=kept_in) if kept_in else ""
    title = say(FETCHES, "title", language, address=_USER_AND_PASSWORD.sub("", address))
    return quoted("\n".join((title, say(FETCHES, "and", language).join(facts), reason)))


def default_name(found: MediaType) -> str:
    """A name for a content without one."""
    kind = "file" if found.kind is ContentKind.OTHER else found.kind.value
    return f"{kind}.{found.suffix}" if found.suffix else kind


def shown(found: MediaType, number: int, file: str, *, behind: bool, language: Language) -> str:
    """The text in place of a content that is shown as media: after the batch, or in the same message. `file`: what
    `named_file` says of it."""
    kind = friendly_kind(found.kind, language)
    return say(MEDIA, "shown_behind" if behind else "shown_here", language, kind=kind, number=number, file=file)


def label(tool: str, call: str, number: int, file: str, language: Language) -> str:
    """The text before a content that was moved after its batch, so that the model knows its tool call."""
    of_tool = _plain(tool, _NAME_CHARACTERS) or say(MEDIA, "a_tool", language)
    if call:
        plain_call = _plain(call, _NAME_CHARACTERS)
        return say(MEDIA, "of_call", language, tool=of_tool, call=plain_call, number=number, file=file)
    return say(MEDIA, "of_result", language, tool=of_tool, number=number, file=file)


def named_file(name: str, artifact: Artifact | None, notices: Notices) -> str:
    """The file name of a content that is shown, and where the agent finds the file; empty for neither."""
    plain, language = _plain(name, _NAME_CHARACTERS), notices.language
    file = say(MEDIA, "file", language, name=plain) if plain else ""
    if artifact is None or not notices.kept:
        return file
    return say(MEDIA, "file_kept", language, file=file, place=notices.place_of(artifact))


def fetched_here(name: str, artifact: Artifact, notices: Notices) -> str:
    """The text beside a fetched image that replaces its address."""
    return say(MEDIA, "of_file", notices.language, file=named_file(name, artifact, notices))


def named(name: str, text: str) -> str:
    """A text that was sent as a file."""
    plain = _plain(name, _NAME_CHARACTERS)
    return f"[{plain}]\n{text}" if plain else text


def _plain(foreign: str, max_characters: int) -> str:
    """One line of a text from elsewhere, in which nothing passes for a notice."""
    return quoted(_UNPRINTABLE.sub(" ", foreign[:max_characters]).strip())
