"""The face of a place for artifacts, a local folder or a bucket. How objects are named, when a store is left alone, and
the local folder: created, private, inspected.

Rule: only an object whose name is exactly that of an artifact is ever read, written or removed. Only the user that the
proxy runs as can read the files of a local folder, even while they are being written; a reader finds a whole file or
none. A store that hangs delays one request, not every one.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec

from proxy.core.artifact import ARTIFACT_NAME
from proxy.shell.resources import remove_unfinished, replace_file

COOLDOWN_SECONDS: Final = 30.0
"""Pause after a call without a response: the store is skipped, and nothing waits for it."""
NO_ANSWER: Final = "no answer in time"


class Cooldown:
    """Begins when the store does not respond. Any thread may use it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds; it may be set back."""
        self._clock = clock
        self._began = float("-inf")
        self._why: str | None = None

    @property
    def why(self) -> str | None:
        """Why the store is skipped now; None if it is in use."""
        return self._why if 0 <= self._clock() - self._began < COOLDOWN_SECONDS else None

    def begin(self, why: str = NO_ANSWER) -> None:
        """The store did not respond."""
        self._began, self._why = self._clock(), why

    def end(self) -> None:
        """Stop skipping the store."""
        self._began = float("-inf")


class BucketTrouble(Exception):
    """An error of the library that speaks to buckets, so that only they load it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.kind = type(error).__name__


class NoAnswer(BucketTrouble):
    """No response came, or the store is skipped because none came a moment ago."""

    def __init__(self, why: str) -> None:
        super().__init__(TimeoutError(why))


TROUBLE: Final = (BucketTrouble, OSError, ValueError)
"""Raised by a store; FileNotFoundError for a missing object."""
META: Final = ".meta"
"""Folder of the metadata objects: one for each artifact and tenant, so that two writers never share one."""
TRIAL_KEY: Final = f"{META}/trial"
"""Written to test whether the store is writable; its name is not an artifact's, so it is not mistaken for one."""
TRIAL_BYTES: Final = 64 * 1024
"""Size of the test object on a disk: more than the smallest result that is cut. A full disk often has a few blocks
left, which take a small file and no artifact. Drawn at random, as some file systems compress."""
TENANT_BYTES: Final = 16
"""Of a tenant, whose name in keys is hex."""
TOUCH_SECONDS: Final = 3600
"""The use of an artifact is noted at most this often, by writing its metadata object again."""

_HTTP_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2} [A-Za-z ]{1,40})")
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_KEY: Final = re.compile(
    rf"(?:{META}/(?P<described>{ARTIFACT_NAME})\.(?:(?P<tenant>[A-Za-z0-9_-]{{1,64}})\.json|lines)|"
    rf"(?P<content>{ARTIFACT_NAME}))"
)
_ARTIFACT: Final = re.compile(ARTIFACT_NAME)
_FINDING: Final = re.compile(rf"{META}/(?P<address>url_[0-9a-f]{{32}})\.[A-Za-z0-9_-]{{1,64}}\.json")


class Metadata(msgspec.Struct, frozen=True):
    """Description of an artifact; the object that holds it is as old as the artifact's last use."""

    tool: str
    """The tool that made it; empty for messages."""
    created: str
    """When this tenant first brought it: ISO 8601, UTC."""
    size: int
    """Bytes of the content."""
    media_type: str
    tenant: str = msgspec.field(name="owner")
    """The tenant that may read it; under the name that it has had from the beginning."""


class Listed(NamedTuple):
    """An object of a store."""

    key: str
    used: float
    """Unix time of its last change."""
    size: int
    """Bytes."""


class Kept(NamedTuple):
    """An object that was read."""

    content: bytes
    used: float
    """Unix time of its last change."""


class ArtifactFolder(ABC):
    """A local folder or a bucket. Its methods block, and raise one of TROUBLE."""

    at_once: ClassVar[int]
    """Calls that are worth making at the same time."""

    def __init__(self, address: str) -> None:
        self.address = address
        """For logs: a path or a URL."""
        self.cooldown = Cooldown(time.monotonic)

    def place_of(self, key: str) -> str | None:  # noqa: ARG002 - for folders
        """The absolute path of an object on this machine; None if it has none."""
        return None

    def is_used(self) -> bool:
        """Whether anything has been put here, as far as can be told without asking."""
        return True

    @abstractmethod
    def get(self, key: str) -> Kept:
        """Read an object."""

    @abstractmethod
    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Read a part of an object that holds at least one byte; a shorter object gives what it has of it."""

    @abstractmethod
    def stat(self, key: str) -> Listed:
        """Its size, and when it last changed."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove an object."""

    def is_surely_there(self, key: str, size: int) -> bool | None:  # noqa: ARG002 - as above
        """Whether an object stored within the last hour is still there; None: only asking can tell, which takes longer
        than a whole request. Called on the event loop."""
        return None

    @abstractmethod
    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it; a reader finds a whole one or none."""

    def probe(self) -> None:  # noqa: B027 - a folder's cooldown ends by itself
        """Try a bucket that is left alone: any response ends the cooldown, and no response renews it."""

    @abstractmethod
    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The objects whose keys begin like this."""

    def remove_staged(self, before: float) -> None:  # noqa: B027 - a bucket stages nothing
        """Remove what a worker left behind when it died while writing; `before` is Unix time."""


def metadata_key(name: str, tenant: str) -> str:
    """Key of the object that describes an artifact and notes that this tenant brought it; its age says when it was last
    used.

    Raises ValueError for an invalid name of an artifact or of a tenant.

    >>> metadata_key("tool_Read_0123456789abcdef.txt", "5eed")
    '.meta/tool_Read_0123456789abcdef.txt.5eed.json'
    """
    return _checked(f"{META}/{name}.{tenant}.json")


def index_key(name: str) -> str:
    """Key of the index of an artifact's lines, if it is long enough to need one. Raises ValueError."""
    return _checked(f"{META}/{name}.lines")


def finding_key(address_sha256: str, tenant: str) -> str:
    """Key of the object that says what became of an address that this tenant named. Raises ValueError.

    >>> finding_key("0123456789abcdef" * 4, "5eed")
    '.meta/url_0123456789abcdef0123456789abcdef.5eed.json'
    """
    key = f"{META}/url_{address_sha256[:32]}.{tenant}.json"
    if not _FINDING.fullmatch(key):
        raise ValueError("not the hash of an address, or not a tenant")
    return key


def remove_all(folder: ArtifactFolder, keys: Iterable[str]) -> bool:
    """Remove these objects; whether any was there. Raises one of TROUBLE."""
    gone = False
    for key in keys:
        with contextlib.suppress(FileNotFoundError):
            folder.remove(key)
            gone = True
    return gone


def is_artifact(name: str) -> bool:
    """Whether this is spelled like the name of an artifact."""
    return _ARTIFACT.fullmatch(name) is not None


def artifact_of(key: str) -> tuple[str, bool, str]:
    """The artifact, or the address, that an object belongs to, whether the object is the content, and the tenant that
    brought it if the object describes it; all empty for a foreign object.

    >>> artifact_of(".meta/tool_Read_0123456789abcdef.txt.5eed.json")
    ('tool_Read_0123456789abcdef.txt', False, '5eed')
    """
    found = _KEY.fullmatch(key)
    if found is not None:
        return found["content"] or found["described"], found["content"] is not None, found["tenant"] or ""
    finding = _FINDING.fullmatch(key)
    return "" if finding is None else finding["address"], False, ""


def reason_of(error: Exception) -> str:
    """The reason of a failure, in the words of the operating system or of HTTP if there are any; the whole text may
    contain anything."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _OS_ERROR.search(str(error))):
        number = int(found[1])
    if number is not None:
        return os.strerror(number)
    if isinstance(error, NoAnswer):
        return str(error)
    if isinstance(error, TimeoutError):
        return NO_ANSWER
    status = _HTTP_STATUS.search(str(error))
    kind = error.kind if isinstance(error, BucketTrouble) else type(error).__name__
    return kind + (f" ({status[1]})" if status else "")


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("not the name of an artifact, or of a tenant")
    return key


_STAGED: Final = re.compile(r"[0-9a-f]+\.part(#\d+)?")
"""Names of half-written files; earlier versions wrote them as `NAME#1`."""


class PrivateFolder(ArtifactFolder):
    """A folder that is created when something is first put into it.

    What it creates only its user can read. A folder that already exists keeps its mode, which was chosen (it may
    be /tmp); the files in it are private all the same.
    """

    at_once = 4
    """More only queue at the disk."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.abspath(path))
        super().__init__(str(self._path))

    def place_of(self, key: str) -> str:
        """The absolute path of an object."""
        return f"{self._path}{os.sep}{key}"

    def is_used(self) -> bool:
        """Whether anything has been put here."""
        return (self._path / META).is_dir()

    def get(self, key: str) -> Kept:
        """Read an object. Raises OSError."""
        with open(self.place_of(key), "rb") as file:
            return Kept(file.read(), os.fstat(file.fileno()).st_mtime)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Read a part of an object. Raises OSError, and ValueError for a file that ends before it."""
        with open(self.place_of(key), "rb") as file:
            file.seek(start)
            found = file.read(stop - start)
        if not found:
            raise ValueError("the file ends before that")
        return found

    def stat(self, key: str) -> Listed:
        """Its size, and when it last changed. Raises OSError."""
        found = os.stat(self.place_of(key))
        return Listed(key, found.st_mtime, found.st_size)

    def remove(self, key: str) -> None:
        """Remove an object. Raises OSError."""
        os.unlink(self.place_of(key))

    def is_surely_there(self, key: str, size: int) -> bool:
        """Whether the file exists and has that length: it may have been removed by hand. 2 µs."""
        try:
            return os.stat(self.place_of(key)).st_size == size
        except OSError:
            return False

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it; the folder is created if needed. Raises OSError, and then leaves nothing
        behind. It is staged in the metadata folder, which is not listed."""
        with contextlib.suppress(FileExistsError):
            self._path.parent.mkdir(mode=0o700, parents=True)  # `parents` alone would leave it open to other users
        self._path.mkdir(mode=0o700, exist_ok=True)
        (self._path / META).mkdir(mode=0o700, exist_ok=True)
        replace_file(self.place_of(key), content, self.place_of(f"{META}/{secrets.token_hex(8)}.part"))

    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The files of the folder and of its metadata whose keys begin like this; no others, and no links.
        Raises OSError."""
        for prefix in (f"{META}/", ""):
            if not prefix and beginning.startswith(f"{META}/"):
                return
            with os.scandir(self.place_of(prefix)) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if (prefix + entry.name).startswith(beginning) and entry.is_file(follow_symlinks=False):
                            found = entry.stat(follow_symlinks=False)
                            yield Listed(prefix + entry.name, found.st_mtime, found.st_size)

    def remove_staged(self, before: float) -> None:
        """Remove what a worker left behind when it died while writing; `before` is Unix time."""
        remove_unfinished(self._path / META, _STAGED, before)
