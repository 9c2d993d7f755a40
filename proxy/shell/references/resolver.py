"""Looks up what the references of a request refer to: images from the web, artifacts from the store, whether those
exist whose pages it shows. It remembers the outcome for each address, for later turns, for other workers and across
restarts.

Rule: what cannot be looked up now stays as it is, and no failure here fails a request. An address that was looked up
once gives the same content, or the same words about its absence, in every later turn, as the prompt that the upstream
has cached begins with it. Stored per tenant. Of an address only a hash is stored, and of a failed one also the content
of its diagnosis.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from proxy.core.addresses import literal_address
from proxy.core.artifact import FETCHED, Artifact
from proxy.core.content_types import media_type
from proxy.core.conversation import Fetched, FetchError, Origin, Reference, Resolved, Unfetched
from proxy.core.notices import MARK
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable
from proxy.shell.artifacts import (
    TROUBLE,
    ArtifactFolder,
    ArtifactReader,
    ArtifactStore,
    Cooldown,
    NoAnswer,
    finding_key,
)
from proxy.shell.resources import Threads, TooSlow, logger

if TYPE_CHECKING:
    from proxy.shell.references.fetch import Fetcher

MAX_AT_ONCE: Final = 4
"""Limit for one request."""
MAX_REFERENCES: Final = 256
"""Limit for one request; further ones stay as they are."""
PATIENCE: Final = 3
"""Times the limit for one image: how long a request waits for all of its own. What arrives later is ready for its next
turn; until then the reference stays as it is."""
READ_SECONDS: Final = 10.0
"""Longest wait for the store."""

_MARK: Final = MARK.encode()

Found: TypeAlias = Fetched | Unfetched


class Resolver:
    """Looks references up, per tenant."""

    def __init__(
        self,
        reader: ArtifactReader,
        store: ArtifactStore,
        findings: FetchCache,
        downloads: Fetcher | None,
        *,
        timeout_seconds: float,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`downloads` None: images on the web are passed on as they are. `max_bytes`: of one content; larger artifacts
        are not looked up."""
        self._reader = reader
        self._store = store
        self._findings = findings
        self._downloads = downloads
        self._patience_seconds = PATIENCE * timeout_seconds
        self._max_bytes = max_bytes
        self._cooldown = Cooldown(clock)
        self._underway: dict[tuple[str, str], asyncio.Task[Found | None]] = {}

    def may_refer(self, body: bytes, known_bytes: int, may_name_images: Callable[[bytes], bool]) -> bool:
        """Whether a body may hold a reference after what is known: most hold none. `may_name_images`: whether a piece
        of it may name an image."""
        if body.find(b"artifact:", known_bytes) >= 0 or body.find(_MARK, known_bytes) >= 0:
            return True
        may_name = self._downloads is not None and body.find(b"http", known_bytes) >= 0
        return may_name and may_name_images(body[known_bytes:])

    async def resolve(self, references: Iterable[Reference], tenant: str) -> Resolved:
        """Resolve references. One missing from the result stays as it is."""
        fetches = self._downloads is not None
        wanted = {one.address: one for one in references if fetches or one.origin is not Origin.REMOTE}
        slots = asyncio.Semaphore(MAX_AT_ONCE)

        async def one(reference: Reference) -> Found | None:
            async with slots:
                return await self._looked_up(reference, tenant)

        tasks = [asyncio.create_task(one(reference)) for reference in list(wanted.values())[:MAX_REFERENCES]]
        if not tasks:
            return {}
        try:
            await asyncio.wait(tasks, timeout=self._patience_seconds)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return self._within_memory(list(wanted), outcomes)

    async def aclose(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._underway.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._downloads is not None:
            await self._downloads.aclose()

    def _within_memory(self, addresses: Sequence[str], outcomes: Sequence[Found | BaseException | None]) -> Resolved:
        """The outcomes in their order, up to four contents of the largest size."""
        found: dict[str, Found] = {}
        left_bytes = MAX_AT_ONCE * self._max_bytes
        for address, outcome in zip(addresses, outcomes, strict=False):
            if isinstance(outcome, Fetched):
                left_bytes -= len(outcome.content)
            if isinstance(outcome, Fetched | Unfetched) and left_bytes >= 0:
                found[address] = outcome
        return found

    async def _looked_up(self, reference: Reference, tenant: str) -> Found | None:
        if self._cooldown.why is not None:
            return None
        try:
            if reference.origin is Origin.PAGE:
                return await self._read(reference.artifact_id, tenant, shown=True)
            if reference.origin is Origin.ARTIFACT:
                return await self._held(reference, tenant)
            return await self._remote(reference.address, tenant)
        except (ArtifactStoreUnavailable, TimeoutError):
            self._cooldown.begin()
            return None
        except Exception:
            logger().exception("reference_failed", origin=reference.origin.value)
            return None

    async def _held(self, reference: Reference, tenant: str) -> Fetched | None:
        """An artifact that is named. Its absence is remembered, too: it may exist at the next turn, and what was once
        sent unchanged would then be sent differently."""
        if await self._findings.recall(reference.address, tenant) is not None:
            return None
        found = await self._read(reference.artifact_id, tenant)
        if found is None:
            await self._findings.note(reference.address, Finding(failure=Unfetched(FetchError.NOT_FOUND)), tenant)
        return found

    async def _read(
        self, artifact: str, tenant: str, declared: str = "", name: str = "", *, shown: bool = False
    ) -> Fetched | None:
        """An artifact; None if it is gone, another tenant's, or too large. `shown`: a page of it is in the messages,
        and its content is not needed. Raises ArtifactStoreUnavailable and TimeoutError."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                stored = await self._reader.find(artifact, tenant, is_use=not shown)
                if shown:
                    return Fetched(b"", "", artifact)
                if stored.size > self._max_bytes:
                    return None
                content = await self._reader.piece(stored, 0, stored.size)
        except ArtifactNotFound:
            return None
        return Fetched(content, declared or stored.metadata.media_type, name or artifact)

    async def _remote(self, address: str, tenant: str) -> Found | None:
        finding = await self._findings.recall(address, tenant)
        if finding is not None and finding.failure is not None:
            return finding.failure
        if finding is not None and (kept := await self._read(finding.artifact, tenant, finding.declared, finding.name)):
            return kept
        key = (address, tenant)
        task = self._underway.get(key)
        if task is None:
            # Another request of the same conversation may wait for it, too: it continues when this one is cancelled.
            task = self._underway[key] = asyncio.create_task(self._downloaded(address, tenant))
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(task)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Found | None]) -> None:
        del self._underway[key]
        if not task.cancelled():
            task.exception()  # retrieved, even if no request waits for it any more

    async def _downloaded(self, address: str, tenant: str) -> Found | None:
        """The image, stored and remembered; None if it cannot be stored, as the next turn would get another one."""
        assert self._downloads is not None, "asked for with downloads only"
        found = await self._downloads.fetch(address)
        host = host_of(address)
        if isinstance(found, Unfetched):
            logger().info("image_not_fetched", host=host, reason=found.obstacle.value, http_code=found.http_code)
            await self._findings.note(address, Finding(failure=found), tenant)
            return found
        kind = media_type(found.content, found.declared, found.name)
        artifact = Artifact(found.content, FETCHED, kind.suffix)
        if await self._store.keep((artifact,), tenant):
            return None
        logger().info("image_fetched", host=host, type=kind.mime, bytes=len(found.content), artifact=artifact.id)
        await self._findings.note(address, Finding(artifact.id, found.declared, found.name), tenant)
        return found


def host_of(address: str) -> str:
    """The host of an address: only it may be logged, as the rest can hold secrets; empty if there is none.

    >>> host_of("https://me:key@Example.org:8443/a/secret?b=secret"), host_of("http://a b/")
    ('example.org', '')
    """
    try:
        host = urlsplit(address).hostname or ""
        literal_address(host)
    except ValueError:
        return ""
    return host


FAILURE_SECONDS: Final = 3600.0
"""How long a failure is remembered after its last use. Upstreams forget a cached prompt after 5 to 60 minutes; until
then another text in its place would cost more than the image is worth, afterwards another try costs nothing."""
NOTE_SECONDS: Final = 600.0
"""A use is noted at most this often: a failure may count as at most this much older."""
WAIT_SECONDS: Final = 5.0
"""Longest that the store may take, from when a thread is free to ask it."""

Result = TypeVar("Result")


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one address."""

    artifact: str = ""
    """The content by its name in the store."""
    declared: str = ""
    name: str = ""
    failure: Unfetched | None = None
    """Why there is no content."""


class FetchCache:
    """Remembers next to the artifacts, where all workers see it."""

    def __init__(self, folder: ArtifactFolder) -> None:
        self._folder = folder
        self._threads = Threads(2, "findings")

    async def recall(self, address: str, tenant: str) -> Finding | None:
        """The outcome, if it is known and still valid. Raises ArtifactStoreUnavailable if the store does not respond,
        as the known outcome would otherwise be forgotten."""
        kept = await self._run(self._folder.get, _key(address, tenant))
        if kept is None:
            return None
        try:
            finding = msgspec.json.decode(kept.content, type=Finding)
        except msgspec.DecodeError:
            return None
        unused_seconds = time.time() - kept.used
        if finding.failure is not None and unused_seconds >= FAILURE_SECONDS:
            return None
        if unused_seconds >= NOTE_SECONDS:
            await self.note(address, finding, tenant)
        return finding

    async def note(self, address: str, finding: Finding, tenant: str) -> None:
        """Remember it, unless nothing can be written. Raises ArtifactStoreUnavailable."""
        await self._run(self._folder.put, _key(address, tenant), msgspec.json.encode(finding))

    async def _run(self, work: Callable[..., Result], *given: object) -> Result | None:
        try:
            return await self._threads.run(WAIT_SECONDS, partial(work, *given))
        except (TooSlow, NoAnswer):
            raise ArtifactStoreUnavailable("the store of the artifacts gives no answer") from None
        except TROUBLE:
            return None  # missing, unreadable or unwritable


def _key(address: str, tenant: str) -> str:
    """Named by a hash: the address may hold a password."""
    return finding_key(hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest(), tenant)
