"""Decisions that outlive their process and are shared by its workers; trouble with the
file shows only in the log."""

import asyncio
import os
import shutil
import sqlite3
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from proxy.core.compaction import Budget
from proxy.core.conversation import MessageReport
from proxy.shell.telemetry import RETRY_SECONDS, History, RequestRecord, Table

REPORTS = (MessageReport("user", "", 10, 10), MessageReport("tool", "bash", 500, 90, ("truncate_tool_output",), ("a",)))
LINE = {"outcome": "answered", "status": 200, "tokens_before": 510, "tokens_sent": 100}


class Worker:
    """A process, as far as its history is concerned."""

    def __init__(self, path, max_rows=100):
        self.now = 1_000.0
        self.history = History(path, max_rows, lambda: self.now)

    def serve(self, *names, **members):
        for name in names:
            record = RequestRecord.of({**LINE, "request_id": name, **members})
            record.reports, record.budget = REPORTS, Budget(1_000)
            self.history.finished(record)

    async def ids(self):
        return [one.request_id for one in await self.history.ask(Table.page, {"limit": 500})]


@pytest.fixture
async def start(tmp_path):
    workers: list[Worker] = []

    def started(path=tmp_path / "decisions.db", max_rows=100):
        workers.append(Worker(path, max_rows))
        return workers[-1]

    yield started
    for worker in workers:
        await worker.history.close()


async def test_what_is_finished_is_there_for_who_looks_next_in_any_worker(start):
    one, other = start(), start()
    one.serve("a", "b")
    assert await one.ids() == ["b", "a"]
    other.serve("c")
    await other.history.write()
    assert await one.ids() == ["c", "b", "a"]
    assert await one.history.ask(Table.count, {}) == 3


async def test_it_outlives_the_process(start):
    one = start()
    one.serve("a", edits={"truncate_tool_output": 1})
    one.serve("b")
    await one.history.close()
    later = start()
    assert await later.ids() == ["b", "a"]
    edited, blocks = await later.history.find("a")
    assert (edited.edits, edited.tokens_cut) == ({"truncate_tool_output": 1}, 410)
    assert [block.tokens_after for block in blocks] == [10, 90]
    ((sums,),) = await later.history.ask(Table.sums, 0.0, later.now)
    assert sums.tokens_sent == 200


async def test_without_a_file_each_worker_knows_its_own(start, tmp_path):
    one, other = start(max_rows=0), start(max_rows=0)
    one.serve("a", "b")
    other.serve("c")
    assert (await one.ids(), await other.ids()) == (["b", "a"], ["c"])
    one.serve("d")
    assert await one.ids() == ["d", "b", "a"]
    await one.history.write()
    assert os.listdir(tmp_path) == []


async def test_a_broken_file_is_put_aside_and_another_made(start, tmp_path):
    (tmp_path / "decisions.db").write_bytes(b"this is no database " * 1_000)
    one = start()
    one.serve("a")
    with capture_logs() as log:
        assert await one.ids() == ["a"]
    assert [line["event"] for line in log] == ["decisions_not_kept"]
    assert await one.ids() == ["a"]
    assert one.history.problem is None
    assert (tmp_path / "decisions.broken").exists()


async def test_a_file_that_breaks_while_it_is_used_costs_what_it_held_and_nothing_else(start, tmp_path):
    one = start()
    one.serve("a")
    await one.history.write()
    (tmp_path / "decisions.db").write_bytes(b"x" * 8_192)
    one.serve("b")
    with capture_logs():
        await one.history.write()
        assert await one.ids() in (["b", "a"], ["b"])
        one.serve("c")
        assert (await one.ids())[0] == "c"


async def test_a_locked_file_is_written_when_it_is_free_again(start, tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.table.BUSY_SECONDS", 0.01)
    one = start()
    one.serve("a")
    await one.history.write()
    holder = sqlite3.connect(tmp_path / "decisions.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    one.serve("b")
    with capture_logs() as log:
        await one.history.write()
        assert await one.ids() == ["b"], "what waits to be written"
    assert [line["event"] for line in log] == ["decisions_not_kept"]
    assert "locked" in log[0]["reason"]
    holder.close()
    one.now += RETRY_SECONDS
    assert await one.ids() == ["b", "a"]
    assert one.history.problem is None
    assert await start().ids() == ["b", "a"], "from the file"


async def test_an_unwritable_folder_is_reported_once_and_of_what_waits_the_newest_is_kept(start, tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.history.MAX_WAITING", 50)
    obstacle = tmp_path / "data"
    obstacle.write_text("no folder")
    one = start(obstacle / "decisions.db")
    with capture_logs() as log:
        for number in range(200):
            one.serve(str(number))
            if number % 20 == 19:
                await one.history.write()
        assert await one.ids() == [str(number) for number in range(199, 149, -1)]
        assert [line["event"] for line in log] == ["decisions_not_kept"]
        assert one.history.problem
        obstacle.unlink()
        one.now += RETRY_SECONDS
        one.serve("200")
        assert await one.ids() == [str(number) for number in range(200, 150, -1)]
        assert one.history.problem is None


@pytest.mark.parametrize("meanwhile", [10, 50, 60])
async def test_the_newest_is_kept_if_more_comes_while_a_write_fails(meanwhile, start, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.history.MAX_WAITING", 50)
    one = start()
    for number in range(50):
        one.serve(str(number))
    add = Table.add
    with monkeypatch.context() as patched, capture_logs():

        def fail(*_):
            patched.setattr(Table, "add", add)  # for what is shown while the file is locked
            for number in range(50, 50 + meanwhile):
                one.serve(str(number))
            raise sqlite3.OperationalError("database is locked")

        patched.setattr(Table, "add", fail)
        await one.history.write()
    one.now += RETRY_SECONDS
    with capture_logs():
        assert await one.ids() == [str(number) for number in range(49 + meanwhile, meanwhile - 1, -1)]


async def test_a_file_removed_with_its_folder_is_reported_and_created_again(start, tmp_path):
    path = tmp_path / "data" / "decisions.db"
    one, other = start(path), start(path)
    one.serve("a")
    await one.history.write()
    assert await other.ids() == ["a"]
    shutil.rmtree(path.parent)
    one.serve("b")
    with capture_logs() as lines:
        await one.history.write()
    (line,) = lines
    assert (line["event"], line["reason"]) == ("decisions_not_kept", "it was removed while it was in use")
    assert (one.history.problem, path.stat().st_mode & 0o777) == (None, 0o600)
    other.serve("c")
    assert await other.ids() == ["c", "b"], "both use the new file"
    assert await one.ids() == ["c", "b"]


async def test_what_is_remembered_without_a_file_is_bounded(start, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.history.MAX_DECISIONS", 3)
    one = start(max_rows=0)
    for number in range(5):
        one.serve(str(number))
        await one.history.write()
    assert await one.ids() == ["4", "3", "2"]


async def test_a_request_under_way_is_found_with_what_is_known_of_it(start):
    history = start().history
    history.under_way[1] = RequestRecord("now", started=0.0)
    record, blocks = await history.find("now")
    assert (record.outcome, blocks) == ("running", [])
    assert await history.find("other") is None


async def test_the_file_of_an_earlier_release_is_deleted_and_the_log_says_so(start, tmp_path, monkeypatch):
    for name in ("decisions-3.db", "decisions-3.db-journal", "lessons.json"):
        (tmp_path / name).write_bytes(b"what it held")
    one = start()
    one.serve("a")
    await one.history.write()
    with capture_logs() as log, monkeypatch.context() as patched:
        patched.setattr("proxy.shell.telemetry.history.WRITE_SECONDS", 0)
        patched.setattr(one.history, "write", AsyncMock(side_effect=asyncio.CancelledError))
        with pytest.raises(asyncio.CancelledError):
            await one.history.write_for_ever()
    (line,) = log
    assert (line["event"], line["deleted"]) == ("decisions_upgraded", ["decisions-3.db", "decisions-3.db-journal"])
    assert {path.name for path in tmp_path.iterdir()} == {"decisions.db", "decisions.db-journal", "lessons.json"}
