"""The requests are real chat requests, the same on every machine, and grow as a conversation grows."""

import json
from itertools import islice, pairwise
from typing import Any

import pytest

from tools.bench.bodies import (
    GROWTH_TURNS,
    WORKLOADS,
    conversation_from_the_start,
    growing_conversations,
    marked_conversations,
    new_conversations,
)


def _messages(body):
    found: list[dict[str, Any]] = json.loads(body)["messages"]
    return found


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "2mb" not in name])
def test_a_seed_gives_the_same_bytes_again_and_another_gives_others(name):
    first, again, other = (next(WORKLOADS[name].bodies(seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_every_tool_call_has_its_output_right_after_it():
    system, user, *rest = _messages(next(new_conversations(30_000, model="m", seed=1)))
    assert (system["role"], user["role"]) == ("system", "user")
    assert len(rest) >= 10
    for call, output in zip(rest[::2], rest[1::2], strict=True):
        assert call["tool_calls"][0]["id"] == output["tool_call_id"]
        json.loads(call["tool_calls"][0]["function"]["arguments"])


def test_sizes_are_what_the_names_say():
    assert 1_900 < len(next(WORKLOADS["chat_2kb"].bodies(1))) < 2_100
    assert 200_000 <= len(next(WORKLOADS["conversation_200kb"].bodies(1))) < 207_000
    assert 2_000_000 <= len(next(WORKLOADS["growing_2mb"].bodies(1))) < 2_007_000


def test_new_conversations_share_no_more_than_the_system_text():
    one, other = (_messages(body) for body in islice(new_conversations(20_000, model="m", seed=1), 2))
    assert one[0] == other[0]
    assert all(message not in other for message in one[1:])


def test_marked_conversations_share_no_text_and_no_line_of_one():
    one, other = (_messages(body) for body in islice(marked_conversations(100_000, model="m", seed=1), 2))
    lines, others = (
        {line for message in messages for line in message["content"].split("\n")} for messages in (one, other)
    )
    assert len(lines) > 500
    assert not lines & others
    assert 2_000_000 < len(next(WORKLOADS["marked_2mb"].bodies(1))) < 2_050_000


def test_growing_conversations_take_turns_and_add_one_exchange_each_time():
    bodies = [_messages(body) for body in islice(growing_conversations(20_000, model="m", seed=1, conversations=3), 9)]
    for turn in range(6):
        before, after = bodies[turn], bodies[turn + 3]
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2
    assert bodies[0][1] != bodies[1][1] != bodies[2][1]


def test_a_conversation_from_the_start_ends_near_its_size():
    bodies = list(conversation_from_the_start(200_000, model="m", seed=1, turns=20))
    assert len(bodies) == 20
    assert all(_messages(after)[:-2] == _messages(before) for before, after in pairwise(bodies))
    assert 170_000 < len(bodies[-1]) < 230_000


def test_the_growing_workloads_have_as_many_bodies_as_turns():
    assert sum(1 for _ in WORKLOADS["from_start"].bodies(1)) == GROWTH_TURNS


@pytest.mark.parametrize(("name", "index"), [("clock", 0), ("task", 1), ("last", -1), ("metadata", None)])
def test_an_agent_that_writes_something_anew_changes_that_and_nothing_else(name, index):
    plain = list(islice(WORKLOADS["of_an_agent"].bodies(1), 3))
    anew = list(islice(WORKLOADS[f"of_an_agent_{name}"].bodies(1), 3))
    for before, after in zip(plain, anew, strict=True):
        messages = _messages(after)
        if index is not None:
            messages[index] = _messages(before)[index]
        assert messages == _messages(before)
    assert len({len(body) - len(before) for body, before in zip(anew, plain, strict=True)}) == 1
    assert len({body[:4_000] + body[-4_000:] for body in anew}) == 3
