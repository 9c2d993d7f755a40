"""What a reply counted, and the model's message that goes back upstream with the results of our calls."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import read
from support.messages_rounds import END, START, START_USAGE, block, body_of_answer, call_block, event, text_block

from proxy.core.overflow import Counted
from proxy.wire.messages import MESSAGES, AnswerBody, AnswerStream

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
    assert MESSAGES.counted(json.dumps({"content": [], "usage": usage}, indent=indent).encode()) == Counted(
        fresh + got + had, reply, had
    )


def ended(**usage):
    return event("message_delta", delta={}, usage=usage)


COUNTED = {
    "the first event reports the prompt, and the last one the reply": (START + END, Counted(423, 7, 400)),
    "the last event reports both": (ended(**START_USAGE | {"output_tokens": 9}), Counted(423, 9, 400)),
    "a prompt that the last event repeats is counted once": (
        START + ended(**START_USAGE | {"output_tokens": 9}),
        Counted(423, 9, 400),
    ),
    "a nought at the end takes back no count": (START + ended(**dict.fromkeys(START_USAGE, 0)), Counted(423, 1, 400)),
    "noughts alone": (ended(**dict.fromkeys(START_USAGE, 0)), Counted(0, 0, 0)),
    "counts that are not stated, or are no numbers, are zero, and the cache is unknown": (
        b'{"usage":{"input_tokens":20,"output_tokens":true,"service_tier":"x"}}',
        Counted(20, 0),
    ),
    "a prompt with only its cached part reported is unknown": (b'{"usage":{"cache_read_input_tokens":7}}', None),
    "nothing": (b"", None),
    "no prompt": (END, None),
    "a part of an event": (b'data: {"usage": {"input', None),
    "no usage": (b'{"usage": null}', None),
    "an endless usage": (b'{"usage":' + b'{"a":' * 100_000, None),
    "words of the model in a stream": (text_block(0, '"usage":{"input_tokens":9}'), None),
    "words of the model in a body": (body_of_answer([{"type": "text", "text": '"usage":{"input_tokens":9}'}]), None),
}


@pytest.mark.parametrize(("reported", "counted"), COUNTED.values(), ids=COUNTED)
def test_a_reply_counted_what_it_says_outside_the_words_of_the_model(reported, counted):
    assert MESSAGES.counted(reported) == counted


@pytest.mark.parametrize(
    ("first", "last", "client", "record"),
    [
        ({"input_tokens": 5, "output_tokens": 2}, {"input_tokens": 90}, {"input_tokens": 5}, (95, 2)),
        (
            {"input_tokens": 5, "output_tokens": 2},
            {"output_tokens": 3, "cache_read_input_tokens": 8},
            {"output_tokens": 5, "cache_read_input_tokens": 8},
            (13, 5),
        ),
        ({}, {"input_tokens": 9}, {"input_tokens": 9}, (9, 0)),
        ({}, {}, {}, ()),
    ],
)
def test_a_partial_usage_is_reported_as_partial(first, last, client, record):
    answer = AnswerBody()
    read(answer, body_of_answer([json.loads(OURS)], usage=first))
    answer.next_round()
    read(answer, body_of_answer([], usage=last))
    assert json.loads(answer.last_words())["usage"] == client
    assert tuple(answer.usage.values()) == ((*record, sum(record)) if record else ())


# The model's message

OURS = b'{"type":"tool_use","id":"t1","name":"read_artifact","input":{"id":"a"},"caller":{"x":1.0}}'
THEIRS = b'{ "type":"tool_use","id":"t2","name":"ls","input":{} }'
THOUGHT = b'{"type": "thinking", "thinking": "hm", "signature": "s=="}'


def said(*blocks):
    return read(AnswerBody(), b'{"content": [' + b",".join(blocks) + b'], "stop_reason": "tool_use"}')


def test_our_calls_are_separated_from_the_clients_and_each_keeps_its_bytes():
    found = said(THOUGHT, THEIRS, OURS)
    (own,) = found.own
    assert own.id == "t1"
    assert json.loads(own.arguments) == {"id": "a"}
    assert found.others == (THEIRS,)
    assert all(raw in found.message for raw in (THOUGHT, THEIRS, OURS))
    assert not said(THOUGHT, OURS).others


@pytest.mark.parametrize(
    "odd",
    [
        b"7",
        b'"read_artifact"',
        b'{"type":"tool_use","name":["read_artifact"]}',
        b'{"type":"server_tool_use","name":"read_artifact"}',
        b'{"name":"read_artifact"}',
    ],
)
def test_only_a_call_of_our_tool_by_its_name_is_ours(odd):
    assert said(odd) is None
    assert [own.id for own in said(odd, OURS).own] == ["t1"]


def test_a_call_without_an_id_or_an_input_is_ours_all_the_same():
    (own,) = said(b'{"type":"tool_use","name":"read_artifact"}').own
    assert (own.id, own.arguments) == ("", "null")


def test_an_empty_text_does_not_go_back_upstream_and_a_person_may_read_the_others():
    texts = [b'{"type":"text","text":"%b"}' % text for text in (b"", b"a", b"b")]
    found = said(THOUGHT, *texts, OURS)
    assert [one.get("text") for one in json.loads(found.message)["content"]] == [None, "a", "b", None]
    assert found.texts == {"text": "a\nb"}


# Streams


def made_by(data):
    """The message that goes back upstream; None if it cannot be assembled."""
    stream = AnswerStream()
    stream.feed(START + data + call_block(9, "read_artifact", {}) + END)
    found = stream.end()
    return None if found is None else json.loads(found.message)["content"][:-1]


@given(st.lists(st.text(), max_size=5), st.dictionaries(st.text(), st.text(), max_size=4))
def test_the_pieces_of_a_stream_make_the_blocks_of_a_message(pieces, given_input):
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "s=="},
    )
    words = [{"type": "text", "text": "".join(pieces)}] if any(pieces) else []
    assert made_by(thought + event("ping") + text_block(1, *pieces) + call_block(2, "fetch", given_input)) == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        *words,
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
    parts = [{"type": "input_json_delta", "partial_json": part} for part in ('{"a":', "  1.50}")]
    stream = AnswerStream()
    stream.feed(START + block(0, {"type": "tool_use", "name": "read_artifact", "input": {}}, *parts) + END)
    assert b'{"a":  1.50}' in stream.end().message


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


def test_nothing_is_put_together_with_a_block_that_never_began_or_has_no_place():
    assert made_by(event("content_block_delta", index=4, delta={"type": "text_delta", "text": "x"})) is None
    assert made_by(event("content_block_start", content_block={"type": "text"})) is None


@pytest.mark.parametrize("written", [b": a comment\n\n", b"data: [DONE]\n\n", b"data: [1]\n\n", b"data: {\n\n"])
def test_what_is_no_object_says_nothing(written):
    assert made_by(written + text_block(0, "a")) == [{"type": "text", "text": "a"}]


def test_an_event_that_is_rewritten_keeps_what_is_not_changed_and_has_its_own_name():
    stream = AnswerStream()
    stream.feed(START + call_block(2, "read_artifact", {}) + event("content_block_start", index=3, content_block={}))
    old = b'id: 7\ndata: {"type": "content_block_stop", "index":  3, "x":  1.50}\n\n'
    assert stream.feed(old) == b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0,"x":1.50}\n\n'
