from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.answer_end import is_whole
from proxy.wire.sse import TAIL_BYTES, Tail


def event(delta, finish=None, **members):
    made = {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}
    return b"data: " + json.dumps(made).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
TEXT = event({"content": "Hi."})


@pytest.mark.parametrize(
    "told",
    [
        TEXT + DONE,
        TEXT + b"data:[DONE]\r\n\r\n",
        TEXT + DONE + b": bye\n\n",
        TEXT + event({}, "stop") + USAGE,
        TEXT + event({}, "stop", usage={"prompt_tokens": 9}),
        TEXT + event({"content": "x" * TAIL_BYTES}) + event({}, "stop") + USAGE,
    ],
)
def test_a_stream_that_says_that_it_is_over_is_whole(told):
    assert is_whole(told)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        TEXT,
        TEXT + event({}, "stop"),
        TEXT + event({}, "stop") + USAGE[:-1],
        TEXT + USAGE,
        event({}, None, usage={"prompt_tokens": 9}) + event({}, "stop", usage=None),
        b'{"choices":[{"message":{"content":"data: [DONE]"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9}}',
    ],
)
def test_a_stream_that_does_not_say_so_is_not(told):
    assert not is_whole(told)


@given(st.text(), st.sampled_from(["\ndata: [DONE]\n\n", '"finish_reason": "stop"', '"usage": {', "data: [DONE]"]))
def test_what_a_model_writes_never_ends_a_stream(text, said):
    assert not is_whole(TEXT + event({"content": text + said + text + '"usage": {'}))


@given(st.lists(st.binary(max_size=30), max_size=12))
def test_a_tail_holds_the_end_and_little_more(pieces):
    tail = Tail(8, 12)
    for piece in pieces:
        tail.add(piece)
    said = b"".join(pieces)
    assert tail.joined[-8:] == said[-8:]
    assert said.endswith(tail.joined)
    assert len(tail.joined) < 16


def test_of_many_pieces_a_tail_holds_the_last_ones():
    tail = Tail(1_000, 3)
    for number in range(10):
        tail.add(b"%d" % number)
    assert tail.joined == b"789"


def test_large_pieces_are_not_kept_alive_by_their_ends():
    tail = Tail(TAIL_BYTES, 32)
    tracemalloc.start()
    try:
        for _ in range(40):
            tail.add(bytes(256_000))
        assert tracemalloc.get_traced_memory()[0] < 3 * TAIL_BYTES
    finally:
        tracemalloc.stop()
