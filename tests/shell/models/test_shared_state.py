"""State that processes share through Redis or Valkey, and how they work without it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import pytest
import redis
from pydantic import SecretStr
from structlog.testing import capture_logs
from support.state_server import StateServer, needs_state_server
from support.waiting import PATIENCE_SECONDS, until

from proxy.core.models import facts
from proxy.core.overflow import Scope, Unit, Verdict, VerdictKind
from proxy.shell.models import Learning, shared_state
from proxy.shell.models.shared_state import ANSWER_SECONDS, SharedLearning, forget_everywhere, key_of, place_of

pytestmark = needs_state_server

UPSTREAM = "http://upstream/v1"
FLEET = "5eed"
ALICE, BOB = "a1" * 16, "b0" * 16
KEY = key_of(FLEET)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StateServer]:
    found = StateServer(tmp_path)
    found.start()
    yield found
    found.stop()


class Replica:
    """A process with a data folder of its own."""

    def __init__(self, folder: Path, server: StateServer, fleet: str = FLEET) -> None:
        folder.mkdir(exist_ok=True)
        self.learning = Learning(folder, UPSTREAM)
        self.failures = 0
        self.shared = SharedLearning(SecretStr(server.url), fleet, {UPSTREAM: self.learning}, self._count)

    def _count(self) -> None:
        self.failures += 1

    def meets(self, limit: int, by: str = ALICE, model: str = "m") -> None:
        """A refusal that prints a limit."""
        refusal = Verdict(VerdictKind.PROMPT, limit=limit, limit_scope=Scope.WINDOW, unit=Unit.TOKENS)
        self.learning.note_refusal(model, refusal, None, by)

    def window(self, by: str = ALICE, model: str = "m") -> int | None:
        found = self.learning.limits(model, by)
        return found[0].window_tokens if found else None

    async def comes_to(self, limit: int | None, by: str = ALICE) -> None:
        """Wait until it knows this limit."""
        await until(lambda: self.window(by) == limit)


Pair: TypeAlias = tuple[Replica, Replica]


@pytest.fixture
def replicas(tmp_path: Path, server: StateServer) -> Pair:
    return Replica(tmp_path / "one", server), Replica(tmp_path / "two", server)


@contextlib.asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for replica in replicas:
            await stack.enter_async_context(replica.shared.running())
        yield


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.models.shared_state.COMPARE_SECONDS", 0.05)


async def test_a_lesson_reaches_the_other_replica_and_one_that_starts_later(
    replicas: Pair, tmp_path: Path, server: StateServer, quick: None
) -> None:
    one, two = replicas
    async with running(one, two):
        one.meets(8_192)
        one.learning.learn("m", {f"{facts.REFUSES}vision": 1})
        one.learning.learn("n", {facts.REFUSES_OUR_TOOL: 1})
        await two.comes_to(8_192)
        limits, _ = two.learning.limits("m", ALICE) or (None, "")
        assert limits is not None
        three = Replica(tmp_path / "three", server)
        async with running(three):
            assert three.window() == 8_192
            assert three.learning.known == one.learning.known


async def test_a_lesson_of_the_moment_of_an_exchange_is_shared_by_the_next_one(
    replicas: Pair, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas
    read, lessons = shared_state._read, [8_192]

    def meanwhile(written: bytes) -> Any:
        if one.learning.known and lessons:
            one.meets(lessons.pop())
        return read(written)

    async with running(one, two):
        monkeypatch.setattr("proxy.shell.models.shared_state._read", meanwhile)
        one.learning.learn("n", {facts.REFUSES_OUR_TOOL: 1})
        await two.comes_to(8_192)


async def test_both_replicas_have_the_same_rows_and_the_newest_of_each(replicas: Pair, quick: None) -> None:
    one, two = replicas
    async with running(one, two):
        for replica, by, ratio in ((one, ALICE, 1.5), (two, BOB, 1.3)):
            for _ in range(3):
                replica.learning.note_usage("m", "bytes", 10_000, int(10_000 * ratio), "req-1", by)
            replica.learning.note_cut("m", 4_096, None, by)
        await until(lambda: one.learning.known == two.learning.known)
        for found in (one.learning, two.learning):
            assert [found.ratio("m", "bytes", by)[0] for by in (ALICE, BOB, "new")] == [1.5, 1.3, 1.0]
            assert [found.limits("m", by) is None for by in (ALICE, BOB, "new")] == [False, False, True]
        two.learning.note_prompt("m", 9_000, ALICE)
        await until(lambda: one.learning.limits("m", ALICE) is None)
        assert one.learning.known == two.learning.known


async def test_it_ends_at_any_moment(tmp_path: Path, server: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.models.shared_state.COMPARE_SECONDS", 0.001)
    for number in range(40):
        one = Replica(tmp_path / "one", server)
        async with asyncio.timeout(PATIENCE_SECONDS), running(one):
            one.meets(8_192 + number)
            await asyncio.sleep(0.0005 * number)
        assert one.shared.problem is None


async def test_two_replicas_that_learn_at_once_know_both_lessons(replicas: Pair, quick: None) -> None:
    one, two = replicas
    async with running(one, two):
        for number in range(20):
            one.meets(8_192 + number, ALICE)
            two.meets(16_384 + number, BOB)
            await asyncio.sleep(0.005)
        await asyncio.gather(one.comes_to(16_403, BOB), two.comes_to(8_211, ALICE))
        assert one.window(ALICE) == 8_211
        assert two.window(BOB) == 16_403


async def test_replicas_that_separate_tenants_differently_share_nothing(tmp_path: Path, server: StateServer) -> None:
    one, two = Replica(tmp_path / "one", server), Replica(tmp_path / "two", server, "beef")
    async with running(one):
        one.meets(8_192)
    async with running(two):
        assert two.learning.known == {}


async def test_without_the_server_each_learns_alone_and_with_it_again_they_agree(
    replicas: Pair, server: StateServer, quick: None
) -> None:
    """The server keeps nothing over its restart: the replicas tell it again."""
    one, two = replicas
    async with running(one, two):
        one.meets(8_192, ALICE)
        await two.comes_to(8_192, ALICE)
        with capture_logs() as logs:
            server.stop()
            one.meets(4_096, ALICE)
            two.meets(6_000, BOB)
            assert (one.window(ALICE), two.window(ALICE), two.window(BOB)) == (4_096, 8_192, 6_000)
            await until(lambda: None not in (one.shared.problem, two.shared.problem))
            assert "onnect" in str(one.shared.problem)
            assert one.failures
            server.start()
            await asyncio.gather(two.comes_to(4_096, ALICE), one.comes_to(6_000, BOB))
            await until(lambda: (one.shared.problem, two.shared.problem) == (None, None))
        events = [log["event"] for log in logs if log["event"].startswith("state_")]
        assert sorted(events) == ["state_found"] * 2 + ["state_lost"] * 2
        assert one.window(ALICE) == 4_096


async def test_a_server_that_lost_everything_is_refilled_even_if_a_newcomer_was_first(
    tmp_path: Path, server: StateServer
) -> None:
    one, two, newcomer = (Replica(tmp_path / name, server) for name in ("one", "two", "newcomer"))
    async with running(one):
        one.meets(8_192)
        await one.shared.compare()
        async with running(two):
            with redis.Redis.from_url(server.url) as client:
                client.flushall()
            async with running(newcomer):
                for replica in (two, one, newcomer):
                    await replica.shared.compare()
                assert [replica.window() for replica in (one, two, newcomer)] == [8_192] * 3


async def test_the_last_lesson_is_published_at_the_end_and_what_is_forgotten_on_purpose_is_forgotten_everywhere(
    tmp_path: Path, server: StateServer, quick: None
) -> None:
    one, two, gone = (Replica(tmp_path / name, server) for name in ("one", "two", "gone"))
    async with running(gone):
        gone.meets(8_192)
    async with running(one, two):
        assert two.window() == 8_192
        assert forget_everywhere(SecretStr(server.url), FLEET) is None
        await asyncio.gather(one.comes_to(None), two.comes_to(None))
        assert Learning(tmp_path / "one", UPSTREAM).models == ()
        returning = Replica(tmp_path / "gone", server)
        assert returning.window() == 8_192
        async with running(returning):
            assert returning.window() is None
            one.meets(4_096)
            await returning.comes_to(4_096)


async def test_what_another_writes_late_that_was_forgotten_meanwhile_stays_forgotten(
    tmp_path: Path, server: StateServer
) -> None:
    one = Replica(tmp_path / "one", server)
    async with running(one):
        one.meets(8_192)
        await one.shared.compare()
        with redis.Redis.from_url(server.url) as client:
            late = client.hgetall(KEY)
            assert forget_everywhere(SecretStr(server.url), FLEET) is None
            await one.shared.compare()
            client.hset(KEY, mapping=late)
            await one.shared.compare()
            assert one.window() is None
            assert b"8192" not in client.hget(KEY, "lessons")


@pytest.mark.parametrize("broken", [b"{", b"\xff", b"[]", b'{"rows": {"u": [[["m", "", "window"], ["x", 1]]]}}'])
async def test_what_another_has_written_that_cannot_be_read_is_replaced(
    tmp_path: Path, server: StateServer, broken: bytes
) -> None:
    one = Replica(tmp_path / "one", server)
    async with running(one):
        one.meets(8_192)
    with redis.Redis.from_url(server.url) as client:
        client.hset(KEY, mapping={"lessons": broken, "version": "another"})
    two = Replica(tmp_path / "one", server)
    async with running(one, two):
        assert one.window() == two.window() == 8_192


async def test_what_is_there_is_of_another_kind_and_costs_nothing_but_the_comparison(
    tmp_path: Path, server: StateServer
) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set(KEY, "somebody's text")
    one = Replica(tmp_path / "one", server)
    async with running(one):
        one.meets(8_192)
        assert one.shared.problem == "ResponseError"
        assert one.window() == 8_192


async def test_a_defect_is_logged_and_the_next_comparison_made(
    replicas: Pair, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    one, two = replicas
    async with running(one, two):
        with capture_logs() as logs, monkeypatch.context() as broken:
            broken.setattr("proxy.shell.models.shared_state._read", Mock(side_effect=RuntimeError))
            one.meets(8_192)
            await until(lambda: one.shared.problem == "RuntimeError")
        assert "state_failed" in [log["event"] for log in logs]
        await two.comes_to(8_192)


async def test_the_file_is_looked_at_in_a_thread(
    tmp_path: Path, server: StateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, looked_in = Replica(tmp_path / "one", server), list[threading.Thread]()

    monkeypatch.setattr(Learning, "refresh", lambda _: looked_in.append(threading.current_thread()))
    async with running(replica):
        assert looked_in
    assert threading.main_thread() not in looked_in


async def test_a_silent_server_delays_no_request(tmp_path: Path, server: StateServer) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.close()

    gate = asyncio.Event()
    server.stop()
    listener = await asyncio.start_server(silent, "127.0.0.1", server.port)
    one = Replica(tmp_path / "one", server)
    async with running(one):
        assert one.shared.problem is not None
        began = time.monotonic()
        one.meets(8_192)
        assert one.window() == 8_192
        assert time.monotonic() - began < ANSWER_SECONDS
    gate.set()
    listener.close()


async def test_no_password_is_in_the_log(tmp_path: Path) -> None:
    locked = StateServer(tmp_path, "--requirepass", "the-real-one")
    locked.start()
    try:
        url = SecretStr(locked.url.replace("//", "//:canary@"))
        with capture_logs() as logs:
            async with SharedLearning(url, FLEET, {UPSTREAM: Learning(tmp_path, UPSTREAM)}).running():
                pass
        assert [log["event"] for log in logs] == ["state_lost"]
        assert logs[0]["server"] == place_of(url) == f"127.0.0.1:{locked.port}"
        assert "canary" not in str(logs)
        assert "canary" not in str(forget_everywhere(url, FLEET))
    finally:
        locked.stop()


async def test_a_sync_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.models.shared_state.WHOLE_SECONDS", 0.01)
    shared = SharedLearning(SecretStr("redis://127.0.0.1:9"), FLEET, {})
    monkeypatch.setattr(shared, "_compare", asyncio.Event().wait)
    await shared.compare()
    assert shared.problem == "TimeoutError"
