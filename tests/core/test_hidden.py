from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.answer_shapes import is_own, messages

from proxy.core.conversation import Conversation, Message
from proxy.core.hidden import HiddenCalls, mark_in, mark_of, task_of
from proxy.core.said import Said

MIXED = messages().filter(lambda found: {is_own(call) for call in found.get("tool_calls", [])} == {True, False})
TASK = Conversation((Message.read(b'{"role": "system"}'), Message.read(b'{"role": "user", "content": "Find it."}')))


def said_in(message):
    return Said.of({name: json.dumps(found).encode() for name, found in message.items()})


def results_of(said):
    return [json.dumps({"role": "tool", "tool_call_id": call.id, "content": "page"}).encode() for call in said.own]


def returned(message, **changes):
    """What a client sends back of an answer: its own calls."""
    calls = [call for call in message["tool_calls"] if not is_own(call)]
    return Message.read(json.dumps({**message, "tool_calls": calls, **changes}).encode())


@given(MIXED)
def test_what_was_hidden_comes_back_where_it_was(message):
    said = said_in(message)
    hidden = HiddenCalls.of(TASK, said, results_of(said))
    kept = HiddenCalls.read(hidden.artifact().content, hidden.mark)
    assert kept == hidden
    whole, *results = kept.put_back(returned(message))
    assert json.loads(whole.raw) == message
    assert [result.raw for result in results] == results_of(said)
    assert [result.tool_call_id for result in results] == [call.id for call in said.own]


@given(MIXED, st.booleans())
def test_a_client_that_writes_its_calls_differently_is_understood(message, spread):
    hidden = HiddenCalls.of(TASK, said_in(message), [])
    written = json.loads(returned(message).raw)
    for call in written["tool_calls"]:
        meant = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(meant.items())), indent=3 if spread else None)
    assert mark_in(task_of(TASK), Message.read(json.dumps(written).encode())) == hidden.mark


@given(MIXED, MIXED)
def test_the_calls_of_another_answer_have_another_mark(one, other):
    marks = [mark_in("", returned(message)) for message in (one, other)]
    meant = [
        [(call["id"], call["function"]) for call in message["tool_calls"] if not is_own(call)]
        for message in (one, other)
    ]
    assert (marks[0] == marks[1]) == (meant[0] == meant[1])


def test_the_same_calls_in_another_conversation_have_another_mark():
    calls = [b'{"id": "functions.ls:0", "function": {"name": "ls", "arguments": "{}"}}']
    assert mark_of("one task", calls) != mark_of("another task", calls)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "tool_calls": []},
        {"role": "user", "tool_calls": [{"id": "call_1", "function": {"name": "ls"}}]},
        {"role": "assistant", "tool_calls": "call_1"},
    ],
)
def test_a_message_without_calls_hides_nothing(message):
    assert mark_in("", Message.read(json.dumps(message).encode())) is None


@pytest.mark.parametrize(
    "calls", [[b"null"], [b"7"], [b'{"function": 7}'], [b'{"id": "\\ud800", "function": {}}'], [b"x"]]
)
def test_odd_calls_have_a_mark(calls):
    assert len(mark_of("", calls)) == 64


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"visible": "another", "positions": [], "calls": [], "results": []}',
        b'{"visible": "mark", "positions": [1], "calls": [], "results": []}',
    ],
)
def test_what_is_no_record_of_these_calls_is_left_alone(content):
    assert HiddenCalls.read(content, "mark") is None


def test_the_name_follows_from_the_mark():
    hidden = HiddenCalls("mark", (0,), (b"{}",), (b"{}",))
    assert hidden.artifact().id == HiddenCalls.name_of("mark")
    assert HiddenCalls.name_of("mark") != HiddenCalls.name_of("another")


def test_a_conversation_without_a_user_has_an_empty_task():
    assert task_of(Conversation()) == ""
