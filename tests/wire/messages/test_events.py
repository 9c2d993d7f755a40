from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_rounds import END, START, block, call_block, event, text_block

from proxy.wire.messages.events import blocks_of, event_of, kind_of_event, rewritten, said
from proxy.wire.sse import EventSplitter


def made_by(data):
    blocks = blocks_of(map(said, EventSplitter().feed(data)))
    return None if blocks is None else [json.loads(raw) for raw in blocks]


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b'{"x":1,"type":"ping"}', "ping"), (b'{"type":7}', ""), (b'["type"]', ""), (b"{", ""), (b"", "")],
)
def test_the_kind_of_an_event_is_its_type_or_empty(data, kind):
    assert kind_of_event(data) == kind


@pytest.mark.parametrize("written", [b": a comment\n\n", b"data: [DONE]\n\n", b"data: [1]\n\n", b"data: {\n\n"])
def test_what_is_no_object_says_nothing(written):
    assert said(written) == {}


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
    (raw,) = blocks_of(map(said, EventSplitter().feed(data)))
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
