from __future__ import annotations

import json

import pytest

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.wire.chat_completions.assistant import called, result_of, said_in

OURS = b'{"id": "c1", "function": {"name": "read_artifact", "arguments": "{}"}, "signature": "abc"}'
THEIRS = b'{ "id":"c2","function":{"name":"ls","arguments":"{}"} }'


def said(**members: bytes):
    return said_in(members)


def test_our_calls_are_told_from_the_clients_and_each_keeps_its_bytes():
    found = said(tool_calls=b"[" + THEIRS + b"," + OURS + b"]")
    (own,) = found.own
    assert (own.position, own.id, own.arguments, own.raw) == (1, "c1", "{}", OURS)
    assert found.others == (THEIRS,)
    assert OURS in found.message
    assert THEIRS in found.message


@pytest.mark.parametrize(
    ("calls", "is_mixed"), [(OURS, False), (THEIRS, False), (OURS + b"," + THEIRS, True), (b"", False)]
)
def test_a_message_is_mixed_where_the_client_has_something_to_answer_too(calls, is_mixed):
    assert said(tool_calls=b"[" + calls + b"]").is_mixed is is_mixed


@pytest.mark.parametrize("odd", [b"7", b"null", b"{}", b'{"function": {"name": 7}}', b'{"function": "read_artifact"}'])
def test_an_odd_call_is_the_clients(odd):
    found = said(tool_calls=b"[" + odd + b"]")
    assert (found.own, found.others) == ((), (odd,))


@pytest.mark.parametrize("odd", [b"{}", b"null", b'"read_artifact"'])
def test_calls_that_are_no_list_are_none(odd):
    found = said(tool_calls=odd)
    assert (found.own, found.others) == ((), ())


def test_what_goes_back_upstream_is_what_a_client_would_send_back():
    members = {"content": b'"Hm."', "reasoning_content": b'"why"', "refusal": b"null", "annotations": b"[]"}
    found = json.loads(said(**members).message)
    assert found == {"role": "assistant", "content": "Hm.", "reasoning_content": "why"}
    assert json.loads(said().message) == {"role": "assistant", "content": None}


def test_what_a_person_may_read_of_it_stands_by_its_name():
    assert said(content=b'"Hm."', reasoning=b'"why"', reasoning_content=b"7").texts == {
        "content": "Hm.",
        "reasoning": "why",
    }


def test_arguments_that_come_as_an_object_are_json():
    call = {"id": None, "function": {"name": RETRIEVAL_TOOL, "arguments": {"id": "x"}}}
    (own,) = said(tool_calls=json.dumps([call]).encode()).own
    assert json.loads(own.arguments) == {"id": "x"}
    assert own.id == ""


def test_a_result_answers_the_call_that_it_was_read_for():
    (own,) = said(tool_calls=b"[" + OURS + b"]").own
    assert json.loads(result_of(own.id, 'a "page"\n')) == {
        "role": "tool",
        "tool_call_id": own.id,
        "content": 'a "page"\n',
    }
    assert called(json.loads(OURS)) == RETRIEVAL_TOOL
