from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_rounds import END, START, START_USAGE, block, body_of_answer, call_block, event, text_block

from proxy.core.overflow import Counted
from proxy.wire import EventSplitter
from proxy.wire.messages import ApiMessage
from proxy.wire.messages.replies import (
    AnswerUsage,
    blocks_of,
    counted_in,
    event_of,
    is_own,
    numbers_in,
    prompt_in,
    reply_in,
    result_of,
    rewritten,
)
from proxy.wire.replies import content_of

# Counts

COUNTS = st.integers(0, 999_999_999)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_the_prompt_is_what_the_cache_had_what_it_got_and_the_rest(fresh, got, had, reply, indent):
    usage = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": got,
        "cache_read_input_tokens": had,
        "output_tokens": reply,
    }
    assert counted_in(json.dumps({"content": [], "usage": usage}, indent=indent).encode()) == Counted(
        fresh + got + had, reply, had
    )


def test_the_first_event_of_a_stream_reports_the_prompt_and_the_last_one_the_reply():
    assert counted_in(START + END) == Counted(423, 7, 400)


def test_a_prompt_that_the_last_event_repeats_is_counted_once():
    newer = event("message_delta", delta={}, usage={**START_USAGE, "output_tokens": 9})
    assert counted_in(START + newer) == counted_in(newer) == Counted(423, 9, 400)


def test_a_nought_at_the_end_takes_back_no_count():
    blank = dict.fromkeys(START_USAGE, 0)
    assert counted_in(START + event("message_delta", delta={}, usage=blank)) == Counted(423, 1, 400)
    assert counted_in(event("message_delta", delta={}, usage=blank)) == Counted(0, 0, 0)


@pytest.mark.parametrize(
    "reported", [b"", END, b'data: {"usage": {"input', b'{"usage": null}', b'{"usage":' + b'{"a":' * 100_000]
)
def test_what_says_nothing_of_the_prompt_counted_nothing(reported):
    assert counted_in(reported) is None


def test_what_a_model_writes_is_not_counted():
    written = '"usage":{"input_tokens":9}'
    assert counted_in(text_block(0, written)) is None
    assert counted_in(body_of_answer([{"type": "text", "text": written}])) is None


def test_only_whole_numbers_are_counts():
    usage = {"input_tokens": 5, "output_tokens": True, "service_tier": "standard", "cache_creation": {"x": 1}}
    assert numbers_in(usage) == {"input_tokens": 5}
    assert numbers_in("input_tokens") == {}


def test_a_prompt_with_only_its_cached_part_reported_is_unknown():
    assert prompt_in({"cache_read_input_tokens": 7}) is None
    assert prompt_in({"cache_read_input_tokens": 7, "input_tokens": 0}) == 7


def test_counts_that_are_not_stated_are_zero():
    assert counted_in(b'{"usage":{"input_tokens":20}}') == (20, 0, 0)


# Counts of several rounds

COUNTS_OF_ROUNDS = st.integers(0, 10**6)
USAGES = st.fixed_dictionaries(
    {
        "input_tokens": COUNTS_OF_ROUNDS,
        "cache_creation_input_tokens": COUNTS_OF_ROUNDS,
        "cache_read_input_tokens": COUNTS_OF_ROUNDS,
        "output_tokens": COUNTS_OF_ROUNDS,
        "service_tier": st.sampled_from(["standard", None]),
    }
)
PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def after(rounds):
    usage = AnswerUsage()
    for one in rounds:
        usage.add(one)
    return usage


@given(st.lists(USAGES, min_size=1, max_size=4), USAGES)
def test_usage_covers_the_clients_own_prompt_and_everything_the_model_wrote(rounds, last):
    reported = after(rounds).for_client(last)
    assert {name: reported[name] for name in PROMPT} == {name: rounds[0][name] for name in PROMPT}
    assert reported["output_tokens"] == sum(one["output_tokens"] for one in [*rounds, last])
    assert reported["service_tier"] == last["service_tier"]


@given(st.lists(USAGES, max_size=4), USAGES)
def test_the_record_holds_the_tokens_of_all_rounds(rounds, last):
    prompt = sum(one[name] for one in [*rounds, last] for name in PROMPT)
    reply = sum(one["output_tokens"] for one in [*rounds, last])
    expected = {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
    assert after(rounds).totals(last) == (expected if prompt or reply else {})


def test_a_partial_usage_is_reported_as_partial():
    usage = after([{"input_tokens": 5, "output_tokens": 2}])
    assert usage.for_client({"input_tokens": 90}) == {"input_tokens": 5}
    assert usage.for_client({"output_tokens": 3, "cache_read_input_tokens": 8}) == {
        "output_tokens": 5,
        "cache_read_input_tokens": 8,
    }


def test_the_first_round_is_the_first_even_if_uncounted():
    usage = after([{}, {"input_tokens": 5, "output_tokens": 2}])
    assert usage.for_client({"input_tokens": 9}) == {"input_tokens": 9}
    assert usage.totals({}) == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_a_missing_count_is_no_count():
    assert AnswerUsage().totals({}) == AnswerUsage().for_client({}) == {}


# The model's message

OURS = b'{"type": "tool_use", "id": "t1", "name": "read_artifact", "input": {"id":  "a"}, "caller": {"x": 1.0}}'
THEIRS = b'{ "type":"tool_use","id":"t2","name":"ls","input":{} }'
THOUGHT = b'{"type": "thinking", "thinking": "hm", "signature": "s=="}'


def test_our_calls_are_separated_from_the_clients_and_each_keeps_its_bytes():
    found = reply_in([THOUGHT, THEIRS, OURS])
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
    assert reply_in(blocks).is_mixed is is_mixed


@pytest.mark.parametrize("odd", [b"7", b"null", b"{}", b'"read_artifact"', b"{"])
def test_a_block_that_is_no_call_belongs_to_neither_side(odd):
    found = reply_in([odd])
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
    (own,) = reply_in([b'{"type":"tool_use","name":"read_artifact"}']).own
    assert (own.id, own.arguments) == ("", "null")


def test_an_empty_text_does_not_go_back_upstream():
    found = reply_in([b'{"type":"text","text":""}', b'{"type":"text","text":"So."}', OURS])
    assert json.loads(found.message) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "So."}, json.loads(OURS)],
    }


def test_what_a_person_may_read_of_it_are_its_texts():
    assert reply_in([THOUGHT, b'{"type":"text","text":"a"}', OURS, b'{"type":"text","text":"b"}']).texts == {
        "text": "a\nb"
    }


def test_the_answer_to_a_call_is_a_message_with_its_result():
    found = ApiMessage.read(result_of("toolu_1", 'a "page"\n'))
    assert (found.role, found.answers, found.text()) == ("tool", "toolu_1", 'a "page"\n')


# Events


def made_by(data):
    blocks = blocks_of(map(content_of, EventSplitter().feed(data)))
    return None if blocks is None else [json.loads(raw) for raw in blocks]


@pytest.mark.parametrize("written", [b": a comment\n\n", b"data: [DONE]\n\n", b"data: [1]\n\n", b"data: {\n\n"])
def test_what_is_no_object_says_nothing(written):
    assert content_of(written) == {}


def test_an_event_that_is_rewritten_keeps_what_is_not_changed_and_has_its_own_name():
    old = b'id: 7\ndata: {"type": "content_block_stop", "index":  3, "x":  1.50}\n\n'
    assert rewritten(old, {("index",): b"5"}) == event_of(
        "content_block_stop", b'{"type":"content_block_stop","index":5,"x":1.50}'
    )


@given(st.lists(st.text(), max_size=5), st.dictionaries(st.text(), st.text(), max_size=4))
def test_the_pieces_of_a_stream_make_the_blocks_of_a_message(pieces, given_input):
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "s=="},
    )
    data = START + thought + event("ping") + text_block(1, *pieces) + call_block(2, "fetch", given_input) + END
    assert made_by(data) == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "text", "text": "".join(pieces)},
        {"type": "tool_use", "id": "toolu_fetch_1", "name": "fetch", "input": given_input},
    ]


def test_a_compaction_and_citations_are_put_together_too():
    compaction = block(0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "so far"})
    quotes = [{"type": "citations_delta", "citation": {"cited_text": quote}} for quote in "ab"]
    assert made_by(compaction + block(1, {"type": "text", "text": "x"}, *quotes)) == [
        {"type": "compaction", "content": "so far"},
        {"type": "text", "text": "x", "citations": [{"cited_text": "a"}, {"cited_text": "b"}]},
    ]


def test_an_input_keeps_the_bytes_that_the_model_wrote():
    data = event("content_block_start", index=0, content_block={"type": "tool_use", "input": {}})
    for part in ('{"a":', "  1.50}"):
        delta = {"type": "input_json_delta", "partial_json": part}
        data += event("content_block_delta", index=0, delta=delta)
    (raw,) = blocks_of(map(content_of, EventSplitter().feed(data)))
    assert b'{"a":  1.50}' in raw


@pytest.mark.parametrize("written", ["", '{"a":', "[1]", "7"])
def test_an_input_that_is_no_object_is_an_empty_one(written):
    delta = {"type": "input_json_delta", "partial_json": written}
    assert made_by(block(0, {"type": "tool_use", "input": {}}, delta))[0]["input"] == {}


@pytest.mark.parametrize(
    "delta",
    [
        {"type": "new_delta", "new": 1},
        {"type": "text_delta", "text": 7},
        {"type": "input_json_delta", "partial_json": None},
        {"type": ["text_delta"], "text": "x"},
        {},
        "x",
    ],
)
def test_nothing_is_put_together_with_a_part_that_is_not_known(delta):
    assert made_by(text_block(0, "a") + block(1, {"type": "text", "text": ""}, delta)) is None


def test_a_part_of_a_block_that_never_began_is_not_known():
    assert made_by(event("content_block_delta", index=4, delta={"type": "text_delta", "text": "x"})) is None


def test_a_block_that_begins_without_a_place_is_not_assembled():
    assert blocks_of([{"type": "content_block_start", "content_block": {"type": "text"}}]) is None
