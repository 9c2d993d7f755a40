import asyncio
import threading

import pytest
from support.journey import world
from support.strategies import notices, spelled, user
from support.upstream import ScriptedModel

from proxy.shell.resources import NotWanted, UnderWay, in_thread, while_wanted
from proxy.wire.chat_completions import ChatMessage

MESSAGE = ChatMessage.read(spelled(user("words")))


def step():
    return list(while_wanted(0, MESSAGE, "", notices()))


@pytest.fixture
def turns(monkeypatch):
    """How long others were let go first, each time."""
    found: list[float] = []
    monkeypatch.setattr("proxy.shell.resources.threads.time.sleep", found.append)
    return found


async def test_a_thread_lets_other_requests_go_first_at_each_message(turns, monkeypatch):
    monkeypatch.setattr("proxy.shell.resources.UnderWay.count", 2)
    assert await in_thread(lambda: [step() for _ in range(3)]) == [[], [], []]
    assert turns == [0, 0, 0]


async def test_without_other_requests_a_thread_does_not_pause_nor_does_the_event_loop_for_any_task(turns):
    assert await in_thread(step) == step() == []
    assert turns == []


async def test_abandoned_work_stops_at_the_next_message():
    begun, over = threading.Event(), threading.Event()
    outcome: list[str] = []

    def work():
        try:
            begun.set()
            while not over.wait(0.001):
                step()
            outcome.append("went on")
        except NotWanted:
            outcome.append("stopped")
        over.set()

    waiting = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.to_thread(over.wait)
    assert outcome == ["stopped"]


def test_each_request_that_is_served_counts_once(tmp_path):
    counts: list[int] = []

    def note(_):
        counts.append(UnderWay.count)

    before = UnderWay.count
    with world(tmp_path, ScriptedModel([note]), [{}]) as built:
        built.ask(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
        built.ask(b"no JSON")
    assert counts == [before + 1]
    assert UnderWay.count == before
