"""The outcome for each address, remembered for later turns, for other workers and across restarts.

Rule: an address that was looked up once gives the same content, or the same words about its absence, in every later
turn, as the prompt that the upstream has cached begins with it. Stored per tenant. Of an address only a hash is stored,
and of a failed one also the content of its diagnosis.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from proxy.core.conversation.references import FetchError
from proxy.errors import ArtifactStoreUnavailable
from proxy.shell.artifacts.folder import TROUBLE, ArtifactFolder, NoAnswer, finding_key
from proxy.shell.resources.bounded import BoundedMap
from proxy.shell.resources.threads import DaemonThreads, TooSlow

FAILURE_SECONDS: Final = 3600.0
"""How long a failure is remembered after its last use. Upstreams forget a cached prompt after 5 to 60 minutes; until
then another text in its place would cost more than the image is worth, afterwards another try costs nothing."""
NOTE_SECONDS: Final = 600.0
"""A use is noted at most this often; other workers see a failure as at most this much older."""
WAIT_SECONDS: Final = 5.0
"""Longest that the store may take, from when a thread is free to ask it."""
MAX_REMEMBERED: Final = 10_000
"""Findings in memory, about 5 MB."""

Result = TypeVar("Result")


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one address."""

    address_sha256: str
    artifact: str = ""
    """The content by its name in the store; empty if there is none."""
    declared: str = ""
    name: str = ""
    obstacle: FetchError | None = None
    http_code: int | None = None
    final_url: str = ""
    content_type: str = ""
    limit: float | None = None

    @property
    def is_failure(self) -> bool:
        """Whether there was no content."""
        return self.obstacle is not None


class _Remembered(Struct):
    finding: Finding
    used: float
    noted: float
    """Unix times; the second is when the store was updated."""


def address_sha256(address: str) -> str:
    """The key by which an address is remembered: the address may hold a password."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()


class FetchCache:
    """Remembers in memory and next to the artifacts."""

    def __init__(self, folder: ArtifactFolder, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._remembered: BoundedMap[tuple[str, str], _Remembered] = BoundedMap(MAX_REMEMBERED)
        """By hash and tenant."""
        self._threads = DaemonThreads(2, "findings")

    async def recall(self, address: str, tenant: str) -> Finding | None:
        """The outcome, if it is known and still valid. Raises ArtifactStoreUnavailable if the store does not respond,
        as the known outcome would otherwise be forgotten."""
        digest = address_sha256(address)
        known = self._remembered.pop((digest, tenant))
        if known is None:
            known = await self._run(self._read, digest, tenant)
        now = self._clock()
        if known is None or (known.finding.is_failure and not now - known.used < FAILURE_SECONDS):
            return None
        known.used = now
        self._remembered.put((digest, tenant), known)
        if now - known.noted >= NOTE_SECONDS:
            known.noted = now
            await self._run(self._write, known.finding, tenant)
        return known.finding

    async def note(self, finding: Finding, tenant: str) -> None:
        """Remember it; if the store fails, only as long as the process runs. Raises ArtifactStoreUnavailable."""
        now = self._clock()
        self._remembered.put((finding.address_sha256, tenant), _Remembered(finding, now, now))
        await self._run(self._write, finding, tenant)

    def close(self) -> None:
        """Release the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[..., Result | None], *given: object) -> Result | None:
        try:
            return await self._threads.run(WAIT_SECONDS, work, *given)
        except (TooSlow, NoAnswer):
            raise ArtifactStoreUnavailable("the store of the artifacts gives no answer") from None
        except TROUBLE:
            return None  # missing, unreadable or unwritable: memory has to do

    def _read(self, digest: str, tenant: str) -> _Remembered | None:
        if not self._folder.is_used():
            return None
        content, used = self._folder.get(finding_key(digest, tenant))
        try:
            finding = msgspec.json.decode(content, type=Finding)
        except msgspec.DecodeError:
            return None
        return _Remembered(finding, used, used) if finding.address_sha256 == digest else None

    def _write(self, finding: Finding, tenant: str) -> None:
        self._folder.put(finding_key(finding.address_sha256, tenant), msgspec.json.encode(finding))
