from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.core.text.jsontext import listed, object_in
from proxy.wire.chat_completions.replies import (
    AnswerUsage,
    CallOrder,
    assembled,
    called,
    choice_of,
    index_of,
    reply_in,
    result_of,
)

# Counts

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(
    lambda prompt, reply, cached: {
        "prompt_tokens": prompt,
        "completion_tokens": reply,
        "total_tokens": prompt + reply,
        "prompt_tokens_details": {"cached_tokens": cached},
    },
    COUNTS, COUNTS, COUNTS,
)  # fmt: skip


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_usage_covers_the_clients_own_prompt_and_everything_the_model_wrote(rounds):
    usage = AnswerUsage()
    for one in rounds[:-1]:
        usage.add(one)
    reported = usage.for_client(rounds[-1])
    written = sum(one["completion_tokens"] for one in rounds)
    assert reported["prompt_tokens"] == rounds[0]["prompt_tokens"]
    assert reported["prompt_tokens_details"] == rounds[0]["prompt_tokens_details"]
    assert reported["completion_tokens"] == written
    assert reported["total_tokens"] == rounds[0]["prompt_tokens"] + written


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_the_record_holds_the_tokens_of_all_rounds(rounds):
    usage = AnswerUsage()
    for one in rounds[:-1]:
        usage.add(one)
    assert usage.totals(rounds[-1]) == {
        name: sum(one[name] for one in rounds) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


def test_the_servers_own_names_of_the_prompts_counts_are_those_of_the_first_round():
    usage = AnswerUsage()
    usage.add({"prompt_cache_hit_tokens": 3, "cached_tokens": 4, "cache_read_input_tokens": 5, "cost": 0.5})
    assert usage.for_client(
        {"prompt_cache_hit_tokens": 30, "cached_tokens": 40, "cache_read_input_tokens": 50, "cost": 1}
    ) == {
        "prompt_cache_hit_tokens": 3,
        "cached_tokens": 4,
        "cache_read_input_tokens": 5,
        "cost": 1.5,
    }


# The model's message

OURS = b'{"id": "c1", "function": {"name": "read_artifact", "arguments": "{}"}, "signature": "abc"}'
THEIRS = b'{ "id":"c2","function":{"name":"ls","arguments":"{}"} }'


def parsed_reply(**members: bytes):
    return reply_in(members)


def test_our_calls_are_separated_from_the_clients_and_each_keeps_its_bytes():
    found = parsed_reply(tool_calls=b"[" + THEIRS + b"," + OURS + b"]")
    (own,) = found.own
    assert (own.position, own.id, own.arguments, own.raw) == (1, "c1", "{}", OURS)
    assert found.others == (THEIRS,)
    assert OURS in found.message
    assert THEIRS in found.message


@pytest.mark.parametrize(
    ("calls", "is_mixed"), [(OURS, False), (THEIRS, False), (OURS + b"," + THEIRS, True), (b"", False)]
)
def test_a_message_is_mixed_where_the_client_has_something_to_answer_too(calls, is_mixed):
    assert parsed_reply(tool_calls=b"[" + calls + b"]").is_mixed is is_mixed


@pytest.mark.parametrize("odd", [b"7", b"null", b"{}", b'{"function": {"name": 7}}', b'{"function": "read_artifact"}'])
def test_an_odd_call_is_the_clients(odd):
    found = parsed_reply(tool_calls=b"[" + odd + b"]")
    assert (found.own, found.others) == ((), (odd,))


@pytest.mark.parametrize("odd", [b"{}", b"null", b'"read_artifact"'])
def test_calls_of_a_message_that_are_no_list_are_none(odd):
    found = parsed_reply(tool_calls=odd)
    assert (found.own, found.others) == ((), ())


def test_what_goes_back_upstream_is_what_a_client_would_send_back():
    members = {"content": b'"Hm."', "reasoning_content": b'"why"', "refusal": b"null", "annotations": b"[]"}
    found = json.loads(parsed_reply(**members).message)
    assert found == {"role": "assistant", "content": "Hm.", "reasoning_content": "why"}
    assert json.loads(parsed_reply().message) == {"role": "assistant", "content": None}


def test_text_that_people_may_read_is_found_by_its_member():
    assert parsed_reply(content=b'"Hm."', reasoning=b'"why"', reasoning_content=b"7").texts == {
        "content": "Hm.",
        "reasoning": "why",
    }


def test_arguments_that_come_as_an_object_are_json():
    call = {"id": None, "function": {"name": RETRIEVAL_TOOL, "arguments": {"id": "x"}}}
    (own,) = parsed_reply(tool_calls=json.dumps([call]).encode()).own
    assert json.loads(own.arguments) == {"id": "x"}
    assert own.id == ""


def test_a_result_answers_the_call_that_it_was_read_for():
    (own,) = parsed_reply(tool_calls=b"[" + OURS + b"]").own
    assert json.loads(result_of(own.id, 'a "page"\n')) == {
        "role": "tool",
        "tool_call_id": own.id,
        "content": 'a "page"\n',
    }
    assert called(json.loads(OURS)) == RETRIEVAL_TOOL


# Deltas


def chunk(**delta):
    return {"choices": [{"delta": delta}]}


def call(name=None, arguments=None, call_id=None, **more):
    function = {key: text for key, text in (("name", name), ("arguments", arguments)) if text is not None}
    return {**({"id": call_id} if call_id else {}), "function": function, **more}


def message_of(*chunks):
    return {name: json.loads(raw) for name, raw in assembled(chunks).items()}


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_a_text_in_pieces_is_put_together_as_it_was_said(text, cuts):
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    chunks = [chunk(role="assistant"), *(chunk(content=piece) for piece in pieces)]
    assert message_of(*chunks) == {"role": "assistant", "content": text}


def test_the_arguments_of_parallel_calls_go_to_the_call_at_their_index():
    found = message_of(
        chunk(tool_calls=[call("ls", "", "a", index=0), call("cat", '{"p', "b", index=1)]),
        chunk(tool_calls=[call(arguments="{}", index=0)]),
        chunk(tool_calls=[call(arguments='": 1}', index=1)]),
    )
    assert found["tool_calls"] == [call("ls", "{}", "a"), call("cat", '{"p": 1}', "b")]


@pytest.mark.parametrize("more", [{"index": 0}, {}])
def test_a_call_with_another_id_is_another_call_even_at_the_same_index(more):
    found = message_of(
        chunk(tool_calls=[call("ls", "{}", "a", **more)]),
        chunk(tool_calls=[call("ls", "[]", "b", **more)]),
    )
    assert [one["id"] for one in found["tool_calls"]] == ["a", "b"]


def test_a_server_that_repeats_name_and_id_in_every_piece_makes_one_call():
    pieces = [call("ls", piece, "a", index=0, type="function") for piece in ('{"x"', ": 1}")]
    (found,) = message_of(*(chunk(tool_calls=[piece]) for piece in pieces))["tool_calls"]
    assert found == {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"x": 1}'}}


def test_calls_are_numbered_in_the_order_in_which_they_begin():
    order = CallOrder()
    assert [order.number_of(call("a", call_id="1"), 5), order.number_of(call("b", call_id="2"), 3)] == [0, 1]
    assert order.number_of(call(arguments="x"), 5) == 0
    assert order.count == 2


def test_what_is_no_text_is_put_together_by_its_kind_and_never_lost_to_nothing():
    found = message_of(
        chunk(extra={"a": "1"}, parts=[1], content="said", seen=None),
        chunk(extra={"a": "2", "b": 3}, parts=[2], content=None, seen=4),
        chunk(extra=7, seen=5),
    )
    assert found == {"extra": {"a": "12", "b": 3}, "parts": [1, 2], "content": "said", "seen": 5}


@pytest.mark.parametrize(("item", "index"), [({"index": 2}, 2), ({"index": True}, 9), ({"index": "2"}, 9), ({}, 9)])
def test_a_call_without_an_index_keeps_its_position(item, index):
    assert index_of(item, 9) == index


@pytest.mark.parametrize(
    "odd", [None, 7, {}, {"choices": {}}, {"choices": []}, {"choices": [{}, {}]}, {"choices": [7]}]
)
def test_a_chunk_without_one_choice_has_no_delta(odd):
    assert choice_of(odd) is None
    assert object_in(choice_of(odd), "delta") == {}
    assert message_of(odd) == {}


@pytest.mark.parametrize("odd", [None, {}, "ls"])
def test_calls_that_are_no_list_are_none(odd):
    assert listed(odd) == []
    assert message_of(chunk(tool_calls=[7, None])) == {}
