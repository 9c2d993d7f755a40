from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.answer_end import TAIL_BYTES, is_whole


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
