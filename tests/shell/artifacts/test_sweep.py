import asyncio
import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple
from structlog.testing import capture_logs
from support.waiting import PATIENCE_SECONDS, until

from proxy.core.artifact import Artifact
from proxy.shell.artifacts import ArtifactStore, PrivateFolder, metadata_key, sweep
from proxy.shell.resources import UNFINISHED, remove_unfinished

TENANT = "5eed" * 8
HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
BLOCK = 4096
PLENTY = 2**40


def stored(folder, number, *, idle_seconds, now, size=100, tenant=TENANT):
    """An artifact that was written long ago and last used as said."""
    artifact = Artifact(number.to_bytes(4, "big") + b"x" * (size - 4), tool="t")
    content, note = folder / artifact.id, folder / metadata_key(artifact.id, tenant)
    note.parent.mkdir(exist_ok=True)
    content.write_bytes(artifact.content)
    note.write_bytes(b"{}")
    os.utime(content, (now - 100 * DAY, now - 100 * DAY))
    os.utime(note, (now - idle_seconds, now - idle_seconds))
    return artifact


def swept_folder(folder, now, **limits):
    kept = PrivateFolder(folder)
    return sweep(kept, kept.listed(), now, **limits)


def names(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def notes(folder):
    return {path.name for path in (folder / ".meta").iterdir()}


@pytest.fixture
def now():
    return time.time()


def test_what_was_not_used_for_longer_than_its_time_goes_with_its_note(tmp_path, now):
    stored(tmp_path, 1, idle_seconds=WEEK + 60, now=now)
    young = stored(tmp_path, 2, idle_seconds=WEEK - 60, now=now)
    swept = swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=PLENTY)
    assert astuple(swept) == (1, 2 * BLOCK, 1, 2 * BLOCK)
    assert names(tmp_path) == {young.id}
    assert notes(tmp_path) == {f"{young.id}.{TENANT}.json"}


def test_what_may_have_been_used_within_the_hour_goes_last_and_never_for_its_age(tmp_path, now):
    in_use = [stored(tmp_path, n, idle_seconds=2 * HOUR - 60 - n, now=now) for n in (1, 2)]
    stored(tmp_path, 3, idle_seconds=2 * HOUR + 60, now=now)
    assert swept_folder(tmp_path, now, retention_seconds=1, max_bytes=4 * BLOCK).removed == 1
    assert names(tmp_path) == {one.id for one in in_use}
    assert swept_folder(tmp_path, now, retention_seconds=1, max_bytes=3 * BLOCK).removed == 1
    assert names(tmp_path) == {in_use[1].id}


def test_an_artifact_belongs_to_the_tenant_that_used_it_last(tmp_path, now):
    shared = stored(tmp_path, 1, idle_seconds=3 * HOUR, now=now)
    stored(tmp_path, 1, idle_seconds=4 * HOUR, now=now, tenant="beef")
    stored(tmp_path, 2, idle_seconds=5 * HOUR, now=now, tenant="beef")
    mine = stored(tmp_path, 3, idle_seconds=6 * HOUR, now=now)
    swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=6 * BLOCK)
    assert mine.id not in names(tmp_path)
    assert shared.id in names(tmp_path)


@settings(max_examples=40, deadline=None)
@given(
    held=st.lists(st.tuples(st.sampled_from(["a1", "b2", "c3"]), st.integers(0, 40)), min_size=1, max_size=14),
    max_blocks=st.integers(0, 30),
)
def test_nobody_within_a_share_loses_anything_and_the_limit_holds_at_once(tmp_path_factory, held, max_blocks):
    folder, now = tmp_path_factory.mktemp("shared"), time.time()
    idle, of = {}, {}
    for n, (tenant, hours) in enumerate(held):
        name = stored(folder, n, idle_seconds=hours * HOUR + n, now=now, tenant=tenant).id
        idle[name], of[name] = hours * HOUR + n, tenant
    swept = swept_folder(folder, now, retention_seconds=WEEK, max_bytes=max_blocks * BLOCK)
    left, seen = names(folder), {of[name] for name in idle if idle[name] <= DAY}
    assert swept.kept_bytes <= max_blocks * BLOCK
    for tenant in {*of.values()}:
        own = [name for name in idle if of[name] == tenant]
        gone = {name for name in own if name not in left}
        if 2 * len(own) * len(seen) <= max_blocks and tenant in seen:
            assert not gone
        assert not gone or max(idle[name] for name in own if name in left or name in gone) in {idle[n] for n in gone}
        assert all(idle[name] >= max((idle[n] for n in left if of[n] == tenant), default=0) for name in gone)
    if len(held) * 2 <= max_blocks:
        assert swept.removed == 0


def test_the_use_by_any_tenant_keeps_it(tmp_path, now):
    artifact = stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)
    (tmp_path / metadata_key(artifact.id, "beef")).write_bytes(b"{}")
    assert swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=PLENTY).removed == 0
    assert names(tmp_path) == {artifact.id}


def test_the_files_of_strangers_stay(tmp_path, now):
    artifact = stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)
    (tmp_path / "sub" / ".meta").mkdir(parents=True)
    strangers = [
        tmp_path / "notes.txt",
        tmp_path / "tool_x.txt",
        tmp_path / f"{artifact.id}.bak",
        tmp_path / f"my_{artifact.id}",
        tmp_path / "sub" / artifact.id,
        tmp_path / "sub" / metadata_key(artifact.id, TENANT),
        *(tmp_path / ".meta" / name for name in ("README", "trial", artifact.id)),
        tmp_path / f"{artifact.id}#1",
    ]
    for path in strangers:
        path.write_text("mine")
        os.utime(path, (1, 1))
    (tmp_path / "loop").symlink_to(tmp_path)
    link = tmp_path / "tool_t_0123456789abcdef.txt"
    link.symlink_to(tmp_path / "notes.txt")
    os.utime(link, (1, 1), follow_symlinks=False)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=0).removed == 1
    assert not (tmp_path / artifact.id).exists()
    assert all(path.read_text() == "mine" for path in [*strangers, link])


def test_half_of_a_pair_goes_too(tmp_path, now):
    alone = stored(tmp_path, 1, idle_seconds=WEEK, now=now)
    (tmp_path / metadata_key(alone.id, TENANT)).unlink()
    noted = stored(tmp_path, 2, idle_seconds=2 * WEEK, now=now)
    (tmp_path / noted.id).unlink()
    assert swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=PLENTY).removed == 2
    assert names(tmp_path) == notes(tmp_path) == set()


def test_a_pass_is_bounded_and_the_next_one_continues(tmp_path, now, monkeypatch):
    monkeypatch.setattr("proxy.shell.artifacts.store.MAX_REMOVED", 3)
    for n in range(5):
        stored(tmp_path, n, idle_seconds=WEEK + n, now=now)
    passes = [swept_folder(tmp_path, now, retention_seconds=DAY, max_bytes=PLENTY).removed for _ in range(3)]
    assert passes == [3, 2, 0]


def test_what_is_used_while_a_pass_runs_stays(tmp_path, now):
    artifact = stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)
    folder = PrivateFolder(tmp_path)
    listed = list(folder.listed())
    os.utime(tmp_path / metadata_key(artifact.id, TENANT))
    assert sweep(folder, listed, now, retention_seconds=WEEK, max_bytes=0).removed == 0
    assert names(tmp_path) == {artifact.id}


def test_workers_may_sweep_at_the_same_time(tmp_path, now):
    for n in range(200):
        stored(tmp_path, n, idle_seconds=2 * WEEK, now=now)
    stays = stored(tmp_path, 1000, idle_seconds=DAY, now=now)
    with ThreadPoolExecutor(4) as workers:
        passes = [
            workers.submit(swept_folder, tmp_path, now, retention_seconds=WEEK, max_bytes=PLENTY) for _ in range(4)
        ]
        assert sum(one.result().removed for one in passes) >= 200
    assert names(tmp_path) == {stays.id}
    assert notes(tmp_path) == {f"{stays.id}.{TENANT}.json"}


@pytest.mark.parametrize("removed", [0, 2])
def test_a_pass_ends_soon_after_it_is_stopped(tmp_path, now, removed):
    for n in range(5):
        stored(tmp_path, n, idle_seconds=2 * WEEK, now=now)
    looks = iter([False] * (10 + removed))  # for each object that is listed, then for each artifact
    swept = swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=0, stopped=lambda: next(looks, True))
    assert (swept.removed, swept.kept, len(names(tmp_path))) == (removed, 5 - removed, 5 - removed)


def test_content_goes_before_its_note_so_that_a_crash_leaves_nothing_unaccounted(tmp_path, now, monkeypatch):
    artifact = stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)
    removed: list[str] = []
    monkeypatch.setattr(PrivateFolder, "remove", lambda _, key: removed.append(key))
    swept_folder(tmp_path, now, retention_seconds=WEEK, max_bytes=0)
    assert removed == [artifact.id, metadata_key(artifact.id, TENANT)]


@settings(max_examples=40, deadline=None)
@given(
    ages=st.lists(st.tuples(st.integers(0, 14 * 24), st.integers(4, 20_000)), min_size=1, max_size=12),
    max_blocks=st.integers(0, 40),
)
def test_what_is_left_is_recent_and_small_enough(tmp_path_factory, ages, max_blocks):
    folder, now = tmp_path_factory.mktemp("swept"), time.time()
    idle, blocks = {}, {}
    for n, (hours, size) in enumerate(ages):
        name = stored(folder, n, idle_seconds=hours * HOUR + n, now=now, size=size).id
        idle[name], blocks[name] = hours * HOUR + n, -(-size // BLOCK) + 1
    swept = swept_folder(folder, now, retention_seconds=WEEK, max_bytes=max_blocks * BLOCK)
    left = names(folder)
    assert all(idle[name] <= WEEK for name in left)
    assert swept.kept_bytes == sum(blocks[name] for name in left) * BLOCK <= max_blocks * BLOCK
    gone_early = {idle[name]: blocks[name] for name in idle.keys() - left if idle[name] <= WEEK}
    if gone_early:
        last = min(gone_early)
        assert last > max((idle[name] for name in left), default=-1)
        assert swept.kept_bytes > (max_blocks - gone_early[last]) * BLOCK, "no more goes than must"
    assert (swept.kept, swept.removed) == (len(left), len(idle) - len(left))


class Passes(ArtifactStore):
    """A store that counts its sweeps."""

    def __init__(self, folder, **settings):
        super().__init__(PrivateFolder(folder), retention_days=7, **settings)
        self.passes = 0

    def _sweep_once(self):
        super()._sweep_once()
        self.passes += 1


@asynccontextmanager
async def sweeping(store):
    """A store that sweeps."""
    task = asyncio.create_task(store.sweep_for_ever())
    try:
        yield
    finally:
        task.cancel()
        await store.close()


async def swept_once(folder, clock, monkeypatch):
    """The log of a store that was started, swept and was closed."""
    monkeypatch.setattr("proxy.shell.artifacts.store.FIRST_SWEEP_SECONDS", (0, 0))
    store = Passes(folder, max_bytes=PLENTY, clock=clock)
    with capture_logs() as logs:
        async with sweeping(store):
            await until(lambda: store.passes)
    return logs


async def test_a_full_store_is_swept_at_once_and_the_oldest_goes(tmp_path):
    kept = [Artifact(bytes([n]) * 5 * BLOCK, tool="t") for n in range(4)]
    store = Passes(tmp_path, max_bytes=20 * BLOCK)
    async with sweeping(store):
        for number, artifact in enumerate(kept, 1):
            assert await store.keep([artifact], TENANT) == frozenset()
            os.utime(tmp_path / artifact.id, (number, number))
            os.utime(tmp_path / metadata_key(artifact.id, TENANT), (time.time() - 100 + number,) * 2)
            assert store.passes == 0
        await store.keep([Artifact(b"x" * 5 * BLOCK, tool="t")], TENANT)
        await until(lambda: store.passes)
    assert len(names(tmp_path)) == 3
    assert kept[0].id not in names(tmp_path)


async def test_a_store_that_runs_sweeps_and_says_what_it_did(tmp_path, now, monkeypatch):
    stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)
    stays = stored(tmp_path, 2, idle_seconds=DAY, now=now)
    (line,) = await swept_once(tmp_path, lambda: now, monkeypatch)
    assert names(tmp_path) == {stays.id}
    assert (line["event"], line["removed"], line["removed_bytes"]) == ("artifacts_swept", 1, 2 * BLOCK)
    assert (line["kept"], line["kept_bytes"]) == (1, 2 * BLOCK)


async def test_what_a_dead_worker_left_half_written_goes(tmp_path, now, monkeypatch):
    stays = stored(tmp_path, 1, idle_seconds=DAY, now=now)
    odd = metadata_key("tool_t_0123456789abcdef.part", TENANT)
    (tmp_path / odd).write_bytes(b"{}")
    for name, idle_seconds in (("00ff.part", DAY), ("00ff.part#1", DAY), ("0abc.part#1", 60)):
        (tmp_path / ".meta" / name).write_bytes(b"half")
        os.utime(tmp_path / ".meta" / name, (now - idle_seconds, now - idle_seconds))
    os.utime(tmp_path / odd, (now - DAY, now - DAY))
    await swept_once(tmp_path, lambda: now, monkeypatch)
    assert notes(tmp_path) == {f"{stays.id}.{TENANT}.json", "0abc.part#1", Path(odd).name}


async def test_a_folder_that_is_not_there_is_not_made_by_sweeping(tmp_path, now, monkeypatch):
    assert await swept_once(tmp_path / "none", lambda: now, monkeypatch) == []
    assert not (tmp_path / "none").exists()


async def test_trouble_while_sweeping_is_logged_and_sweeping_continues(tmp_path, now, monkeypatch):
    stored(tmp_path, 1, idle_seconds=2 * WEEK, now=now)

    monkeypatch.setattr(PrivateFolder, "stat", Mock(side_effect=OSError(errno.EIO, "x")))
    (line,) = await swept_once(tmp_path, lambda: now, monkeypatch)
    assert (line["event"], line["during"], line["reason"]) == ("artifact_store_failed", "sweep", "Input/output error")


async def test_a_store_can_be_closed_before_its_first_pass_and_without_sweeping(tmp_path):
    store = ArtifactStore(PrivateFolder(tmp_path), retention_days=7, max_bytes=PLENTY)
    await store.close()
    async with sweeping(store):
        pass
    assert await store.keep([Artifact(b"late")], TENANT) == frozenset()


async def test_a_pass_that_closing_cut_short_says_nothing(tmp_path, monkeypatch):
    under_way = threading.Event()

    def slow(*_, stopped, **__):
        under_way.set()
        while not stopped():
            time.sleep(0.001)

    monkeypatch.setattr("proxy.shell.artifacts.store.sweep", slow)
    monkeypatch.setattr("proxy.shell.artifacts.store.FIRST_SWEEP_SECONDS", (0, 0))
    (tmp_path / ".meta").mkdir()
    store = ArtifactStore(PrivateFolder(tmp_path), retention_days=7, max_bytes=PLENTY)
    with capture_logs() as logs:
        async with sweeping(store):
            assert await asyncio.to_thread(under_way.wait, PATIENCE_SECONDS)
        await until(lambda: "artifacts" not in {one.name for one in threading.enumerate()})
    assert logs == []


def test_what_a_killed_worker_left_behind_is_removed_and_nothing_else(tmp_path):
    old = ["owner-secret.0123456789abcdef.unfinished", "learned.0123456789abcdef.unfinished"]
    others = ["owner-secret", "learned.json", "notes.unfinished", "x.0123.unfinished"]
    for name in (*old, *others):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (1_000, 1_000))
    fresh = tmp_path / "learned.fedcba9876543210.unfinished"
    fresh.write_text("another worker writes it")
    remove_unfinished(tmp_path, UNFINISHED, 2_000)
    assert {path.name for path in tmp_path.iterdir()} == {*others, fresh.name}
