"""References in messages to what is elsewhere: images on the web, artifacts, pages of them.

Rule: nothing is looked up here and nothing raises, whatever the message. An address is the exact text in the message,
so that the step that edits it can look up what it resolved to; an address without a resolution stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Final, TypeAlias

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.conversation.message import TOOL_ROLES, Message
from proxy.core.notices import MARK, pages_in
from proxy.core.text import Discreet

MAX_REFERENCES: Final = 32
"""Limit for one message; further ones stay as they are."""
MAX_ADDRESS_CHARACTERS: Final = 4_096
"""Limit of an address; signed ones have about a thousand, and anything longer is not an address."""

REMOTE: Final = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")
"""The scheme is in lower case, as everyone writes it."""
_ARTIFACT: Final = re.compile(rf"(?:artifact:)?({ARTIFACT_NAME})")


class Origin(StrEnum):
    """Where it is."""

    REMOTE = "remote"
    """An image on the web."""
    ARTIFACT = "artifact"
    """In our own store."""
    PAGE = "page"
    """There, too; only whether it exists matters."""


class Reference(Discreet, frozen=True):
    """Something that a message names but does not hold."""

    address: str
    """The reference in the message: `https://…`, `artifact:ID`, or the ID in a page's header. It may hold a password,
    so it must not be logged."""
    origin: Origin

    @property
    def artifact_id(self) -> str:
        """Its name in the store; empty if it is not an artifact."""
        found = _ARTIFACT.fullmatch(self.address)
        return found[1] if found is not None else ""


class Fetched(Discreet, frozen=True):
    """The content found at an address."""

    content: bytes
    declared: str
    """The media type that its source states, in lower case and without parameters; empty if it states none."""
    name: str
    """Name of the file for people to read; safe to print, not a path."""


class FetchError(StrEnum):
    """Why something was not fetched. The values select the message for it and appear in logs."""

    BAD_ADDRESS = "bad_address"
    """Not an address that may be fetched: it has a password or no host, or redirects to another scheme."""
    PRIVATE_ADDRESS = "private_address"
    """It leads into a private network."""
    UNKNOWN_HOST = "unknown_host"
    """The host name does not resolve."""
    UNREACHABLE = "unreachable"
    """No connection could be made."""
    INSECURE = "insecure"
    """The certificate is wrong, or TLS failed."""
    TIMEOUT = "timeout"
    BROKEN = "broken"
    """The response broke off, or was not HTTP."""
    TOO_MANY_REDIRECTS = "too_many_redirects"
    """A loop, or a long chain."""
    ACCESS_DENIED = "access_denied"
    """401, 403, 407, 451."""
    NOT_FOUND = "not_found"
    """404, 410."""
    RATE_LIMITED = "rate_limited"
    """429."""
    SERVER_ERROR = "server_error"
    """5xx."""
    HTTP_ERROR = "http_error"
    """Any other status without the content."""
    NOT_AN_IMAGE = "not_an_image"
    """According to the server, or to the bytes."""
    TOO_LARGE = "too_large"
    EMPTY = "empty"


class Unfetched(Discreet, frozen=True):
    """Why something could not be fetched, with the details that a model can act on."""

    obstacle: FetchError
    http_code: int | None = None
    """Status of the last response; None if there was none."""
    final_url: str = ""
    """The address that sent it, after redirects."""
    content_type: str = ""
    """The server's content type; safe to print."""
    limit: float | None = None
    """The limit that was exceeded: bytes for TOO_LARGE, seconds for TIMEOUT, redirects for TOO_MANY_REDIRECTS."""


Resolved: TypeAlias = Mapping[str, Fetched | Unfetched]
"""Address → what it resolved to. An address that is missing here stays as it is."""


def references_in(message: Message) -> tuple[Reference, ...]:
    """The references in a user message or a tool result, in order, each address once."""
    is_result = message.role in TOOL_ROLES
    if not is_result and message.role != "user":
        return ()  # system texts are never changed, and the model's own words stay as it wrote them
    addresses = dict.fromkeys(message.addresses())
    found = [_reference(address, is_result) for address in addresses]
    if is_result and message.raw.find(MARK.encode()) >= 0:
        names = dict.fromkeys(name for _, text in message.texts() for name in pages_in(text))
        found += [Reference(name, Origin.PAGE) for name in names]
    return tuple(islice((reference for reference in found if reference is not None), MAX_REFERENCES))


def _reference(address: str, is_result: bool) -> Reference | None:
    if len(address) > MAX_ADDRESS_CHARACTERS:
        return None
    if REMOTE.fullmatch(address):
        return Reference(address, Origin.REMOTE)
    if is_result and address.startswith("artifact:") and _ARTIFACT.fullmatch(address):
        return Reference(address, Origin.ARTIFACT)
    return None
