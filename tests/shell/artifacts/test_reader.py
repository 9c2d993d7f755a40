# ruff: noqa: ASYNC240 - tests look at the disk; nothing else runs on their loop
import asyncio
import itertools
import os
import re
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import structlog
from support.waiting import PATIENCE_SECONDS, until

from proxy.core.artifact import Artifact
from proxy.core.artifact_reading import Query
from proxy.core.text import BLOCK_BYTES, LineIndex
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactQuery
from proxy.shell.artifacts import (
    COOLDOWN_SECONDS,
    ArtifactReader,
    ArtifactStore,
    Cooldown,
    PrivateFolder,
    index_key,
    metadata_key,
)

TENANT, OTHER = "5eed" * 8, "beef" * 8
DAY = 24 * 3600
SHORT = Artifact(b"one\ntwo\nthree", "sh")
LONG = Artifact(b"".join(b"line %d of a long text\n" % number for number in range(1, 60_001)), "sh")
JSON = Artifact(b'{"messages": [{"content": "first\\nsecond"}, 2.50]}', "", "json")
PICTURE = Artifact(b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "camera", "png")


@pytest.fixture
def folder(tmp_path):
    return PrivateFolder(tmp_path / "kept")


@pytest.fixture
async def reader(folder):
    await kept(folder, SHORT, LONG, JSON, PICTURE)
    return ArtifactReader(folder, retention_days=7)


async def kept(folder, *artifacts, tenant=TENANT):
    store = ArtifactStore(folder, retention_days=7, max_bytes=2**30)
    assert await store.keep(artifacts, tenant) == frozenset()
    await store.close()


async def page(reader, artifact, **parameters):
    query = Query.parse(parameters)
    assert query is not None
    text = await reader.page(await reader.find(artifact.id, TENANT), query)
    header, _, rest = text.decode().partition("\n")
    return header, rest


async def test_the_whole_comes_back_in_bounded_pieces(reader):
    stored = await reader.find(LONG.id, TENANT)
    assert (stored.size, stored.metadata.tool, stored.is_text) == (len(LONG.content), "sh", True)
    pieces = [piece async for piece in reader.pieces(stored, 0, stored.size)]
    assert b"".join(pieces) == LONG.content
    assert max(map(len, pieces)) <= 2**20 < len(LONG.content)
    assert await reader.piece(stored, 5, 5) == b""


STRANGE = ["", "x", "../../etc/passwd", SHORT.id + "x", SHORT.id.upper(), ".meta", metadata_key(SHORT.id, TENANT)]


@pytest.mark.parametrize("name", [*STRANGE, "a\0b", "é"])
@pytest.mark.parametrize("tenant", [TENANT, None])
async def test_what_is_no_artifact_is_not_found(reader, name, tenant):
    with pytest.raises(ArtifactNotFound):
        await reader.find(name, tenant)


async def test_what_another_tenant_brought_is_not_found_and_the_operator_finds_all(reader):
    with pytest.raises(ArtifactNotFound) as foreign:
        await reader.find(SHORT.id, OTHER)
    with pytest.raises(ArtifactNotFound) as unknown:
        await reader.find(SHORT.id.replace("sh", "no"), OTHER)
    assert foreign.value.message == unknown.value.message
    assert (await reader.find(SHORT.id, None)).metadata.tenant == TENANT
    assert (await reader.find(LONG.id, None)).metadata.tenant == TENANT


async def test_what_is_expired_is_not_found_before_it_is_swept(reader, folder):
    long_ago = time.time() - 8 * DAY
    os.utime(folder.place_of(metadata_key(SHORT.id, TENANT)), (long_ago, long_ago))
    for tenant in (TENANT, None):
        with pytest.raises(ArtifactNotFound):
            await reader.find(SHORT.id, tenant)


async def test_reading_is_a_use(reader, folder):
    note = Path(folder.place_of(metadata_key(SHORT.id, TENANT)))
    written, used = note.read_bytes(), time.time() - 5 * DAY
    os.utime(note, (used, used))
    await reader.find(SHORT.id, TENANT)
    assert note.stat().st_mtime > used + 4 * DAY
    assert note.read_bytes() == written
    just_now = time.time() - 600
    os.utime(note, (just_now, just_now))
    await reader.find(SHORT.id, TENANT)
    assert note.stat().st_mtime == pytest.approx(just_now, abs=1)


async def test_a_store_that_cannot_be_written_is_read(reader, monkeypatch):
    monkeypatch.setattr(PrivateFolder, "put", Mock(side_effect=OSError("full")))
    monkeypatch.setattr("proxy.shell.artifacts.reader.TOUCH_SECONDS", 0)
    assert await reader.find(SHORT.id, TENANT)


OF_ANOTHER = b'{"size":1,"feeds":%b,"closed":true}' % str([1] * len(LineIndex.of_text(LONG.content).feeds)).encode()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"size":1,"feeds":[1],"closed":true}', OF_ANOTHER, None])
async def test_an_index_that_is_missing_or_broken_is_made_again(reader, folder, damage):
    place = Path(folder.place_of(index_key(LONG.id)))
    good = place.read_bytes()
    place.unlink() if damage is None else place.write_bytes(damage)
    assert (await page(reader, LONG, lines="59999-"))[1].startswith("line 59999 of")
    assert place.read_bytes() == good


async def test_a_page_of_a_long_text_reads_a_block_and_a_page(reader, folder, monkeypatch):
    reads = Mock(wraps=folder.get_range)
    monkeypatch.setattr(folder, "get_range", reads)
    header, rest = await page(reader, LONG, lines="40000-40001")
    assert header == (
        f"Text: [context-proxy: lines 40000-40001 of 60000 of {LONG.id}, 52 of {len(LONG.content):,} bytes; "
        "go on with lines=40002-40003]"
    )
    assert rest == "line 40000 of a long text\nline 40001 of a long text\n"
    reads.assert_called_once()
    _, start, stop = reads.call_args.args
    assert stop - start < 2 * BLOCK_BYTES


async def test_pages_put_together_are_the_text(reader):
    seen, following = "", "1-"
    while following:
        header, rest = await page(reader, LONG, lines=following)
        seen += rest
        following = header.rpartition("lines=")[2].rstrip("]") if "go on" in header else ""
    assert seen.encode() == LONG.content


async def test_searches_parts_and_what_it_is(reader):
    assert (await page(reader, LONG, grep="line 5999[89]", context="0"))[1] == (
        "59998:line 59998 of a long text\n59999:line 59999 of a long text\n"
    )
    assert (await page(reader, JSON, json="/messages/0/content"))[1] == "first\nsecond"
    assert (await page(reader, JSON, json="/messages/0/content", lines="2"))[1] == "second"
    assert (await page(reader, JSON, json="/messages/0/content", grep="^s"))[1] == "1-first\n2:second\n"
    assert (await page(reader, JSON, json="/messages/1"))[1] == "2.50"
    stat = await reader.stat(await reader.find(LONG.id, TENANT))
    assert stat.pop("created")
    assert stat == {"id": LONG.id, "bytes": len(LONG.content), "lines": 60_000, "type": "text/plain", "tool": "sh"}


async def test_what_is_no_text_has_no_lines(reader):
    stored = await reader.find(PICTURE.id, TENANT)
    for parameters in ({"lines": "1-"}, {"grep": "a"}):
        with pytest.raises(BadArtifactQuery, match="image/png"):
            await reader.page(stored, Query.parse(parameters) or Query())
    assert (stored.is_text, (await reader.find(JSON.id, TENANT)).is_text) == (False, True)
    assert (await reader.stat(stored))["lines"] is None


async def test_json_that_is_too_long_for_memory_is_refused(reader, monkeypatch):
    monkeypatch.setattr("proxy.shell.artifacts.reader.JSON_BYTES", 10)
    with pytest.raises(BadArtifactQuery, match="10 bytes"):
        await page(reader, JSON, json="/messages")


async def test_content_that_is_gone_is_not_found(reader, folder):
    stored = await reader.find(SHORT.id, TENANT)
    Path(folder.place_of(SHORT.id)).unlink()
    with pytest.raises(ArtifactNotFound):
        await reader.piece(stored, 0, 3)


async def test_a_search_ends_in_time_and_says_where(reader, monkeypatch):
    clock = itertools.count(0, 2)
    monkeypatch.setattr("proxy.shell.artifacts.reader.monotonic", lambda: float(next(clock)))
    header, rest = await page(reader, LONG, grep="zzz")
    assert rest == ""
    searched, following = re.search(r"in lines 1-(\d+) of 60000 .* lines=(\d+)-60000\]", header).groups()
    assert int(following) == int(searched) + 1 < 60_000


async def test_a_store_that_hangs_is_left_alone_for_a_while(folder, monkeypatch):
    await kept(folder, SHORT)
    now = 0.0
    folder.cooldown = Cooldown(lambda: now)
    reader = ArtifactReader(folder, retention_days=7)
    release, get = threading.Event(), PrivateFolder.get
    monkeypatch.setattr(PrivateFolder, "get", lambda *_: release.wait(10))
    monkeypatch.setattr("proxy.shell.artifacts.reader._WHOLE_SECONDS", 0.01)
    with pytest.raises(ArtifactStoreUnavailable, match="no answer"):
        await reader.find(SHORT.id, TENANT)
    release.set()
    monkeypatch.undo()
    reads: list[object] = []
    monkeypatch.setattr(PrivateFolder, "get", lambda *given: reads.append(given) or get(*given))
    with pytest.raises(ArtifactStoreUnavailable, match="no answer"):
        await reader.find(SHORT.id, TENANT)
    assert reads == []
    now += COOLDOWN_SECONDS
    assert (await reader.find(SHORT.id, TENANT)).size == len(SHORT.content)


async def test_a_store_that_fails_is_unavailable_and_says_why_without_its_words(reader, monkeypatch):
    monkeypatch.setattr(PrivateFolder, "get", Mock(side_effect=PermissionError(13, "SECRET")))
    with pytest.raises(ArtifactStoreUnavailable, match=r"cannot be read: Permission denied$"):
        await reader.find(SHORT.id, TENANT)


async def test_many_readers_at_once(reader):
    stored = await reader.find(LONG.id, TENANT)
    pages = await asyncio.gather(
        *(reader.page(stored, Query.parse({"lines": f"{n}"}) or Query()) for n in range(1, 60))
    )
    assert [text.partition(b"\n")[2] for text in pages] == [b"line %d of a long text\n" % n for n in range(1, 60)]


async def test_one_tenant_never_takes_all_readers_and_its_threads_count_until_their_work_ends(
    reader, folder, monkeypatch
):
    await kept(folder, SHORT, tenant=OTHER)
    mine, other = await reader.find(LONG.id, TENANT), await reader.find(SHORT.id, OTHER)
    may_go_on, get = threading.Event(), folder.get_range
    begun: list[str] = []

    def slowly(name, start, stop):
        if name == LONG.id:
            begun.append(name)
            assert may_go_on.wait(PATIENCE_SECONDS)
        return get(name, start, stop)

    monkeypatch.setattr(folder, "get_range", slowly)
    readings = [asyncio.create_task(reader.piece(mine, 0, 3)) for _ in range(20)]
    try:
        await until(lambda: len(begun) == 2)
        for leaving in readings[:2]:
            leaving.cancel()  # its thread works on
        assert await reader.piece(other, 0, 3) == b"one"
        assert len(begun) == 2
    finally:
        may_go_on.set()
    assert await asyncio.gather(*readings[2:]) == [LONG.content[:3]] * 18


async def test_what_a_tenant_has_under_way_for_too_long_is_said(reader, folder, monkeypatch):
    stored, leave = await reader.find(JSON.id, TENANT), threading.Event()
    monkeypatch.setattr(folder, "get_range", lambda *_: leave.wait() and b"")
    readings = [asyncio.create_task(reader.piece(stored, 0, 3)) for _ in range(2)]
    await asyncio.sleep(0)
    monkeypatch.setattr("proxy.shell.artifacts.reader._WHOLE_SECONDS", 0.01)
    with structlog.testing.capture_logs() as logs, pytest.raises(ArtifactStoreUnavailable, match="2 readings"):
        await reader.piece(stored, 0, 3)
    assert [line["event"] for line in logs] == ["artifact_reading_ended"]
    leave.set()
    assert await asyncio.gather(*readings) == [b""] * 2


async def test_the_way_to_a_part_of_json_ends_with_its_time(reader, monkeypatch):
    monkeypatch.setattr("proxy.shell.artifacts.reader.SEARCH_SECONDS", 0.0)
    with structlog.testing.capture_logs() as logs, pytest.raises(BadArtifactQuery, match="longer than 0 seconds"):
        await page(reader, JSON, json="/messages/0")
    assert [(line["event"], line["artifact"]) for line in logs] == [("artifact_reading_ended", JSON.id)]


async def test_a_search_that_nobody_waits_for_ends(reader, monkeypatch):
    begun, left, reads, get = threading.Event(), threading.Event(), [], PrivateFolder.get_range

    def slowly(*given):
        reads.append(given)
        begun.set()
        left.wait(PATIENCE_SECONDS)
        return get(*given)

    stored = await reader.find(LONG.id, TENANT)
    monkeypatch.setattr(PrivateFolder, "get_range", slowly)
    searching = asyncio.create_task(reader.page(stored, Query.parse({"grep": "nowhere"})))
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    searching.cancel()
    await asyncio.gather(searching, return_exceptions=True)
    left.set()
    await until(lambda: "artifact-reading" not in {one.name for one in threading.enumerate()})
    assert len(reads) == 1
