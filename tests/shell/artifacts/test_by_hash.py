"""Artifacts requested by hash: each owner has its own record of them."""

import pytest

from proxy.core.artifact import Artifact
from proxy.errors import ArtifactNotFound
from proxy.shell.artifacts import ArtifactReader, ArtifactsByHash, ArtifactStore, PrivateFolder, Record

MINE, OTHERS = "5eed", "0123"
WHOLE = Artifact(b"the whole of it\n", "Bash")
RECORD = Record(WHOLE.id, 5, (1, 1))


class Kept:
    """A folder with all that reads and writes it."""

    def __init__(self, path):
        self.path = path
        self.folder = PrivateFolder(path)
        self.store = ArtifactStore(self.folder, retention_days=7, max_bytes=10**9)
        self.reader = ArtifactReader(self.folder, retention_days=7)
        self.by_hash = ArtifactsByHash(self.store, self.reader)


@pytest.fixture
async def kept(tmp_path):
    found = Kept(tmp_path / "artifacts")
    yield found
    await found.store.close()


class LosesRecords:
    """A store that keeps no JSON."""

    async def keep(self, artifacts, tenant):
        return frozenset(artifact.id for artifact in artifacts if artifact.id.endswith(".json"))


async def test_a_stored_artifact_is_found_by_its_tenant_only(kept):
    assert await kept.by_hash.keep([(WHOLE, RECORD)], MINE) == frozenset()
    record, stored = await kept.by_hash.find(WHOLE.hash, MINE)
    assert (record, await kept.by_hash.content(stored)) == (RECORD, WHOLE.content)
    for digest, tenant in ((WHOLE.hash, OTHERS), (WHOLE.hash[:12], MINE)):
        with pytest.raises(ArtifactNotFound):
            await kept.by_hash.find(digest, tenant)


async def test_an_artifact_without_its_record_counts_as_not_kept(kept):
    by_hash = ArtifactsByHash(LosesRecords(), kept.reader)
    assert await by_hash.keep([(WHOLE, RECORD)], MINE) == {WHOLE.id}


async def test_a_record_that_is_broken_leads_nowhere(kept):
    await kept.by_hash.keep([(WHOLE, RECORD)], MINE)
    (record,) = kept.path.glob("tool_retrieve_*.json")
    record.write_bytes(b"{" * record.stat().st_size)
    with pytest.raises(ArtifactNotFound):
        await kept.by_hash.find(WHOLE.hash, MINE)


def test_a_hash_leads_to_the_name_and_the_bytes():
    others = (
        Artifact(WHOLE.content, "Read"),
        Artifact(WHOLE.content + b"x", "Bash"),
        Artifact(WHOLE.content, "Bash", "md"),
    )
    assert len({WHOLE.hash, *(other.hash for other in others)}) == 4
    assert Artifact(WHOLE.content, "Bash").hash == WHOLE.hash
