"""The model's message that goes back upstream with the results of our calls, from a body and from a stream."""

from __future__ import annotations

import json

import pytest
from support.answer_shapes import choice, chunk, read

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.chat_completions import AnswerBody, AnswerStream

OURS = b'{"id":"c1","function":{"name":"read_artifact","arguments":"{}"},"signature":"abc"}'
THEIRS = b'{ "id":"c2","function":{"name":"ls","arguments":"{}"} }'


def said(*calls, answer=None, **members):
    """The message of a body whose calls are these."""
    made = b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in members.items()) + b"," * bool(members)
    message = b'{"role":"assistant",%b"tool_calls":[%b]}' % (made, b",".join(calls))
    return read(answer or AnswerBody(), b'{"choices":[{"message":%b,"finish_reason":"tool_calls"}]}' % message)


def test_our_calls_are_separated_from_the_clients_and_each_keeps_its_bytes():
    found = said(THEIRS, OURS)
    (own,) = found.own
    assert (own.id, own.arguments) == ("c1", "{}")
    assert (found.others, said(OURS).others) == ((THEIRS,), ())
    assert OURS in found.message
    assert THEIRS in found.message


@pytest.mark.parametrize("odd", [b"7", b"null", b"{}", b'{"function": {"name": 7}}', b'{"function": "read_artifact"}'])
def test_an_odd_call_is_the_clients(odd):
    found = said(odd, OURS)
    assert ([own.id for own in found.own], found.others) == (["c1"], (odd,))


def test_what_goes_back_upstream_is_what_a_client_would_send_back_and_a_person_may_read_its_texts():
    members = {"content": b'"Hm."', "reasoning_content": b'"why"', "refusal": b"null", "annotations": b"[]"}
    found = said(OURS, **members)
    assert json.loads(found.message) == {
        "role": "assistant",
        "content": "Hm.",
        "reasoning_content": "why",
        "tool_calls": [json.loads(OURS)],
    }
    assert json.loads(said(OURS).message)["content"] is None
    odd = said(OURS, content=b'"Hm."', reasoning=b'"why"', reasoning_content=b"7")
    assert odd.texts == {"content": "Hm.", "reasoning": "why"}


def test_arguments_that_come_as_an_object_are_written_as_json():
    call = {"id": None, "function": {"name": RETRIEVAL_TOOL, "arguments": {"id": "x"}}}
    (own,) = said(json.dumps(call).encode(), content=b'"\\ud800"').own
    assert (own.id, json.loads(own.arguments)) == ("", {"id": "x"})


def test_the_servers_own_names_of_the_prompts_counts_are_those_of_the_first_round():
    names = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    stream = AnswerStream()
    first, second = ({name: number for number, name in enumerate(names, 3)}, dict.fromkeys(names, 9))
    stream.feed(chunk([choice({"tool_calls": [OWN]})]) + chunk([], usage={**first, "cost": 0.5}))
    stream.next_round()
    reported = stream.feed(chunk([], usage={**second, "cost": 1}))
    assert json.loads(reported.removeprefix(b"data: "))["usage"] == {**first, "cost": 1.5}


# Deltas

OWN = {"index": 7, "id": "call_o", "type": "function", "function": {"name": RETRIEVAL_TOOL, "arguments": "{}"}}


def delta(**members):
    return chunk([choice(members)])


def call(name=None, arguments=None, call_id=None, **more):
    function = {key: text for key, text in (("name", name), ("arguments", arguments)) if text is not None}
    return {**({"id": call_id} if call_id else {}), "function": function, **more}


def calls_of(*events):
    """The client's calls in the message that goes back, whose last call is ours."""
    stream = AnswerStream()
    for event in (*events, delta(tool_calls=[OWN])):
        stream.feed(event)
    return json.loads(stream.end().message)["tool_calls"][:-1]


@pytest.mark.parametrize("more", [{"index": 0}, {}, {"index": True}, {"index": "2"}])
def test_a_call_with_another_id_is_another_call_even_at_the_same_index(more):
    found = calls_of(
        delta(tool_calls=[call("ls", "{}", "a", **more)]), delta(tool_calls=[call("ls", "[]", "b", **more)])
    )
    assert [one["id"] for one in found] == ["a", "b"]


def test_a_server_that_repeats_name_and_id_in_every_piece_makes_one_call():
    pieces = [call("ls", piece, "a", index=0, type="function") for piece in ('{"x"', ": 1}")]
    assert calls_of(*(delta(tool_calls=[piece]) for piece in pieces)) == [
        {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"x": 1}'}}
    ]


def test_calls_are_numbered_in_the_order_in_which_they_begin():
    first, second = call("a", "", "1", index=5), call("b", "", "2", index=3)
    assert [one["id"] for one in calls_of(delta(tool_calls=[first]), delta(tool_calls=[second]))] == ["1", "2"]
    stream = AnswerStream()
    reported = b"".join(stream.feed(delta(tool_calls=[one])) for one in (first, second, call(arguments="x", index=5)))
    events = [json.loads(one.removeprefix(b"data: ")) for one in reported.split(b"\n\n") if one]
    assert [one["choices"][0]["delta"]["tool_calls"][0]["index"] for one in events] == [0, 1, 0]


def test_what_is_no_text_is_put_together_by_its_kind_and_never_lost_to_nothing():
    (found,) = calls_of(
        delta(tool_calls=[call("ls", "{}", "a", index=0, extra={"a": "1"}, parts=[1], said="yes", seen=None)]),
        delta(tool_calls=[{"index": 0, "extra": {"a": "2", "b": 3}, "parts": [2], "said": None, "seen": 4}, 7, None]),
        delta(tool_calls=[{"index": 0, "extra": 7, "seen": 5}]),
    )
    assert {name: found[name] for name in ("extra", "parts", "said", "seen")} == {
        "extra": {"a": "12", "b": 3},
        "parts": [1, 2],
        "said": "yes",
        "seen": 5,
    }


@pytest.mark.parametrize("odd", [7, {}, {"choices": {}}, {"choices": []}, {"choices": [{}, {}]}, {"choices": [7]}])
def test_a_chunk_without_one_choice_adds_nothing(odd):
    assert calls_of(b"data: " + json.dumps(odd).encode() + b"\n\n", delta(tool_calls="ls")) == []
