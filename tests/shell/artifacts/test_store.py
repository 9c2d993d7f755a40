import asyncio
import errno
import os
import resource
import stat
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import Mock, patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.waiting import Clock

from proxy.core import artifact as artifact_module
from proxy.core.artifact import Artifact
from proxy.shell.artifacts import ArtifactStore, PrivateFolder
from proxy.shell.artifacts.bucket import Bucket

TENANT = "5eed" * 8
OTHER = "beef" * 8
LOG = Artifact(b"line\n" * 1000, tool="run_shell_command")
LARGEST_FILE = 32 << 20


def opened(folder, clock=time.time):
    return ArtifactStore(PrivateFolder(folder), retention_days=7, max_bytes=2**30, clock=clock)


def note_of(folder, artifact, tenant=TENANT):
    return folder / ".meta" / f"{artifact.id}.{tenant}.json"


def all_files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "tool-output"


@pytest.fixture
def puts():
    """Calls that write a file to the folder."""
    with patch.object(PrivateFolder, "put", autospec=True, side_effect=PrivateFolder.put) as put:
        yield put


@pytest.fixture
def small_files():
    """The kernel lets no file grow over `LARGEST_FILE`: a write breaks in its middle, as on a full disk.

    The limit holds for every file of this process, the one that takes the output of the tests among them: it must be
    far over what that can have grown to, or the whole run ends here without a word.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_place_is_absolute_whatever_the_folder_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = opened(Path("x/../out"))
    assert PrivateFolder(Path("x/../out")).place_of(LOG.id) == str(tmp_path / "out" / LOG.id)
    monkeypatch.chdir("/")
    await store.keep([LOG], TENANT)
    assert (tmp_path / "out" / LOG.id).is_file()


async def test_metadata_say_what_it_is_and_who_brought_it(folder):
    clock = Clock(time.time())
    clock.now = 1_700_000_000.0
    await opened(folder, clock).keep([Artifact(b'{"a":1}', tool="搜索", suffix="json")], TENANT)
    (note,) = (folder / ".meta").iterdir()
    assert msgspec.json.decode(note.read_bytes()) == {
        "tool": "搜索",
        "created": "2023-11-14T22:13:20+00:00",
        "size": 7,
        "media_type": "application/json",
        "owner": TENANT,
    }


async def test_content_appears_under_its_name_only_when_it_is_whole_and_private(folder, monkeypatch):
    seen: list[tuple[int, int]] = []
    real = os.replace

    def rename(source, to):
        if to == str(folder / LOG.id):
            assert not os.path.exists(to)
            seen.append((os.stat(source).st_size, stat.S_IMODE(os.stat(source).st_mode)))
        real(source, to)

    monkeypatch.setattr(os, "replace", rename)
    await opened(folder).keep([LOG], TENANT)
    assert seen == [(len(LOG.content), 0o600)]


async def test_what_is_new_is_written_and_logged_once(folder, puts):
    store = opened(folder)
    with capture_logs() as logs:
        for _ in range(3):
            await store.keep([LOG, LOG], TENANT)
        assert puts.call_count == 2  # the note and the content
        (folder / LOG.id).unlink()
        await store.keep([LOG], TENANT)
        assert puts.call_count > 2
    (line,) = logs
    assert (line["event"], line["artifact"], line["bytes"]) == ("artifact_saved", LOG.id, 5000)
    assert (line["log_level"], line["tool"]) == ("info", "run_shell_command")


async def test_what_another_worker_kept_is_not_written_again(folder, puts):
    await opened(folder).keep([LOG], TENANT)
    puts.reset_mock()
    with capture_logs() as logs:
        assert await opened(folder).keep([LOG], TENANT) == frozenset()
    puts.assert_not_called()
    assert logs == []


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b"half"),
        lambda path: path.parent.rename(path.parent.with_name("away")),
    ],
    ids=["gone", "shortened", "its folder is gone"],
)
@pytest.mark.parametrize("same_worker", [True, False])
async def test_content_that_is_not_there_any_more_is_written_again(folder, damage, same_worker):
    store = opened(folder)
    await store.keep([LOG], TENANT)
    damage(folder / LOG.id)
    assert await (store if same_worker else opened(folder)).keep([LOG], TENANT) == frozenset()
    assert (folder / LOG.id).read_bytes() == LOG.content
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_every_tenant_has_a_note_of_his_own(folder):
    store = opened(folder)
    await store.keep([LOG], TENANT)
    await store.keep([LOG], OTHER)
    assert all_files(folder) == {LOG.id, f".meta/{LOG.id}.{TENANT}.json", f".meta/{LOG.id}.{OTHER}.json"}


async def test_no_tenant_replaces_what_another_one_reads(folder, monkeypatch):
    monkeypatch.setattr(artifact_module, "DIGEST_CHARACTERS", 2)  # of 16: two contents with one name are soon found
    kept = Artifact(b"line\n" * 1000)
    same_name = (Artifact(b"%d" % number) for number in range(10_000))
    other = next(artifact for artifact in same_name if artifact.id == kept.id)
    monkeypatch.setattr("proxy.shell.artifacts.store.metadata_key", lambda name, tenant: f".meta/{name}.{tenant}.json")
    store = opened(folder)
    await store.keep([kept], TENANT)
    for content in (other.content, b"x" * len(kept.content)):
        taken = Artifact(content)
        if taken.id == kept.id:
            assert await store.keep([taken], OTHER) == {taken.id}
    assert await opened(folder).keep([kept], OTHER) == frozenset()
    assert (folder / kept.id).read_bytes() == kept.content


async def test_the_first_artifact_of_a_name_stays(folder):
    first, second = (Artifact(content, named_by="a mark of this owner") for content in (b"first", b"the second"))
    for artifact in (first, second):
        assert await opened(folder).keep([artifact], TENANT) == frozenset()
    assert (folder / first.id).read_bytes() == b"first"
    assert msgspec.json.decode(note_of(folder, first).read_bytes())["size"] == 5


async def test_use_is_noted_at_most_once_an_hour_and_the_note_stays_the_same(folder, puts):
    clock = Clock(time.time())
    store = opened(folder, clock)
    await store.keep([LOG], TENANT)
    note = note_of(folder, LOG)
    first = note.read_bytes()
    puts.reset_mock()
    long_ago = clock.now - 100
    os.utime(note, (long_ago, long_ago))
    clock.now += 3590
    await store.keep([LOG], TENANT)
    puts.assert_not_called()
    clock.now += 20
    for _ in range(3):
        await store.keep([LOG], TENANT)
    puts.assert_called_once()
    assert note.stat().st_mtime > long_ago + 50
    assert note.read_bytes() == first


async def test_many_artifacts_do_not_fill_the_memory(folder, monkeypatch):
    monkeypatch.setattr("proxy.shell.artifacts.store.MAX_KNOWN", 3)
    store = opened(folder)
    artifacts = [Artifact(bytes([n]) * 10) for n in range(8)]
    await store.keep(artifacts, TENANT)
    assert len(store._known) == 3
    assert await store.keep(artifacts, TENANT) == frozenset()


async def test_writers_of_the_same_content_do_not_disturb_each_other(folder):
    artifacts = [Artifact(bytes([n]) * 300_000, tool="t") for n in range(4)]
    stores = [opened(folder) for _ in range(4)]
    broken: list[int] = []
    done = threading.Event()

    def read():
        while not done.is_set():
            for artifact in artifacts:
                path = folder / artifact.id
                if path.exists() and path.read_bytes() != artifact.content:
                    broken.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        failed = await asyncio.gather(*(store.keep(artifacts, TENANT) for store in stores * 2))
    finally:
        done.set()
        reader.join()
    assert set(failed) == {frozenset()}
    assert not broken
    assert all_files(folder) == {a.id for a in artifacts} | {f".meta/{a.id}.{TENANT}.json" for a in artifacts}


async def test_the_loop_runs_on_while_content_is_written(folder, monkeypatch):
    ticked = threading.Event()
    real = PrivateFolder.put

    def put(self, key, content):
        assert ticked.wait(10), "the event loop stood still"
        real(self, key, content)

    monkeypatch.setattr(PrivateFolder, "put", put)
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(ticked.set))
    assert await opened(folder).keep([LOG], TENANT) == frozenset()


async def test_a_file_where_the_folder_should_be_is_reported_and_counted_and_does_no_harm_once_it_is_gone(folder):
    folder.parent.mkdir()
    folder.write_text("a file")
    failed: list[int] = []
    store = ArtifactStore(PrivateFolder(folder), retention_days=7, max_bytes=10**9, on_failed=failed.append)
    with capture_logs() as logs:
        assert await store.keep([LOG], TENANT) == {LOG.id}
        await store.keep([LOG, Artifact(b"other")], TENANT)
    assert failed == [1, 2]
    assert folder.read_text() == "a file"
    (line,) = logs
    assert (line["event"], line["log_level"], line["reason"]) == ("artifact_store_failed", "warning", "Not a directory")
    folder.unlink()
    assert await store.keep([LOG], TENANT) == frozenset(), "what failed is tried again"


async def test_a_folder_where_the_file_should_be_is_reported(folder):
    (folder / LOG.id / "inside").mkdir(parents=True)
    assert await opened(folder).keep([LOG], TENANT) == {LOG.id}
    assert not list((folder / ".meta").glob("*.part*"))


async def test_a_write_that_breaks_leaves_no_part_of_it_and_the_others_are_kept(folder, small_files):
    small, large = Artifact(b"small"), Artifact(bytes(LARGEST_FILE + 1))
    with capture_logs() as logs:
        assert await opened(folder).keep([large, small], TENANT) == {large.id}
    assert (folder / small.id).read_bytes() == b"small"
    assert all_files(folder) - {f".meta/{large.id}.{TENANT}.json"} == {small.id, f".meta/{small.id}.{TENANT}.json"}
    assert [line["reason"] for line in logs if line["log_level"] == "warning"] == [os.strerror(errno.EFBIG)]


async def test_a_disk_with_room_for_a_small_file_only_is_reported(folder, monkeypatch):
    put = PrivateFolder.put

    def full(self, key, content):
        if len(content) > 8_192:  # two blocks are left
            raise OSError(errno.ENOSPC, "full")
        put(self, key, content)

    store = opened(folder)
    assert await store.trouble() is None
    monkeypatch.setattr(PrivateFolder, "put", full)
    assert await store.trouble() == "the artifact store cannot be written: No space left on device"


async def test_a_bucket_is_not_sent_so_much_for_a_trial(monkeypatch):
    put: list[int] = []
    bucket = Bucket("memory://trial")
    monkeypatch.setattr(bucket, "put", lambda _, content: put.append(len(content)))
    store = ArtifactStore(bucket, retention_days=7, max_bytes=2**20)
    assert await store.trouble() is None
    assert put == [3]


async def test_the_log_gives_the_reason_once_a_minute_and_no_more(folder, monkeypatch):
    full = OSError("Unable to copy SECRET: No space left (os error 28)")
    monkeypatch.setattr(PrivateFolder, "put", Mock(side_effect=full))
    clock = Clock(time.time())
    store = opened(folder, clock)
    with capture_logs() as logs:
        for _ in range(3):
            assert await store.keep([LOG, Artifact(b"x")], TENANT) == {LOG.id, Artifact(b"x").id}
            clock.now += 25
        assert [(line["reason"], line["artifacts"]) for line in logs] == [("No space left on device", 2)]
        await store.keep([LOG], TENANT)
    assert len(logs) == 2
    assert "SECRET" not in str(logs)


async def test_a_store_that_hangs_is_given_up(folder, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(PrivateFolder, "put", lambda *_: release.wait(10))
    monkeypatch.setattr("proxy.shell.artifacts.store.KEEP_SECONDS", 0.01)
    try:
        with capture_logs() as logs:
            assert await opened(folder).keep([LOG], TENANT) == {LOG.id}
    finally:
        release.set()
    assert [line["reason"] for line in logs] == ["no answer in time"]


async def test_under_load_artifacts_wait_for_their_turn_and_all_are_kept(folder, monkeypatch):
    put = PrivateFolder.put

    def slow(*given):
        time.sleep(0.02)
        put(*given)

    monkeypatch.setattr(PrivateFolder, "put", slow)
    # two puts take a small part of that, all of them 2 s
    monkeypatch.setattr("proxy.shell.artifacts.store.KEEP_SECONDS", 1.0)
    store, artifacts = opened(folder), [Artifact(b"%d" % number) for number in range(200)]
    with capture_logs() as logs:
        kept = await asyncio.gather(*(store.keep([artifact], TENANT) for artifact in artifacts))
    assert kept == [frozenset()] * 200
    assert "artifact_store_failed" not in {line["event"] for line in logs}


@pytest.mark.parametrize(
    ("suffix", "tenant"),
    [
        *(("txt", tenant) for tenant in ("", "../../x", "a/b", "a.b", "x" * 300)),
        *((suffix, TENANT) for suffix in ("", "../x", "a/b", "x" * 300, "txt\n")),
    ],
)
async def test_a_tenant_that_is_no_name_and_a_suffix_that_leads_elsewhere_are_refused(folder, suffix, tenant):
    artifact = Artifact(b"content", suffix=suffix)
    assert await opened(folder).keep([artifact], tenant) == {artifact.id}
    assert not folder.exists()


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.text(st.characters(categories=["Cs", "Cc", "Lo"])),
    st.sampled_from(
        ["../../etc/passwd", "/abs", "a\0b", "..", ".", "~", "con", "-rf", "x" * 5000, "a#1", "\ud83d", ""]
    ),
)


@settings(max_examples=60, deadline=None)
@given(tool=HOSTILE, content=st.binary(max_size=3000), suffix=st.sampled_from(["txt", "json", "png"]))
def test_whatever_a_tool_is_called_its_content_stays_in_the_folder_and_comes_back(tool, content, suffix):
    artifact = Artifact(content, tool, suffix)
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / "a" / "b"
        store = opened(folder)
        with capture_logs() as logs:
            assert asyncio.run(store.keep([artifact], TENANT)) == frozenset()
        assert (folder / artifact.id).read_bytes() == content
        assert all_files(Path(outer)) == {f"a/b/{artifact.id}", f"a/b/.meta/{artifact.id}.{TENANT}.json"}
        msgspec.json.encode(logs)  # a log line is JSON
        note = msgspec.json.decode(note_of(folder, artifact).read_bytes())
        assert note["size"] == len(content)
        assert len(note["tool"]) <= 200
