# ruff: noqa: ASYNC240 - tests look at the disk; nothing else runs on their loop
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from proxy.core.conversation.references import FetchError
from proxy.errors import ArtifactStoreUnavailable
from proxy.shell.artifacts.bucket import Bucket
from proxy.shell.artifacts.folder import finding_key
from proxy.shell.artifacts.private_folder import PrivateFolder
from proxy.shell.artifacts.sweep import sweep
from proxy.shell.references import fetch_cache as findings_module
from proxy.shell.references.fetch_cache import (
    FAILURE_SECONDS,
    MAX_REMEMBERED,
    NOTE_SECONDS,
    FetchCache,
    Finding,
    address_sha256,
)

TENANT, OTHER = "5eed" * 8, "beef" * 8
URL = "https://example.org/a.png?signature=secret"
DIGEST = address_sha256(URL)
KEPT = Finding(DIGEST, "tool_fetched_0123456789abcdef.png", "image/png", "a.png")
FAILED = Finding(DIGEST, "", "", "", FetchError.TOO_LARGE, 200, "https://example.org/a.png", "image/png", 20_971_520.0)


class Clock:
    """Unix time that moves when it is told to; it begins now, as files carry the time of the machine."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tool-output"


def opened(folder: Path, clock: Clock | None = None) -> FetchCache:
    return FetchCache(PrivateFolder(folder), clock=clock or Clock())


@pytest.mark.parametrize("finding", [KEPT, FAILED])
async def test_a_finding_is_known_here_and_after_a_restart_and_to_its_tenant_alone(
    folder: Path, finding: Finding
) -> None:
    here = opened(folder)
    assert await here.recall(URL, TENANT) is None
    await here.note(finding, TENANT)
    for seen in (here, opened(folder)):
        assert await seen.recall(URL, TENANT) == finding
        assert await seen.recall(URL, OTHER) is None
        assert await seen.recall(URL + "2", TENANT) is None


async def test_the_address_itself_is_not_kept_and_only_we_can_read_the_rest(folder: Path) -> None:
    await opened(folder).note(KEPT, TENANT)
    note = folder / finding_key(DIGEST, TENANT)
    assert b"secret" not in note.read_bytes()
    assert note.stat().st_mode & 0o077 == 0


async def test_a_failure_stands_for_an_hour_after_its_last_use(folder: Path) -> None:
    clock = Clock()
    here = opened(folder, clock)
    await here.note(FAILED, TENANT)
    for _ in range(3):
        clock.now += FAILURE_SECONDS - 1
        assert await here.recall(URL, TENANT) == FAILED
    clock.now += FAILURE_SECONDS
    assert await here.recall(URL, TENANT) is None


async def test_a_failure_of_long_ago_is_none_to_another_worker(folder: Path) -> None:
    clock = Clock()
    await opened(folder, clock).note(FAILED, TENANT)
    clock.now += FAILURE_SECONDS + 1
    assert await opened(folder, clock).recall(URL, TENANT) is None


async def test_what_was_found_stands_as_long_as_it_lies_there(folder: Path) -> None:
    clock = Clock()
    await opened(folder, clock).note(KEPT, TENANT)
    clock.now += 100 * FAILURE_SECONDS
    assert await opened(folder, clock).recall(URL, TENANT) == KEPT


async def test_a_use_is_noted_so_that_other_workers_see_it(folder: Path) -> None:
    clock = Clock()
    here = opened(folder, clock)
    await here.note(FAILED, TENANT)
    note = folder / finding_key(DIGEST, TENANT)
    os.utime(note, (0, 0))
    clock.now += NOTE_SECONDS - 1
    await here.recall(URL, TENANT)
    assert note.stat().st_mtime == 0
    clock.now += 1
    await here.recall(URL, TENANT)
    assert time.time() - note.stat().st_mtime < 60


@pytest.mark.parametrize("written", [b"", b"{", b'{"address_sha256": 7}', b'{"address_sha256": "another"}'])
async def test_a_note_that_is_broken_or_of_another_address_says_nothing(folder: Path, written: bytes) -> None:
    await opened(folder).note(KEPT, TENANT)
    (folder / finding_key(DIGEST, TENANT)).write_bytes(written)
    assert await opened(folder).recall(URL, TENANT) is None


async def test_where_nothing_can_be_written_it_is_remembered_as_long_as_the_process_lives(folder: Path) -> None:
    folder.write_text("a file in the folder's place")
    here = opened(folder)
    await here.note(FAILED, TENANT)
    assert await here.recall(URL, TENANT) == FAILED
    assert await opened(folder).recall(URL, TENANT) is None


async def test_what_became_of_an_address_is_known_to_all_who_share_a_bucket() -> None:
    bucket = Bucket("memory:///")
    assert await FetchCache(bucket).recall(URL, TENANT) is None
    await FetchCache(bucket).note(FAILED, TENANT)
    assert await FetchCache(bucket).recall(URL, TENANT) == FAILED


async def test_a_store_that_hangs_is_no_store_that_knows_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_module, "WAIT_SECONDS", 0.02)
    go_on = threading.Event()
    here = opened(folder)
    here._folder.is_used = go_on.wait  # type: ignore[method-assign]
    with pytest.raises(ArtifactStoreUnavailable):
        await here.recall(URL, TENANT)
    go_on.set()


async def test_nothing_is_made_on_disk_by_looking(folder: Path) -> None:
    await opened(folder).recall(URL, TENANT)
    assert not folder.exists()


async def test_findings_that_nobody_used_for_long_are_swept(folder: Path) -> None:
    clock, place = Clock(), PrivateFolder(folder)
    await FetchCache(place, clock=clock).note(FAILED, TENANT)
    for days, is_there in ((6, True), (8, False)):
        now = clock.now + days * 24 * 3600
        sweep(place, place.listed(), now, retention_seconds=7 * 24 * 3600, max_bytes=2**30)
        assert (folder / finding_key(DIGEST, TENANT)).exists() == is_there


@pytest.mark.parametrize(
    ("digest", "tenant"), [("", TENANT), ("../../x" * 5, TENANT), ("A" * 32, TENANT), (DIGEST, "../x")]
)
def test_only_a_hash_and_a_tenant_make_a_key(digest: str, tenant: str) -> None:
    with pytest.raises(ValueError, match="hash"):
        finding_key(digest, tenant)


async def test_what_is_remembered_is_bounded_and_the_oldest_use_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_REMEMBERED <= 10_000
    monkeypatch.setattr(findings_module, "MAX_REMEMBERED", 2)
    here = opened(folder)
    for name in "abc":
        await here.note(Finding(address_sha256(name)), TENANT)
        await here.recall("a", TENANT)
    assert [key[0] for key in here._remembered] == [address_sha256("c"), address_sha256("a")]
    assert await here.recall("b", TENANT) == Finding(address_sha256("b")), "it is still on disk"
