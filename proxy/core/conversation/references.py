"""What in a message stands elsewhere: images on the web, and artifacts that a tool result names.

Rule: nothing is looked up here and nothing raises, whatever the message. An address is the very text that stands in the
message, so that whoever edits it finds what it became; one that became nothing stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final, TypeAlias

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.conversation.message import TOOL_ROLES, Message

MAX_REFERENCES: Final = 32
"""Of one message; what is over stays as it is."""
MAX_ADDRESS_CHARACTERS: Final = 4_096
"""Of an address; signed ones have about a thousand, longer ones are no addresses."""

REMOTE: Final = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")
"""In lower case, as everybody writes it."""
_ARTIFACT: Final = re.compile(rf"artifact:({ARTIFACT_NAME})")


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
    """What a user message or a tool result names, in order, each address once."""
    is_result = message.role in TOOL_ROLES
    if not is_result and message.role != "user":
        return ()  # system texts are never changed, and what the model said is what it said
    addresses = dict.fromkeys(message.addresses())
    found = (_reference(address, is_result) for address in addresses)
    return tuple(islice((reference for reference in found if reference is not None), MAX_REFERENCES))


def _reference(address: str, is_result: bool) -> Reference | None:
    if len(address) > MAX_ADDRESS_CHARACTERS:
        return None
    if REMOTE.fullmatch(address):
        return Reference(address, Origin.REMOTE)
    if is_result and _ARTIFACT.fullmatch(address):
        return Reference(address, Origin.ARTIFACT)
    return None
