from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.deltas import CallOrder, assembled, choice_of, delta_of, index_of, listed_calls


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
def test_a_call_with_another_id_is_another_call_though_it_stands_where_one_stood(more):
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
def test_a_call_without_an_index_stands_where_it_is(item, index):
    assert index_of(item, 9) == index


@pytest.mark.parametrize(
    "odd", [None, 7, {}, {"choices": {}}, {"choices": []}, {"choices": [{}, {}]}, {"choices": [7]}]
)
def test_a_chunk_without_one_choice_has_no_delta(odd):
    assert choice_of(odd) is None
    assert delta_of(choice_of(odd)) == {}
    assert message_of(odd) == {}


@pytest.mark.parametrize("odd", [None, {}, "ls"])
def test_calls_that_are_no_list_are_none(odd):
    assert listed_calls({"tool_calls": odd}) == []
    assert message_of(chunk(tool_calls=[7, None])) == {}
