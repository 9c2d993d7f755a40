"""The planner's memory is bounded by the bytes it really holds."""

import asyncio
import gc
import json
import threading
import tracemalloc
from typing import Any

import pytest

from proxy.commands.explain import create_explainer
from proxy.config import Settings
from proxy.shell.resources import NotWanted, while_wanted
from proxy.wire.chat_completions import CHAT_COMPLETIONS


def planner_for(folder, window):
    settings = Settings(
        upstream={"base_url": "http://127.0.0.1:9/v1"}, data_dir=folder, defaults={"context_window": window}
    )
    return create_explainer(settings).planners[0]


def body_of(messages):
    return json.dumps({"model": "m", "messages": messages}).encode()


def short_messages(number):
    roles = ("user", "assistant")
    return body_of([{"role": roles[j % 2], "content": f"message {number} {j}"} for j in range(601)])


def long_run(number):
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Go {number}."}]
    for turn in range(60):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
        text = " ".join(f"get_user{number}_{turn}_{word * 7919 % 10007}" for word in range(200))
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{turn}", "content": text}]
    return body_of(messages)


def long_result(number):
    call = {"id": "c", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
    text = "".join(f"line {number} {line}: value {line * 7919 % 10007}\n" for line in range(8_000))
    return body_of(
        [
            {"role": "user", "content": f"Go {number}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
    )


def growth_of(planner, planned):
    """The bytes that four more requests take in memory, as Python and as the planner count them."""

    async def plan(numbers):
        for number in numbers:
            await planned(number)

    asyncio.run(plan(range(1)))  # what is loaded and remembered once for all
    counted = planner._memory._kept.held_bytes
    gc.collect()
    tracemalloc.start()
    try:
        asyncio.run(plan(range(1, 5)))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return taken, planner._memory._kept.held_bytes - counted


@pytest.mark.parametrize("make", [short_messages, long_run, long_result])
@pytest.mark.parametrize("window", [4_000, 1_000_000])
def test_what_is_remembered_counts_as_what_it_takes(make, window, tmp_path):
    planner = planner_for(tmp_path, window)

    taken, counted = growth_of(
        planner, lambda number: planner.plan(CHAT_COMPLETIONS, b"owner %d" % number, make(number))
    )
    assert 0.75 < taken / counted < 1.25


def test_of_conversations_that_begin_alike_no_bytes_are_held_twice(tmp_path):
    planner, beginning = planner_for(tmp_path, 1_000_000), {"role": "system", "content": "You are careful. " * 40}

    def made(number):
        return body_of([beginning, *json.loads(long_result(number))["messages"]])

    taken, counted = growth_of(planner, lambda number: planner.plan(CHAT_COMPLETIONS, b"owner", made(number)))
    assert taken < 1.25 * counted


async def test_work_stops_when_no_request_waits_for_it(tmp_path, monkeypatch):
    planner, seen = planner_for(tmp_path, 1_000_000), []
    begun, leave, over = threading.Event(), threading.Event(), threading.Event()

    def watched(index, *given):
        seen.append(index)
        begun.set()
        leave.wait(20)
        try:
            return list(while_wanted(index, *given))
        except NotWanted:
            over.set()
            raise

    monkeypatch.setattr("proxy.shell.planning.plan_inputs.while_wanted", watched)
    planning = asyncio.create_task(planner.plan(CHAT_COMPLETIONS, b"owner", short_messages(1)))
    await asyncio.to_thread(begun.wait, 20)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    leave.set()
    assert await asyncio.to_thread(over.wait, 20)
    assert seen == [0]
