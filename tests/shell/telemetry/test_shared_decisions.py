"""Decisions of all replicas, through a server of Redis or Valkey, in the file of each; and what is there without it."""

import asyncio
import contextlib
from typing import cast

import pytest
import redis
from pydantic import SecretStr
from structlog.testing import capture_logs
from support.state_server import StateServer, needs_state_server
from support.waiting import PATIENCE_SECONDS

from proxy.core.conversation import MessageReport
from proxy.shell.resources.state_contact import StateContact, key_of
from proxy.shell.telemetry import Finished, History, Ledger, Line, Unsent, Wanted, shared_decisions
from proxy.shell.telemetry.shared_decisions import SharedDecisions

pytestmark = needs_state_server

FLEET = "5eed"
KEY = key_of(FLEET, "decisions")
LINE = {
    "outcome": "answered",
    "status": 200,
    "tokens_before": 510,
    "body_bytes": 9,
    "sent_bytes": 9,
    "answer_bytes": 9,
    "total_ms": 1.5,
}
BLOCKS = (MessageReport("user", "", 10, 10), MessageReport("tool", "bash", 500, 90, ("truncate_tool_output",), ("a",)))


@pytest.fixture
def server(tmp_path):
    found = StateServer(tmp_path)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.shared_decisions.EXCHANGE_SECONDS", 0.05)


class Clock:
    now = 1_700_000_000.0

    def __call__(self):
        self.now += 0.001
        return self.now


class Replica:
    """A process with a data folder of its own, or of several."""

    clock = Clock()

    def __init__(self, folder, server, fleet=FLEET):
        self.history = History(folder / "decisions.db", 1_000)
        self.history.unsent = self.unsent = Unsent()
        self.contact = StateContact(SecretStr(server.url), lambda: fleet)
        self.shared = SharedDecisions(self.contact, self.history, self.unsent)

    def serve(self, *names, **members):
        for name in names:
            line = {**LINE, "request_id": name, **members}
            one = Finished(self.clock(), cast(Line, line), BLOCKS, None, 100)
            self.history.add(one)

    async def ids(self):
        return [one["request_id"] for one in await self.history.ask(Ledger.page, Wanted(limit=500))]

    async def comes_to(self, *names):
        """Wait until it shows these, the newest first."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.ids() != list(names):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(*replicas):
    async with contextlib.AsyncExitStack() as stack:
        for replica in replicas:
            stack.push_async_callback(replica.history.close)
            stack.push_async_callback(replica.contact.close)
            stack.push_async_callback(replica.shared.close)
            await replica.shared.start()
        yield


async def exchange(*replicas):
    for replica in replicas:
        await replica.history.write()
        await replica.shared.exchange()


async def test_what_one_replica_serves_is_shown_by_the_other_with_its_messages_and_sums(tmp_path, server):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(one, two):
        one.serve("a", edits={"truncate_tool_output": 1}, conversation="c")
        two.serve("b", conversation="c")
        one.serve("c")
        await exchange(one, two, one)
        assert await one.history.ask(Ledger.page, Wanted()) == await two.history.ask(Ledger.page, Wanted())
        assert await two.ids() == ["c", "b", "a"]
        found = await two.history.find("a")
        assert [block["tokens_after"] for block in found["blocks"]] == [10, 90]
        assert await one.history.ask(Ledger.slots, 0.0) == await two.history.ask(Ledger.slots, 0.0)
        assert (await two.history.ask(Ledger.slots, 0.0))[0]["requests"] == 3
        (conversation,) = await two.history.ask(Ledger.conversations, 5)
        assert conversation["requests"] == 2


async def test_decisions_are_shared_periodically_and_once_more_at_shutdown(tmp_path, server, quick):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(two):
        async with running(one):
            one.serve("a")
        await two.comes_to("a")


async def test_one_that_comes_back_reads_on_and_one_with_a_new_file_reads_all(tmp_path, server):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(two):
        async with running(one):
            one.serve("a")
            await exchange(one, two)
            assert await two.ids() == ["a"]
        two.serve("b")
        await exchange(two)
        back, new = Replica(tmp_path / "one", server), Replica(tmp_path / "new", server)
        async with running(back, new):
            await exchange(back, new, new)
            assert await back.ids() == await new.ids() == ["b", "a"]
            assert (await back.history.ask(Ledger.slots, 0.0))[0]["requests"] == 2
    (tmp_path / "one" / "decisions.db").unlink()
    emptied = Replica(tmp_path / "one", server)
    async with running(emptied):
        await exchange(emptied)
        assert await emptied.ids() == ["b", "a"]


async def test_workers_of_one_file_import_an_entry_once(tmp_path, server):
    one, two, other = (Replica(tmp_path / name, server) for name in ("same", "same", "other"))
    async with running(one, two, other):
        one.serve("a")
        other.serve("b", "c")
        await exchange(one, other, one, two, one, other)
        assert await one.ids() == await two.ids() == await other.ids() == ["c", "b", "a"]
        assert (await two.history.ask(Ledger.slots, 0.0))[0]["requests"] == 3


async def test_replicas_with_different_secrets_show_each_other_nothing(tmp_path, server):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server, "beef")
    async with running(one, two):
        one.serve("a")
        await exchange(one, two)
        assert await two.ids() == []


async def test_without_the_server_each_replica_shows_its_own_rows_and_publishes_them_once_it_is_back(tmp_path, server):
    """The server keeps nothing over its restart."""
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(one, two):
        one.serve("a")
        await exchange(one, two)
        server.stop()
        with capture_logs() as log:
            one.serve("b")
            await exchange(one, one, two)
            two.serve("c")
            await exchange(two)
            assert (await one.ids(), await two.ids()) == (["b", "a"], ["c", "a"])
            assert one.shared.problem
            server.start()
            await exchange(one, two, one)
        assert await one.ids() == await two.ids() == ["c", "b", "a"]
        assert sorted(line["event"] for line in log) == ["state_found"] * 2 + ["state_lost"] * 2
        assert (await two.history.ask(Ledger.slots, 0.0))[0]["requests"] == 3


async def test_a_server_that_answers_nothing_holds_up_no_request(tmp_path, server):
    one = Replica(tmp_path / "one", server)
    async with running(one):
        server.pause()
        one.serve("a")
        await one.history.write()
        await one.shared.exchange()
        assert one.shared.problem
        assert await one.ids() == ["a"]
        server.resume()
        await one.shared.exchange()
        assert one.shared.problem is None


async def test_a_batch_of_unknown_fate_is_stored_once(tmp_path, server):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(one, two):
        one.serve("a")
        await one.history.write()
        one.unsent.put(one.unsent.take(9) * 2)
        await exchange(one, two)
        assert await two.ids() == ["a"]
        assert (await two.history.ask(Ledger.slots, 0.0))[0]["requests"] == 1


async def test_the_stream_is_bounded_in_number_and_in_age(tmp_path, server, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.shared_decisions.MAX_ENTRIES", 20)
    one = Replica(tmp_path / "one", server)
    async with running(one):
        for _ in range(30):
            one.serve(*(f"{number:0512}" for number in range(10)))
            await exchange(one)
        with redis.Redis.from_url(server.url) as client:
            assert 20 <= client.xlen(KEY) < 60
            assert 0 < client.ttl(KEY) <= shared_decisions.KEPT_SECONDS
            one.shared._clock = lambda: 9e9
            one.serve("later")
            await exchange(one)
            assert client.xlen(KEY) < 20


async def test_more_than_a_batch_is_published_and_imported_at_once(tmp_path, server, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.shared_decisions.BATCH", 7)
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(one, two):
        one.serve(*map(str, range(50)))
        await exchange(one, two)
        assert await two.ids() == await one.ids() == [str(number) for number in reversed(range(50))]


async def test_a_server_whose_clock_is_behind_that_of_the_last_one_is_read_all_the_same(tmp_path, server):
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)
    async with running(two):
        await two.history.take([], "0-0", "9999999999999-0")
        await exchange(two)
        async with running(one):
            one.serve("a")
            await exchange(one, two)
        assert await two.ids() == ["a"]


async def test_what_others_have_put_there_is_passed_over(tmp_path, server):
    one = Replica(tmp_path / "one", server)
    with redis.Redis.from_url(server.url) as client:
        client.xadd(KEY, {"by": "x", "what": b"no parcel"})
        client.xadd(KEY, {"hello": "world"})
    async with running(one):
        one.serve("a")
        await exchange(one, one)
        assert (one.shared.problem, await one.ids()) == (None, ["a"])
        with redis.Redis.from_url(server.url) as client:
            client.set(KEY, "somebody's text")
        one.serve("b")
        await exchange(one)
        assert (one.shared.problem, await one.ids()) == ("ResponseError", ["b", "a"])


async def test_entries_wait_to_be_published_while_there_is_no_file(tmp_path, server):
    (tmp_path / "file").write_text("no folder")
    one = Replica(tmp_path / "file", server)
    async with running(one):
        with capture_logs() as log:
            one.serve("a")
            await exchange(one)
        assert [line["event"] for line in log] == ["decisions_not_kept"]
        assert (one.shared.problem, await one.ids()) == (None, ["a"])
        with redis.Redis.from_url(server.url) as client:
            assert client.exists(KEY) == 0
