"""What in a message stands elsewhere: images on the web, and artifacts that a tool result names.

Rule: nothing is looked up here and nothing raises, whatever the message. An address is the very text that stands in the
message, so that whoever edits it finds what it became; one that became nothing stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final, TypeAlias

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.text import jsontext

MAX_REFERENCES: Final = 32
"""Of one message; what is over stays as it is."""
MAX_ADDRESS_CHARACTERS: Final = 4_096
"""Of an address; signed ones have about a thousand, longer ones are no addresses."""

_REMOTE: Final = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")
"""In lower case, as everybody writes it."""
_ARTIFACT: Final = re.compile(rf"artifact:({ARTIFACT_NAME})")
ADDRESSED: Final = ("url", "file_url", "file_data", "file_id")
"""Where a part of an image or a file names what it shows. `file_url` is what the Responses API has."""


class Origin(StrEnum):
    """Where it is."""

    REMOTE = "remote"
    """An image on the web."""
    ARTIFACT = "artifact"
    """In our own store."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that a message names and does not hold."""

    address: str = field(repr=False)
    """As it stands in the message: `https://…` or `artifact:ID`. It may hold a password; it belongs in no log."""
    origin: Origin

    @property
    def artifact_id(self) -> str:
        """The name that it has in the store; empty for what is no artifact."""
        found = _ARTIFACT.fullmatch(self.address)
        return found[1] if found is not None else ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What stood at an address."""

    content: bytes = field(repr=False)
    declared: str
    """The media type that its source states, in lower case and without parameters; empty when it states none."""
    name: str
    """Of the file, for a person to read; safe to print, not a path."""


class FetchError(StrEnum):
    """Why something was not fetched. The values name the words for it and stand in logs."""

    BAD_ADDRESS = "bad_address"
    """No address that anybody may ask for: a password in it, another scheme behind a redirect, no host."""
    PRIVATE_ADDRESS = "private_address"
    """It leads into a private network."""
    UNKNOWN_HOST = "unknown_host"
    """Its name has no address."""
    UNREACHABLE = "unreachable"
    """Nobody took the connection."""
    INSECURE = "insecure"
    """The certificate is wrong, or TLS failed."""
    TIMEOUT = "timeout"
    BROKEN = "broken"
    """The answer broke off, or was no HTTP."""
    TOO_MANY_REDIRECTS = "too_many_redirects"
    """A circle, or a long way."""
    ACCESS_DENIED = "access_denied"
    """401, 403, 407, 451."""
    NOT_FOUND = "not_found"
    """404, 410."""
    RATE_LIMITED = "rate_limited"
    """429."""
    SERVER_ERROR = "server_error"
    """5xx."""
    HTTP_ERROR = "http_error"
    """Any other status that is no answer."""
    NOT_AN_IMAGE = "not_an_image"
    """By what the server says, or by the bytes."""
    TOO_LARGE = "too_large"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Unfetched:
    """Why something does not stand here: what a model can act on."""

    obstacle: FetchError
    http_code: int | None = None
    """Of the last answer; None when there was none."""
    final_url: str = field(repr=False, default="")
    """The address that said so, after redirects."""
    content_type: str = ""
    """As the server states it; safe to print."""
    limit: float | None = None
    """What was passed: bytes for TOO_LARGE, seconds for TIMEOUT, redirects for TOO_MANY_REDIRECTS."""


Resolved: TypeAlias = Mapping[str, Fetched | Unfetched]
"""Address → what it became. An address that is missing stays as it is."""


def references_in(message: Message) -> tuple[Reference, ...]:
    """What a user message or a tool result names, in order, each address once.

    >>> part = b'{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}'
    >>> [found.origin.value for found in references_in(Message.read(b'{"role":"user","content":[' + part + b']}'))]
    ['remote']
    """
    raw = message.raw
    if b"artifact:" not in raw and (b"image_url" not in raw or b"http" not in raw):
        return ()
    is_result = message.role in TOOL_ROLES
    if not is_result and message.role != "user":
        return ()  # system texts are never changed, and what the model said is what it said
    addresses = dict.fromkeys(_addresses(message.content(), is_result))
    found = (_reference(address, is_result) for address in addresses)
    return tuple(islice((reference for reference in found if reference is not None), MAX_REFERENCES))


def address_of(part: Any) -> str:
    """The address that a part of an image or a file names, or nothing: `{"image_url": {"url": …}}`,
    `{"image_url": …}`, `{"file": {"file_data": …}}`, and the inside of such a part alone.

    >>> address_of({"type": "file", "file": {"file_data": "artifact:x"}}), address_of({"url": "u"}), address_of(7)
    ('artifact:x', 'u', '')
    """
    inner = part
    if isinstance(part, Mapping):
        inner = next((part[name] for name in ("image_url", "file") if name in part), part)
    if isinstance(inner, Mapping):
        inner = next((inner[name] for name in ADDRESSED if isinstance(inner.get(name), str)), "")
    return inner if isinstance(inner, str) else ""


def _reference(address: str, is_result: bool) -> Reference | None:
    if len(address) > MAX_ADDRESS_CHARACTERS:
        return None
    if _REMOTE.fullmatch(address):
        return Reference(address, Origin.REMOTE)
    if is_result and _ARTIFACT.fullmatch(address):
        return Reference(address, Origin.ARTIFACT)
    return None


def _addresses(content: Any, is_result: bool) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield from _routed_addresses(text) if is_result else ()
        elif isinstance(part, Mapping):
            yield from _part_addresses(part)


def _part_addresses(part: Mapping[str, Any]) -> Iterator[str]:
    """Files on the web are the upstream's to fetch or to refuse; only images are fetched here."""
    address = address_of(part)
    if "image_url" in part or not _REMOTE.match(address):
        yield address


def _routed_addresses(text: str) -> Iterator[str]:
    """What a structured result names: `{"routing": "image_url", "imageUrl": PART}`, `{"routing": "file", "file": …}`,
    and either with `"artifact": "artifact:ID"`, or `content`, in the place of the part. A `text` is text."""
    if '"routing"' not in text or not text.lstrip().startswith("{"):
        return
    try:
        members = jsontext.members(text.encode("utf-8", "surrogatepass"))
        opened = {
            name: jsontext.value(members[name])
            for name in ("routing", "imageUrl", "file", "artifact", "content")
            if name in members
        }
    except jsontext.NotJson:
        return
    if opened.get("routing") == "image_url":
        yield address_of(opened.get("imageUrl"))
    elif opened.get("routing") != "file":
        return
    for name in ("file", "artifact", "content"):
        address = address_of(opened.get(name))
        if not _REMOTE.match(address):
            yield address
