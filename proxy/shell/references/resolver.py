"""Looks up what the references of a request refer to: images from the web, artifacts from the store.

Rule: what cannot be looked up now stays as it is, and no failure here fails a request; an address is requested once and
then known, even as a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from proxy.core.artifact import FETCHED, Artifact
from proxy.core.content_types import media_type
from proxy.core.conversation.references import Fetched, FetchError, Origin, Reference, Resolved, Unfetched
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable
from proxy.shell.artifacts.cooldown import Cooldown
from proxy.shell.artifacts.reader import ArtifactReader
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.references.fetch_cache import FetchCache, Finding, address_sha256
from proxy.shell.references.public_addresses import literal_address
from proxy.shell.resources.logs import logger

MAX_AT_ONCE: Final = 4
"""Of one request."""
MAX_REFERENCES: Final = 256
"""Of one request; further ones stay as they are."""
PATIENCE: Final = 3
"""Times the limit for one image: how long a request waits for all of its own. What arrives later is ready for its next
turn; until then the reference stays as it is."""
READ_SECONDS: Final = 10.0
"""Longest wait for the store."""

Found: TypeAlias = Fetched | Unfetched


class Downloads(Protocol):
    """Fetches one image."""

    async def fetch(self, address: str) -> Found:
        """The image, or why there is none."""

    async def aclose(self) -> None:
        """Release all resources."""


class Resolver:
    """Looks references up, per tenant."""

    def __init__(
        self,
        reader: ArtifactReader,
        store: ArtifactStore,
        findings: FetchCache,
        downloads: Downloads | None,
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
        self._log = logger()

    def may_refer(self, new: bytes, may_name_images: Callable[[bytes], bool]) -> bool:
        """Whether the new bytes of a request may hold a reference: most hold none. `may_name_images`: whether they may
        name an image."""
        return b"artifact:" in new or (self._downloads is not None and b"http" in new and may_name_images(new))

    async def resolve(self, references: Iterable[Reference], tenant: str) -> Resolved:
        """What these references refer to. A reference missing from the result stays as it is."""
        wanted = {reference.address: reference for reference in references if self._is_ours(reference)}
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
        self._findings.close()

    def _is_ours(self, reference: Reference) -> bool:
        return reference.origin is Origin.ARTIFACT or self._downloads is not None

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
            if reference.origin is Origin.ARTIFACT:
                return await self._held(reference, tenant)
            return await self._remote(reference.address, tenant)
        except (ArtifactStoreUnavailable, TimeoutError):
            self._cooldown.begin()
            return None
        except Exception:
            self._log.exception("reference_failed", origin=reference.origin.value)
            return None

    async def _held(self, reference: Reference, tenant: str) -> Fetched | None:
        """An artifact that is named. Its absence is remembered, too: it may exist at the next turn, and what was once
        sent unchanged would then be sent differently."""
        if await self._findings.recall(reference.address, tenant) is not None:
            return None
        found = await self._read(reference.artifact_id, tenant)
        if found is None:
            await self._findings.note(Finding(address_sha256(reference.address), obstacle=FetchError.NOT_FOUND), tenant)
        return found

    async def _read(self, artifact: str, tenant: str, declared: str = "", name: str = "") -> Fetched | None:
        """An artifact; None if it is gone, another tenant's, or too large. Raises ArtifactStoreUnavailable and
        TimeoutError."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                stored = await self._reader.find(artifact, tenant)
                if stored.size > self._max_bytes:
                    return None
                content = await self._reader.piece(stored, 0, stored.size)
        except ArtifactNotFound:
            return None
        return Fetched(content, declared or stored.metadata.media_type, name or artifact)

    async def _remote(self, address: str, tenant: str) -> Found | None:
        finding = await self._findings.recall(address, tenant)
        if finding is not None and finding.obstacle is not None:
            said = (finding.http_code, finding.final_url, finding.content_type, finding.limit)
            return Unfetched(finding.obstacle, *said)
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
            task.exception()  # retrieved, even if nobody waits for it any more

    async def _downloaded(self, address: str, tenant: str) -> Found | None:
        """The image, stored and remembered; None if it cannot be stored, as the next turn would get another one."""
        assert self._downloads is not None, "asked for with downloads only"
        found = await self._downloads.fetch(address)
        digest, host = address_sha256(address), host_of(address)
        if isinstance(found, Unfetched):
            reason = found.obstacle.value
            self._log.info("image_not_fetched", host=host, reason=reason, http_code=found.http_code)
            said = (found.obstacle, found.http_code, found.final_url, found.content_type, found.limit)
            await self._findings.note(Finding(digest, "", "", "", *said), tenant)
            return found
        kind = media_type(found.content, found.declared, found.name)
        artifact = Artifact(found.content, FETCHED, kind.suffix)
        if await self._store.keep((artifact,), tenant):
            return None
        self._log.info("image_fetched", host=host, type=kind.mime, bytes=len(found.content), artifact=artifact.id)
        await self._findings.note(Finding(digest, artifact.id, found.declared, found.name), tenant)
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
