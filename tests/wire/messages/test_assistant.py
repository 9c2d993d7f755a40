from __future__ import annotations

import json

import pytest

from proxy.wire.messages.assistant import is_own, result_of, said_in
from proxy.wire.messages.message import ApiMessage

OURS = b'{"type": "tool_use", "id": "t1", "name": "read_artifact", "input": {"id":  "a"}, "caller": {"x": 1.0}}'
THEIRS = b'{ "type":"tool_use","id":"t2","name":"ls","input":{} }'
THOUGHT = b'{"type": "thinking", "thinking": "hm", "signature": "s=="}'


def test_our_calls_are_told_from_the_clients_and_each_keeps_its_bytes():
    found = said_in([THOUGHT, THEIRS, OURS])
    (own,) = found.own
    assert (own.position, own.id, own.raw) == (1, "t1", OURS)
    assert json.loads(own.arguments) == {"id": "a"}
    assert found.others == (THEIRS,)
    assert found.others_meant == [["t2", "ls", {}]]
    assert all(raw in found.message for raw in (THOUGHT, THEIRS, OURS))


@pytest.mark.parametrize(
    ("blocks", "is_mixed"), [([OURS], False), ([THEIRS], False), ([OURS, THEIRS], True), ([THOUGHT], False)]
)
def test_a_message_is_mixed_where_the_client_has_something_to_answer_too(blocks, is_mixed):
    assert said_in(blocks).is_mixed is is_mixed


@pytest.mark.parametrize("odd", [b"7", b"null", b"{}", b'"read_artifact"', b"{"])
def test_what_is_no_call_is_nobodys(odd):
    found = said_in([odd])
    assert (found.own, found.others) == ((), ())


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "name": ["read_artifact"]},
        {"type": "tool_use"},
        {"type": "server_tool_use", "name": "read_artifact"},
        {"name": "read_artifact"},
        None,
    ],
)
def test_only_a_call_of_our_tool_by_its_name_is_ours(block):
    assert not is_own(block)


def test_a_call_without_an_id_or_an_input_is_ours_all_the_same():
    (own,) = said_in([b'{"type":"tool_use","name":"read_artifact"}']).own
    assert (own.id, own.arguments) == ("", "null")


def test_an_empty_text_does_not_go_back_upstream():
    found = said_in([b'{"type":"text","text":""}', b'{"type":"text","text":"So."}', OURS])
    assert json.loads(found.message) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "So."}, json.loads(OURS)],
    }


def test_what_a_person_may_read_of_it_are_its_texts():
    assert said_in([THOUGHT, b'{"type":"text","text":"a"}', OURS, b'{"type":"text","text":"b"}']).texts == {
        "text": "a\nb"
    }


def test_the_answer_to_a_call_is_a_message_with_its_result():
    found = ApiMessage.read(result_of("toolu_1", 'a "page"\n'))
    assert (found.role, found.answers, found.text()) == ("tool", "toolu_1", 'a "page"\n')
