"""Artifacts for callers that ask by hash: each one is stored together with a short record, which the hash finds.

Rule: a record belongs to one tenant and is named by the tenant and the hash, so nobody reads or replaces another
tenant's record; it is stored together with its artifact, before anybody gets the hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from proxy.core.artifact import Artifact
from proxy.errors import ArtifactNotFound
from proxy.shell.artifacts.reader import ArtifactReader, Stored
from proxy.shell.artifacts.store import ArtifactStore

RECORD_TOOL: Final = "retrieve"
"""The tool in the names of records."""


class Record(msgspec.Struct, frozen=True):
    """Where an artifact is, and what it was taken from."""

    artifact: str
    """Its name."""
    tokens: int
    """Size of the message that contained it, in the model's tokens."""
    lines: tuple[int, int]
    """Line counts of that message, before and after compression."""


class ArtifactsByHash:
    """Stores artifacts so that they can be found by hash, and finds them."""

    def __init__(self, store: ArtifactStore, reader: ArtifactReader) -> None:
        self._store = store
        self._reader = reader

    async def keep(self, taken: Sequence[tuple[Artifact, Record]], tenant: str) -> frozenset[str]:
        """Make sure that these can be retrieved. Returns the names of the artifacts that cannot."""
        records = {artifact.id: _kept_as(artifact.hash, tenant, record) for artifact, record in taken}
        failed = await self._store.keep([*(artifact for artifact, _ in taken), *records.values()], tenant)
        return frozenset(name for name, record in records.items() if name in failed or record.id in failed)

    async def find(self, asked: str, tenant: str) -> tuple[Record, Stored]:
        """The tenant's record and artifact under a hash. Raises ArtifactError."""
        noted = await self._reader.find(_kept_as(asked, tenant).id, tenant)
        try:
            record = msgspec.json.decode(await self._reader.piece(noted, 0, noted.size), type=Record)
        except msgspec.DecodeError:
            raise ArtifactNotFound("nothing is kept under this hash") from None
        return record, await self._reader.find(record.artifact, tenant)

    async def content(self, stored: Stored) -> bytes:
        """The whole content. Raises ArtifactError."""
        return await self._reader.piece(stored, 0, stored.size)


def _kept_as(asked: str, tenant: str, record: Record | None = None) -> Artifact:
    content = b"" if record is None else msgspec.json.encode(record)
    return Artifact(content, RECORD_TOOL, "json", named_by=f"{tenant} {asked}")
