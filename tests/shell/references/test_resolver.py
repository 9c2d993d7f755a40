import asyncio
import os
import threading
import time
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs
from support.picture_server import png

from proxy.core.artifact import Artifact
from proxy.core.conversation import Fetched, FetchError, Origin, Reference, Unfetched
from proxy.errors import ArtifactStoreUnavailable
from proxy.shell.artifacts import COOLDOWN_SECONDS, ArtifactReader, ArtifactStore, PrivateFolder, finding_key, sweep
from proxy.shell.artifacts.bucket import Bucket
from proxy.shell.references import FAILURE_SECONDS, NOTE_SECONDS, FetchCache, Finding, Resolver
from proxy.wire.chat_completions import CHAT_COMPLETIONS

TENANT, OTHER = "5eed" * 8, "beef" * 8
PNG = png()
MAX_BYTES = 10_000
TEXT = Artifact(b"text", "bash")
HELD = Reference(f"artifact:{TEXT.id}", Origin.ARTIFACT)


def remote(name):
    return Reference(f"https://example.org/{name}?key=secret", Origin.REMOTE)


class Web:
    """Downloads that are counted; what it does not know is not there."""

    GONE = Unfetched(FetchError.NOT_FOUND, 404, "https://example.org/gone")

    def __init__(self, **found):
        self.found = found
        self.downloads: list[str] = []
        self.is_open = True
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def fetch(self, address):
        name = address.partition("?")[0].rpartition("/")[2]
        self.downloads.append(name)
        self.begun.set()
        await self.go_on.wait()
        found = self.found.get(name, self.GONE)
        if isinstance(found, Exception):
            raise found
        return found

    async def aclose(self):
        self.is_open = False


def fetched(shade=7):
    return Fetched(png(shade=shade), "image/png", "a.png")


class House:
    """A folder, and what works on it; a second one on the same folder is another worker."""

    def __init__(self, folder, web, **limits):
        place = PrivateFolder(folder)
        self.store = ArtifactStore(place, retention_days=7, max_bytes=2**30)
        self.reader = ArtifactReader(place, retention_days=7)
        stated = {"timeout_seconds": 20.0, "max_bytes": MAX_BYTES, **limits}
        self.resolver = Resolver(self.reader, self.store, FetchCache(place), web, **stated)

    async def of(self, *references, tenant=TENANT):
        found = await self.resolver.resolve(references, tenant)
        return [found.get(reference.address) for reference in references]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tool-output"


def test_the_bytes_of_most_requests_show_that_they_name_nothing(folder):
    def may_refer(house, new):
        return house.resolver.may_refer(new, 0, CHAT_COMPLETIONS.may_name_images)

    looking = House(folder, Web())
    assert not may_refer(looking, b'{"messages":[{"role":"user","content":"see http://example.org"}]}')
    assert not may_refer(looking, b'"image_url":{"url":"data:image/png;base64,"}')
    assert may_refer(looking, b'"image_url":{"url":"https://example.org"}')
    assert may_refer(looking, rb'"content":"{\"routing\":\"image_url\",\"imageUrl\":\"https://example.org\"}"')
    assert may_refer(looking, b'"artifact:x"')
    passing = House(folder, None)
    assert not may_refer(passing, b'"image_url":{"url":"https://example.org"}')
    assert may_refer(passing, b'"artifact:x"')


@pytest.mark.parametrize("found", [fetched(), Web.GONE], ids=["an image", "a failure"])
async def test_what_was_found_once_is_the_same_for_ever(folder, found):
    web = Web(a=found)
    here = House(folder, web)
    assert await here.of(remote("a")) == [found]
    web.found["a"] = fetched(shade=8)
    assert await here.of(remote("a")) == [found]
    assert await House(folder, web).of(remote("a")) == [found], "after a restart, and on another worker"
    assert web.downloads == ["a"]


async def test_an_image_is_kept_as_an_artifact_of_its_tenant(folder):
    web = Web(a=fetched())
    here = House(folder, web)
    await here.of(remote("a"))
    name = Artifact(PNG, "fetched", "png").id
    assert (folder / name).read_bytes() == PNG
    assert (await here.reader.find(name, TENANT)).size == len(PNG)
    assert await here.of(remote("a"), tenant=OTHER) == [fetched()]
    assert web.downloads == ["a", "a"], "what one owner has seen is no other's"


async def test_an_image_whose_time_is_over_is_downloaded_again(folder):
    web = Web(a=fetched())
    await House(folder, web).of(remote("a"))
    (folder / Artifact(PNG, "fetched", "png").id).unlink()
    assert await House(folder, web).of(remote("a")) == [fetched()]
    assert web.downloads == ["a", "a"]


async def test_what_cannot_be_kept_stays_as_it_came(folder):
    folder.write_text("a file in the folder's place")
    with capture_logs() as lines:
        assert await House(folder, Web(a=fetched())).of(remote("a")) == [None]
    assert [line["event"] for line in lines] == ["artifact_store_failed"]


async def test_with_downloads_off_only_artifacts_are_looked_up(folder):
    here = House(folder, None)
    await here.store.keep([TEXT], TENANT)
    with capture_logs() as lines:
        assert await here.of(remote("a"), HELD) == [None, Fetched(b"text", "text/plain", TEXT.id)]
    assert lines == []


async def test_an_artifact_of_another_tenant_or_none_at_all_stays_as_it_is(folder):
    here = House(folder, None)
    await here.store.keep([TEXT], TENANT)
    gone = Reference("artifact:tool_bash_0123456789abcdef.txt", Origin.ARTIFACT)
    assert await here.of(HELD, gone, tenant=OTHER) == [None, None]
    assert await here.of(gone) == [None]


async def test_an_artifact_that_was_missing_once_stays_missing_for_those_who_named_it(folder):
    here = House(folder, None)
    await here.store.keep([Artifact(b"another", "bash")], TENANT)
    assert await here.of(HELD) == [None]
    await here.store.keep([TEXT], TENANT)
    await here.store.keep([TEXT], OTHER)
    assert await here.of(HELD) == [None]
    assert await House(folder, None).of(HELD) == [None], "after a restart, and on another worker"
    assert await here.of(HELD, tenant=OTHER) != [None]


async def test_an_artifact_that_is_too_large_stays_as_it_is(folder):
    here = House(folder, None, max_bytes=3)
    await here.store.keep([TEXT], TENANT)
    assert await here.of(HELD) == [None]


async def test_two_requests_for_the_same_image_share_one_download(folder):
    web = Web(a=fetched())
    web.go_on.clear()
    here = House(folder, web)
    waiting = [asyncio.create_task(here.of(remote("a"))) for _ in range(3)]
    await web.begun.wait()
    waiting[0].cancel()
    web.go_on.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [[fetched()], [fetched()]]
    assert web.downloads == ["a"]


async def test_a_request_does_not_wait_for_ever_and_its_next_turn_finds_what_came_late(folder):
    web = Web(a=fetched())
    web.go_on.clear()
    here = House(folder, web, timeout_seconds=0.05)
    assert await here.of(remote("a")) == [None]
    late = next(iter(here.resolver._underway.values()))
    web.go_on.set()
    await late
    assert await here.of(remote("a")) == [fetched()]
    assert web.downloads == ["a"]


async def test_a_defect_costs_no_request(folder):
    with capture_logs() as lines:
        here = House(folder, Web(a=RuntimeError("a defect"), b=fetched()))
        assert await here.of(remote("a"), remote("b")) == [None, fetched()]
    assert "reference_failed" in [line["event"] for line in lines]


async def test_a_silent_store_is_queried_by_one_request_and_not_by_every_one(folder, monkeypatch):
    now = 0.0
    web = Web(a=fetched())
    here = House(folder, web, clock=lambda: now)
    await here.store.keep([TEXT], TENANT)
    no_answer = AsyncMock(side_effect=ArtifactStoreUnavailable("the store of the artifacts gives no answer"))
    with monkeypatch.context() as patched:
        patched.setattr(here.reader, "find", no_answer)
        assert await here.of(HELD) == [None]
        assert await here.of(HELD, remote("a")) == [None, None]
    no_answer.assert_awaited_once_with(TEXT.id, TENANT, is_use=True)
    assert web.downloads == []
    now += COOLDOWN_SECONDS
    assert await here.of(HELD, remote("a")) == [Fetched(b"text", "text/plain", TEXT.id), fetched()]


async def test_an_image_whose_store_gives_no_answer_is_not_downloaded_anew(folder, monkeypatch):
    web = Web(a=fetched())
    here = House(folder, web)
    await here.of(remote("a"))
    monkeypatch.setattr("proxy.shell.references.resolver.READ_SECONDS", 0.02)

    async def hangs(name, tenant):
        await asyncio.Event().wait()

    monkeypatch.setattr(here.reader, "find", hangs)
    assert await here.of(remote("a")) == [None]
    assert web.downloads == ["a"]


async def test_contents_of_one_request_are_bounded_the_first_ones_first(folder):
    large = [Fetched(png(shade=shade).ljust(MAX_BYTES, b"\0"), "image/png", "a") for shade in range(6)]
    web = Web(**{f"n{number}": found for number, found in enumerate(large)})
    references = [remote(f"n{number}") for number in range(6)]
    assert await House(folder, web).of(*references) == [*large[:4], None, None]


async def test_the_number_of_references_of_one_request_is_bounded(folder, monkeypatch):
    monkeypatch.setattr("proxy.shell.references.resolver.MAX_REFERENCES", 2)
    web = Web(a=fetched(), b=fetched(), c=fetched())
    assert await House(folder, web).of(remote("a"), remote("b"), remote("c")) == [fetched(), fetched(), None]


async def test_the_log_has_the_host_and_never_the_path(folder):
    with capture_logs() as lines:
        here = House(folder, Web(a=fetched()))
        for _ in range(2):
            await here.of(remote("a"), remote("b"))
    told = (line for line in lines if line["event"].startswith("image_"))
    kept, gone = sorted(told, key=lambda line: line["event"])
    assert (kept["event"], kept["host"], kept["bytes"]) == ("image_fetched", "example.org", len(PNG))
    assert kept["artifact"] == Artifact(PNG, "fetched", "png").id
    assert (gone["event"], gone["host"], gone["reason"]) == ("image_not_fetched", "example.org", "not_found")
    assert "secret" not in str(lines)


async def test_nothing_to_look_up_is_nothing(folder):
    here = House(folder, None)
    assert await here.resolver.resolve([remote("a")], TENANT) == {}
    await here.resolver.aclose()


async def test_closing_ends_what_is_under_way(folder):
    web = Web(a=fetched())
    web.go_on.clear()
    here = House(folder, web)
    waiting = asyncio.create_task(here.of(remote("a")))
    await web.begun.wait()
    await here.resolver.aclose()
    assert await waiting == [None]
    assert not web.is_open


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://me:key@Pictures.example:8443/a/secret?b=secret#secret", "pictures.example"),
        ("https://[2606:4700::1]/a", "2606:4700::1"),
        *((odd, "") for odd in ("http://[", "http://a b/", "http://127.1/", "http://[secret", "secret")),
    ],
)
async def test_of_an_address_only_the_host_is_logged(folder, address, host):
    with capture_logs() as lines:
        await House(folder, Web()).of(Reference(address, Origin.REMOTE))
    assert [line["host"] for line in lines if "host" in line] == [host]
    assert "secret" not in str(lines)


URL = "https://example.org/a.png?signature=secret"
KEPT = Finding("tool_fetched_0123456789abcdef.png", "image/png", "a.png")
FAILED = Finding(failure=Unfetched(FetchError.TOO_LARGE, 200, "https://example.org/a.png", "image/png", 20_971_520.0))


def opened(folder):
    return FetchCache(PrivateFolder(folder))


def note_in(folder):
    (note,) = (folder / ".meta").glob("url_*")
    return note


def let_rest(folder, seconds):
    """Have its note unused for so long."""
    used = time.time() - seconds
    os.utime(note_in(folder), (used, used))


@pytest.mark.parametrize("finding", [KEPT, FAILED])
async def test_a_finding_is_known_to_all_workers_for_its_address_and_its_tenant_alone(folder, finding):
    here = opened(folder)
    assert await here.recall(URL, TENANT) is None
    await here.note(URL, finding, TENANT)
    for seen in (here, opened(folder)):
        assert await seen.recall(URL, TENANT) == finding
        assert await seen.recall(URL, OTHER) is None
        assert await seen.recall(URL + "2", TENANT) is None


async def test_the_address_itself_is_not_kept_and_only_we_can_read_the_rest(folder):
    await opened(folder).note(URL, KEPT, TENANT)
    assert b"secret" not in note_in(folder).read_bytes()
    assert note_in(folder).stat().st_mode & 0o077 == 0


async def test_a_failure_is_remembered_for_an_hour_after_its_last_use_and_content_as_long_as_its_note(folder):
    here = opened(folder)
    for finding in (FAILED, KEPT):
        await here.note(URL, finding, TENANT)
        for _ in range(3):
            let_rest(folder, FAILURE_SECONDS - 10)
            assert await here.recall(URL, TENANT) == finding
        let_rest(folder, 100 * FAILURE_SECONDS)
        assert await here.recall(URL, TENANT) == (None if finding is FAILED else KEPT)


async def test_a_use_is_noted_now_and_then(folder):
    here = opened(folder)
    await here.note(URL, FAILED, TENANT)
    for unused_seconds, is_noted in ((NOTE_SECONDS - 10, False), (NOTE_SECONDS + 10, True)):
        let_rest(folder, unused_seconds)
        await here.recall(URL, TENANT)
        assert (time.time() - note_in(folder).stat().st_mtime < 60) == is_noted


@pytest.mark.parametrize("written", [b"", b"{", b'{"artifact": 7}'])
async def test_a_broken_note_says_nothing(folder, written):
    await opened(folder).note(URL, KEPT, TENANT)
    note_in(folder).write_bytes(written)
    assert await opened(folder).recall(URL, TENANT) is None


async def test_where_nothing_can_be_written_nothing_is_remembered(folder):
    folder.write_text("a file in the folder's place")
    await opened(folder).note(URL, FAILED, TENANT)
    assert await opened(folder).recall(URL, TENANT) is None


async def test_what_became_of_an_address_is_known_to_all_who_share_a_bucket():
    bucket = Bucket("memory:///")
    assert await FetchCache(bucket).recall(URL, TENANT) is None
    await FetchCache(bucket).note(URL, FAILED, TENANT)
    assert await FetchCache(bucket).recall(URL, TENANT) == FAILED


async def test_a_store_that_hangs_is_no_store_that_knows_nothing(folder, monkeypatch):
    monkeypatch.setattr("proxy.shell.references.resolver.WAIT_SECONDS", 0.02)
    go_on = threading.Event()
    place = PrivateFolder(folder)
    monkeypatch.setattr(place, "get", lambda _: go_on.wait())
    with pytest.raises(ArtifactStoreUnavailable):
        await FetchCache(place).recall(URL, TENANT)
    go_on.set()


async def test_nothing_is_made_on_disk_by_looking(folder):
    await opened(folder).recall(URL, TENANT)
    assert not folder.exists()


async def test_unused_findings_are_swept(folder):
    place = PrivateFolder(folder)
    await FetchCache(place).note(URL, FAILED, TENANT)
    for days, is_there in ((6, True), (8, False)):
        now = time.time() + days * 24 * 3600
        sweep(place, place.listed(), now, retention_seconds=7 * 24 * 3600, max_bytes=2**30)
        assert any((folder / ".meta").glob("url_*")) == is_there


@pytest.mark.parametrize(
    ("digest", "tenant"), [("", TENANT), (URL, TENANT), ("../../x" * 5, TENANT), ("A" * 32, TENANT), ("0" * 64, "../x")]
)
def test_only_a_hash_and_a_tenant_make_a_key(digest, tenant):
    with pytest.raises(ValueError, match="hash"):
        finding_key(digest, tenant)
