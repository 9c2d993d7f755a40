"""Where artifacts lie: what a store asks of a local folder or a bucket, and what the objects there are called.

Rule: only what carries an artifact's name, written exactly so, is ever read, written or removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from proxy.core.artifact import ARTIFACT_NAME

TROUBLE: Final = (BaseError, OSError, ValueError)
"""What a store raises: obstore's own errors, and built-in ones for what is missing or cannot be a path."""
META: Final = ".meta"
"""Folder of the metadata objects: one for each artifact and owner, so that two writers never share one."""
TRIAL_KEY: Final = f"{META}/trial"
"""Written to see whether anything can be; it has no artifact's name, so nobody takes it for one."""
TOUCH_SECONDS: Final = 3600
"""An artifact in use is noted as used at most this often: its metadata object is written again."""

_HTTP_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2} [A-Za-z ]{1,40})")
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_KEY: Final = re.compile(
    rf"(?:{META}/(?P<described>{ARTIFACT_NAME})\.(?:[A-Za-z0-9_-]{{1,64}}\.json|lines)|(?P<content>{ARTIFACT_NAME}))"
)
_ARTIFACT: Final = re.compile(ARTIFACT_NAME)
_FINDING: Final = re.compile(rf"{META}/(?P<address>url_[0-9a-f]{{32}})\.[A-Za-z0-9_-]{{1,64}}\.json")


class Metadata(msgspec.Struct, frozen=True):
    """What an artifact is; the object that holds it is as old as the artifact's last use."""

    tool: str
    """The tool that made it; empty for messages."""
    created: str
    """When this owner first brought it: ISO 8601, UTC."""
    size: int
    """Bytes of the content."""
    media_type: str
    owner: str
    """Who may have it."""


class Listed(NamedTuple):
    """An object of a store."""

    key: str
    used: float
    """Unix time of its last change."""
    size: int
    """Bytes."""


class ArtifactFolder(Protocol):
    """A local folder or a bucket. What it does blocks, and raises one of TROUBLE."""

    @property
    def address(self) -> str:
        """For logs: a path or a URL."""

    def place_of(self, key: str) -> str | None:
        """The absolute path of an object on this machine; None where it has none."""

    def is_used(self) -> bool:
        """Whether anything has been put here."""

    def opened(self) -> ObjectStore:
        """To read and delete with."""

    def is_surely_there(self, key: str, size: int) -> bool:
        """Whether an object that was put within the last hour needs no second look; asked on the event loop."""

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it; a reader finds a whole one or none."""

    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The objects whose keys begin so."""

    def remove_staged(self, before: float) -> None:
        """Remove what a worker left behind that died while it wrote; `before` is Unix time."""


def metadata_key(name: str, owner: str) -> str:
    """Where it is written what an artifact is and that this owner brought it; its age says when it was last used.

    Raises ValueError for what is no artifact's name or no owner.

    >>> metadata_key("tool_Read_0123456789abcdef.txt", "5eed")
    '.meta/tool_Read_0123456789abcdef.txt.5eed.json'
    """
    return _checked(f"{META}/{name}.{owner}.json")


def index_key(name: str) -> str:
    """Where the index of an artifact's lines lies, when it is so long that it needs one. Raises ValueError."""
    return _checked(f"{META}/{name}.lines")


def finding_key(address_sha256: str, owner: str) -> str:
    """Where it is written what became of an address that this owner named. Raises ValueError.

    >>> finding_key("0123456789abcdef" * 4, "5eed")
    '.meta/url_0123456789abcdef0123456789abcdef.5eed.json'
    """
    key = f"{META}/url_{address_sha256[:32]}.{owner}.json"
    if not _FINDING.fullmatch(key):
        raise ValueError("not the hash of an address, or not an owner")
    return key


def is_artifact(name: str) -> bool:
    """Whether this is written as the names of artifacts are."""
    return _ARTIFACT.fullmatch(name) is not None


def artifact_of(key: str) -> tuple[str, bool] | None:
    """The artifact, or the address, that an object belongs to, and whether it is the content; None for a stranger's
    object."""
    if (finding := _FINDING.fullmatch(key)) is not None:
        return finding["address"], False
    found = _KEY.fullmatch(key)
    return None if found is None else (found["content"] or found["described"], found["content"] is not None)


def reason_of(error: Exception) -> str:
    """What went wrong, in the words of the operating system or of HTTP where there are any; the whole text may hold
    anything."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _OS_ERROR.search(str(error))):
        number = int(found[1])
    if number is not None:
        return os.strerror(number)
    status = _HTTP_STATUS.search(str(error))
    return type(error).__name__ + (f" ({status[1]})" if status else "")


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("not the name of an artifact, or of an owner")
    return key
