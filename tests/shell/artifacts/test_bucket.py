"""The store in a bucket, held against one in memory and against servers of S3, Google's API and Azure's on a socket."""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable
from unittest.mock import Mock

import obstore
import pytest
from obstore.exceptions import GenericError
from structlog.testing import capture_logs
from support.buckets import SERVERS

from proxy.core.artifact import Artifact
from proxy.core.artifact_reading import Query
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable
from proxy.shell.artifacts import (
    COOLDOWN_SECONDS,
    TROUBLE,
    ArtifactReader,
    ArtifactStore,
    Cooldown,
    NoAnswer,
    Tenants,
    index_key,
    look_after,
    metadata_key,
    reason_of,
    sweep,
)
from proxy.shell.artifacts.bucket import Bucket

TENANT, OTHER = "5eed" * 8, "beef" * 8
DAY = 24 * 3600
SHORT = Artifact(b"one\ntwo\n", "sh")
LONG = Artifact(b"".join(b"line %d of a long text\n" % number for number in range(1, 60_001)), "sh")


@pytest.fixture(scope="module")
def endpoint_of():
    """The address of a server, which is started at its first use."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(SERVERS[kind][0]()))


@pytest.fixture(params=["memory", *SERVERS])
def open_bucket(request, endpoint_of, monkeypatch, tmp_path):
    """Opens the same empty bucket again and again, as replicas do."""
    if request.param == "memory":
        only = Bucket("memory://")
        return lambda: only
    url = SERVERS[request.param][1](endpoint_of(request.param), tmp_path.name, monkeypatch)
    return lambda: Bucket(f"{url}/some/prefix/")


def store_in(bucket, **changed):
    return ArtifactStore(bucket, **{"retention_days": 7, "max_bytes": 2**30, **changed})


def keys(bucket):
    return {one.key for one in bucket.listed()}


async def test_what_one_replica_keeps_another_reads(open_bucket):
    assert await store_in(open_bucket()).keep([SHORT, LONG], TENANT) == frozenset()
    notes = {metadata_key(one.id, TENANT) for one in (SHORT, LONG)}
    assert keys(open_bucket()) == {SHORT.id, LONG.id, index_key(LONG.id), *notes}
    reader = ArtifactReader(open_bucket(), retention_days=7)
    stored = await reader.find(LONG.id, TENANT)
    assert b"".join([piece async for piece in reader.pieces(stored, 0, stored.size)]) == LONG.content
    page = await reader.page(stored, Query.parse({"lines": "50000"}) or Query())
    assert page.endswith(b"\nline 50000 of a long text\n")
    assert (await reader.find(SHORT.id, None)).metadata.tenant == TENANT
    with pytest.raises(ArtifactNotFound):
        await reader.find(SHORT.id, OTHER)


@pytest.mark.parametrize(
    ("later_seconds", "is_written"),
    [
        pytest.param(0, False, id="what is there is not written again"),
        pytest.param(2 * 3600, True, id="a use writes the note again as buckets have no other clock"),
    ],
)
async def test_what_is_kept_once_more(open_bucket, monkeypatch, later_seconds, is_written):
    await store_in(open_bucket()).keep([SHORT], TENANT)
    written: list[str] = []
    monkeypatch.setattr(Bucket, "put", lambda _, key, content: written.append(key))
    later = time.time() + later_seconds
    assert await store_in(open_bucket(), clock=lambda: later).keep([SHORT], TENANT) == frozenset()
    assert written == [metadata_key(SHORT.id, TENANT)] * is_written


def test_what_is_old_or_too_much_is_swept_and_strangers_stay(open_bucket):
    bucket = open_bucket()
    asyncio.run(store_in(bucket).keep([SHORT, LONG], TENANT))
    for stranger in ("notes.txt", "sub/tool_sh_0123456789abcdef.txt", ".meta/owner-secret"):
        bucket.put(stranger, b"mine")
    soon, late = time.time() + 3 * 3600, time.time() + 8 * DAY
    limits = {"retention_seconds": 7 * DAY, "max_bytes": 2**30}
    assert sweep(bucket, bucket.listed(), soon, **limits).removed == 0
    assert sweep(bucket, bucket.listed(), soon, **{**limits, "max_bytes": 20_000}).removed >= 1
    asyncio.run(store_in(bucket).keep([SHORT, LONG], TENANT))
    assert sweep(bucket, bucket.listed(), late, **limits).removed == 2
    assert keys(bucket) == {"notes.txt", "sub/tool_sh_0123456789abcdef.txt", ".meta/owner-secret"}


def test_listing_begins_at_the_requested_key(open_bucket):
    bucket = open_bucket()
    for key in (".meta/a.1", ".meta/ab.1", ".meta/ab.2", ".meta/b.1", "ab"):
        bucket.put(key, b"1234")
    assert sorted(one.key for one in bucket.listed(".meta/ab.")) == [".meta/ab.1", ".meta/ab.2"]
    assert [one.key for one in bucket.listed(".meta/c")] == []
    (found,) = bucket.listed(".meta/b")
    assert (found.size, found.used == pytest.approx(time.time(), abs=60)) == (4, True)


NOT_THERE = GenericError("HTTP error: error sending request: HttpError {\n    kind: Connect, (os error 111)")
SILENT = GenericError("HTTP error: error sending request: HttpError {\n    kind: Timeout, SECRET")
DENIED = GenericError("status code: 403 Forbidden: SECRET")


def broken(monkeypatch, error, *calls):
    """Have these calls fail, or all."""
    failing = Mock(side_effect=error)
    for call in calls or ("put", "get", "get_range", "head", "delete", "list"):
        monkeypatch.setattr(obstore, call, failing)
    return failing


@pytest.mark.parametrize(
    ("error", "reason"), [(SILENT, "no answer in time"), (NOT_THERE, "no connection: Connection refused")]
)
def test_after_a_call_without_a_response_all_next_calls_fail_at_once(monkeypatch, error, reason):
    bucket, now = Bucket("memory://"), 0.0
    bucket.cooldown = Cooldown(lambda: now)
    failing = broken(monkeypatch, error)
    for call in (lambda: bucket.stat("a"), lambda: bucket.put("a", b""), lambda: list(bucket.listed())):
        with pytest.raises(NoAnswer) as raised:
            call()
        assert reason_of(raised.value) == reason
    assert failing.call_count == 1
    now += COOLDOWN_SECONDS
    with pytest.raises(NoAnswer):
        bucket.get("a")
    assert failing.call_count == 2


@pytest.mark.parametrize(
    ("error", "size", "is_left_alone"),
    [
        pytest.param(SILENT, 10, True, id="a bucket that gives no answer"),
        pytest.param(SILENT, 2**20, True, id="nor to an upload of a moment"),
        pytest.param(SILENT, 2**20 + 1, False, id="an upload may take its time"),
        pytest.param(DENIED, 10, False, id="a bucket that refuses has answered"),
    ],
)
def test_a_bucket_is_left_alone_that_has_not_answered(monkeypatch, error, size, is_left_alone):
    bucket = Bucket("memory://")
    broken(monkeypatch, error)
    with pytest.raises(TROUBLE):
        bucket.put("a", bytes(size))
    assert (bucket.cooldown.why is not None) is is_left_alone


def test_a_bucket_that_responds_again_is_used_at_once_and_one_that_does_not_is_left_alone_on(monkeypatch):
    bucket, now = Bucket("memory://"), [1_000.0]
    bucket.cooldown = Cooldown(lambda: now[0])
    with monkeypatch.context() as patched:
        failing = broken(patched, SILENT)
        with pytest.raises(NoAnswer):
            bucket.stat("a")
        for _ in range(2):
            now[0] += COOLDOWN_SECONDS - 1
            bucket.probe()
    assert (failing.call_count, bucket.cooldown.why) == (3, "no answer in time")
    bucket.probe()
    assert bucket.cooldown.why is None


@pytest.mark.parametrize(("error", "is_used"), [(SILENT, False), (NOT_THERE, False), (DENIED, True)])
def test_a_bucket_that_gives_no_answer_to_writes_is_left_alone_and_one_that_refuses_them_is_read(
    monkeypatch, error, is_used
):
    bucket = Bucket("memory://")
    bucket.cooldown.begin()
    broken(monkeypatch, error, "put")
    bucket.probe()
    assert (bucket.cooldown.why is None) is is_used


def test_a_bucket_is_probed_during_its_cooldown_only(tmp_path, monkeypatch):
    bucket = Bucket("memory://")
    bucket.cooldown.begin()
    tenants = Tenants.of_folder(tmp_path)
    look_after(tmp_path, tenants, bucket)
    assert bucket.cooldown.why is None
    asked = broken(monkeypatch, SILENT, "put")
    look_after(tmp_path, tenants, bucket)
    assert not asked.called, "a bucket that is well"


async def test_an_emptied_bucket_is_noticed_at_the_next_use_and_filled_again(open_bucket):
    bucket = open_bucket()
    store, elsewhere = store_in(bucket), Artifact(b"of another conversation\n", "sh")
    assert await store.keep([SHORT, LONG, elsewhere], TENANT) == frozenset()
    before = keys(bucket)
    assert await store.keep([SHORT, LONG], TENANT) == frozenset()
    await store._looking
    for key in before:
        bucket.remove(key)
    with capture_logs() as logs:
        assert await store.keep([SHORT, LONG], TENANT) == frozenset()
        await store._looking
        assert await store.keep([elsewhere], TENANT) == frozenset()
    assert keys(bucket) == before
    assert logs[0]["event"] == "artifacts_gone"
    await store.close()


async def test_a_look_at_a_bucket_that_fails_changes_nothing(monkeypatch):
    store = store_in(Bucket("memory://"))
    assert await store.keep([SHORT], TENANT) == frozenset()
    broken(monkeypatch, SILENT)
    assert await store.keep([SHORT], TENANT) == frozenset()
    await store._looking
    assert await store.keep([SHORT], TENANT) == frozenset()
    await store.close()


async def test_what_is_kept_within_the_limit_stays_known_and_the_rest_is_tried_again(monkeypatch):
    bucket, release, put = Bucket("memory://"), threading.Event(), Bucket.put
    store = store_in(bucket)

    def late(self, key, content):
        if key == LONG.id:
            release.wait(10)
        put(self, key, content)

    monkeypatch.setattr(Bucket, "put", late)
    monkeypatch.setattr("proxy.shell.artifacts.store.KEEP_SECONDS", 1.0)
    assert await store.keep([SHORT, LONG], TENANT) == {LONG.id}
    assert bucket.cooldown.why is None, "it has answered"
    release.set()
    monkeypatch.undo()
    assert await store.keep([SHORT, LONG], TENANT) == frozenset()
    await store.close()


CALLS: dict[str, Callable[[Bucket], object]] = {
    "put": lambda bucket: bucket.put("a", b"1"),
    "get": lambda bucket: bucket.get("a"),
    "get_range": lambda bucket: bucket.get_range("a", 0, 1),
    "head": lambda bucket: bucket.stat("a"),
    "delete": lambda bucket: bucket.remove("a"),
    "list": lambda bucket: list(bucket.listed()),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_the_library_raises_is_trouble_of_the_store(call, monkeypatch):
    broken(monkeypatch, GenericError("status code: 503 Service Unavailable: SECRET"), call)
    with pytest.raises(TROUBLE) as raised:
        CALLS[call](Bucket("memory://"))
    assert reason_of(raised.value) == "GenericError (503 Service Unavailable)"


def test_an_object_that_is_missing_is_a_file_not_found(open_bucket):
    bucket = open_bucket()
    for read in (bucket.get, bucket.stat):
        with pytest.raises(FileNotFoundError):
            read("a")


@pytest.fixture
def keys_of_s3(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")


async def test_a_bucket_that_is_not_there_fails_in_words_that_say_so(endpoint_of, keys_of_s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint_of("s3"))
    with capture_logs() as logs:
        assert await store_in(Bucket("s3://nobody-made-this")).keep([SHORT], TENANT) == {SHORT.id}
    assert logs[0]["reason"].endswith("(404 Not Found)")
    assert "canary" not in str(logs)


async def test_an_endpoint_without_a_server_is_a_failure_not_a_crash(keys_of_s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    bucket = Bucket("s3://kept")
    assert await store_in(bucket).keep([SHORT], TENANT) == {SHORT.id}
    reader = ArtifactReader(bucket, retention_days=7)
    with pytest.raises(ArtifactStoreUnavailable):
        await reader.find(SHORT.id, TENANT)


async def test_a_store_that_hung_is_left_alone_for_a_while(monkeypatch):
    release, tries = threading.Event(), []

    def hang(*_, **__):
        tries.append(1)
        release.wait(10)

    bucket, now = Bucket("memory://"), [0.0]
    bucket.cooldown = Cooldown(lambda: now[0])
    store = store_in(bucket)
    monkeypatch.setattr("proxy.shell.artifacts.store.KEEP_SECONDS", 0.01)
    monkeypatch.setattr(obstore, "head", hang)
    try:
        for number in range(5):
            assert await store.keep([Artifact(b"%d" % number)], TENANT)
        assert len(tries) == 1
        now[0] += COOLDOWN_SECONDS + 1
        assert await store.keep([SHORT], TENANT)
        assert len(tries) == 2
    finally:
        release.set()
    monkeypatch.undo()
    now[0] += COOLDOWN_SECONDS + 1
    assert await store.keep([SHORT], TENANT) == frozenset()
    await store.close()


def test_a_server_that_ignores_the_start_of_a_listing_is_understood(monkeypatch):
    bucket, listed = Bucket("memory://"), obstore.list
    for key in (".meta/a.1", ".meta/ab.1", ".meta/b.1"):
        bucket.put(key, b"1234")
    monkeypatch.setattr(obstore, "list", lambda *given, offset, **named: listed(*given, **named))
    assert [one.key for one in bucket.listed(".meta/ab.")] == [".meta/ab.1"]
