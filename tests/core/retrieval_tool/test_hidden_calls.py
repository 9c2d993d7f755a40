from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import body, is_own, messages, read
from support.line_wire import LineMessage
from support.line_wire import meant_by as lines_meant_by

from proxy.core.retrieval_tool import (
    HISTORY_BYTES,
    AssistantMessage,
    Continuation,
    HiddenToolCalls,
    OwnCall,
    beginning,
    extended,
    mark_in,
    mark_of_name,
)
from proxy.wire.chat_completions import AnswerBody, ChatMessage

OWN = OwnCall(0, "c1", "SECRET", b"SECRET")


@pytest.mark.parametrize(
    ("own", "others", "is_mixed"),
    [((), (), False), ((OWN,), (), False), ((), (b"{}",), False), ((OWN,), (b"{}",), True)],
)
def test_a_message_is_mixed_where_both_the_proxy_and_the_client_have_a_call_to_answer(own, others, is_mixed):
    assert AssistantMessage(b"{}", own, others, [], {}).is_mixed is is_mixed


def test_what_a_model_said_is_not_printed():
    assert "SECRET" not in repr(AssistantMessage(b"SECRET", (OWN,), (b"SECRET",), "SECRET", {"content": "SECRET"}))


NAMES = st.text(max_size=60)
MESSAGES = st.one_of(st.dictionaries(NAMES, NAMES).map(json.dumps), st.text()).map(str.encode)
RESULTS = st.lists(MESSAGES, max_size=4)


@given(NAMES, NAMES, RESULTS)
def test_what_is_kept_is_read_as_it_was(reported, name, results):
    kept = Continuation.of("me", reported, name, results)
    assert Continuation.read(kept.artifact().content, kept.mark) == kept
    assert (kept.name, list(kept.results)) == (name, results)
    assert kept.artifact().id == HiddenToolCalls.name_of(kept.mark)
    assert kept.held_bytes == len(name) + sum(map(len, results))


def test_a_name_is_one_tenants_and_no_call():
    marks = {mark_of_name(tenant, name) for tenant in ("me", "you") for name in ("resp_1", "resp_2")}
    assert len(marks) == 4
    assert mark_in(beginning("me"), calling({"id": "resp_1", "function": {"name": "ls"}})) not in marks


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"visible":"m","name":"r"}', b'{"visible":"m","name":7,"results":[]}', b"\xff"],
)
def test_other_content_is_no_record(content):
    assert Continuation.read(content, "m") is None


def test_a_record_under_another_mark_and_hidden_calls_are_no_record():
    kept = Continuation.of("me", "resp_1", "resp_2", [b"{}"])
    assert Continuation.read(kept.artifact().content, mark_of_name("me", "resp_2")) is None
    assert HiddenToolCalls.read(kept.artifact().content, kept.mark) is None
    hidden = HiddenToolCalls(kept.mark, (0,), (b"{}",), (b"{}",))
    assert Continuation.read(hidden.artifact().content, kept.mark) is None
    assert "{}" not in repr(kept)


MIXED = messages().filter(lambda found: {is_own(call) for call in found.get("tool_calls", [])} == {True, False})


def history_of(*messages, tenant="me"):
    history = beginning(tenant)
    for message in messages:
        history = extended(history, ChatMessage.read(json.dumps(message).encode()))
    return history


def calling(*calls):
    return ChatMessage.read(json.dumps({"role": "assistant", "tool_calls": calls}).encode())


HISTORY = history_of({"role": "user", "content": "Find it."})


def reply_from(message):
    return read(AnswerBody(), body(message))


def results_of(message):
    return [json.dumps({"role": "tool", "tool_call_id": call.id, "content": "page"}).encode() for call in message.own]


def returned(message, **changes):
    """The calls of an answer that a client sends back: only its own."""
    calls = [call for call in message["tool_calls"] if not is_own(call)]
    return ChatMessage.read(json.dumps({**message, "tool_calls": calls, **changes}).encode())


@given(MIXED)
def test_what_was_hidden_comes_back_where_it_was(message):
    reply = reply_from(message)
    hidden = HiddenToolCalls.of(HISTORY, reply, results_of(reply))
    kept = HiddenToolCalls.read(hidden.artifact().content, hidden.mark)
    assert kept == hidden
    whole, *results = kept.put_back(returned(message))
    assert json.loads(whole.raw) == message
    assert [result.raw for result in results] == results_of(reply)
    assert [result.answers for result in results] == [call.id for call in reply.own]


@given(MIXED, st.booleans())
def test_a_client_that_writes_its_calls_differently_is_understood(message, spread):
    hidden = HiddenToolCalls.of(HISTORY, reply_from(message), [])
    written = json.loads(returned(message).raw)
    for call in written["tool_calls"]:
        meant = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(meant.items())), indent=3 if spread else None)
    assert mark_in(HISTORY, ChatMessage.read(json.dumps(written).encode())) == hidden.mark


@given(MIXED, MIXED)
def test_the_calls_of_another_answer_have_another_mark(one, other):
    marks = [mark_in(b"", returned(message)) for message in (one, other)]
    meant = [
        [(call["id"], call["function"]) for call in message["tool_calls"] if not is_own(call)]
        for message in (one, other)
    ]
    assert (marks[0] == marks[1]) == (meant[0] == meant[1])


USER = {"role": "user", "content": "Go."}
CALL = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
FOUND = {"role": "tool", "tool_call_id": "functions.ls:0", "content": "a b"}
SAID = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize(
    "others",
    [
        [],
        [USER, USER],
        [{**USER, "content": "Stop."}],
        [USER, SAID, USER],
        [USER, CALLED, FOUND],
        [USER, CALLED, {**FOUND, "content": "c"}],
        [USER, CALLED, FOUND, CALLED, FOUND],
        [USER, {**SAID, "content": "Well."}, USER],
    ],
)
def test_the_same_calls_after_something_else_have_another_mark(others):
    reported = [mark_in(history_of(*before), calling(CALL)) for before in ([USER], others)]
    assert len({*reported, mark_in(history_of(USER, tenant="you"), calling(CALL))}) == 3


@pytest.mark.parametrize(
    "written",
    [
        [{"role": "system", "content": "It is 12:00."}, USER, CALLED, FOUND, SAID],
        [{**USER, "content": [{"type": "text", "text": "Go.", "cache_control": {}}]}, CALLED, FOUND, SAID],
        [USER, {**CALLED, "content": "", "reasoning_content": "Hm."}, FOUND, {**SAID, "content": "Done.\n"}],
        [USER, {**CALLED, "tool_calls": [{**CALL, "index": 0}]}, {**FOUND, "name": "ls"}, SAID],
    ],
)
def test_what_clients_write_anew_in_each_turn_does_not_change_a_mark(written):
    assert history_of(*written) == history_of(USER, CALLED, FOUND, SAID)
    assert len(history_of(*written)) == HISTORY_BYTES


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
    assert mark_in(b"", ChatMessage.read(json.dumps(message).encode())) is None


@pytest.mark.parametrize("call", [{}, {"function": 7}, {"id": "\ud800", "function": {}}])
def test_odd_calls_have_a_mark(call):
    assert len(mark_in(b"", calling(call))) == 64


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
    assert HiddenToolCalls.read(content, "mark") is None


def test_the_name_follows_from_the_mark():
    hidden = HiddenToolCalls("mark", (0,), (b"{}",), (b"{}",))
    assert hidden.artifact().id == HiddenToolCalls.name_of("mark")
    assert HiddenToolCalls.name_of("mark") != HiddenToolCalls.name_of("another")


def test_what_is_hidden_on_a_wire_without_json_comes_back_as_it_was():
    own, others = b'read_artifact\n= {"id": "x"}', b"ls\n= {}"
    call = OwnCall(1, "", '{"id": "x"}', own)
    reply = AssistantMessage(b"", (call,), (others,), lines_meant_by([others]), {})
    hidden = HiddenToolCalls.of(HISTORY, reply, [b"tool\n> page"])
    kept = HiddenToolCalls.read(hidden.artifact().content, hidden.mark)
    assert kept == hidden
    returned = LineMessage(b"assistant ls\n= {}\n> I look.")
    assert mark_in(HISTORY, returned) == hidden.mark
    assert [message.raw for message in kept.put_back(returned)] == [
        b'assistant read_artifact ls\n= {"id": "x"}\n= {}\n> I look.',
        b"tool\n> page",
    ]


def test_what_was_kept_before_as_json_is_read_as_it_was():
    content = b'{"visible":"m","positions":[0],"calls":[{"id": 1}],"results":[{"role": "tool"}]}'
    assert HiddenToolCalls.read(content, "m") == HiddenToolCalls("m", (0,), (b'{"id": 1}',), (b'{"role": "tool"}',))
    assert HiddenToolCalls.read(content.replace(b'{"id": 1}', b'"\\ud83d"'), "m") is None
