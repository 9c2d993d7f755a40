from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model_turns import Reply, Usage
from support.responses_answers import answered

from proxy.wire.responses.reply_end import is_whole
from proxy.wire.sse import TAIL_BYTES


def event(name, is_named=True, **members):
    named = f"event: {name}\n" if is_named else ""
    return f"{named}data: {json.dumps({'type': name, **members})}\n\n".encode()


TEXT = event("response.output_text.delta", delta="Hi.")
LONG = {"output": ["x" * TAIL_BYTES], "usage": {"input_tokens": 9}}


@pytest.mark.parametrize("name", ["response.completed", "response.incomplete", "response.failed", "error"])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_stream_is_whole_with_any_event_that_ends_one(name, is_named):
    assert is_whole(TEXT + event(name, is_named))
    assert not is_whole(TEXT + event(name, is_named)[:-1])


@pytest.mark.parametrize(
    "told",
    [
        TEXT + event("response.completed", response=LONG),
        TEXT + event("response.completed").replace(b"\n", b"\r\n"),
        TEXT + event("response.completed").replace(b"\n", b"\r"),
        TEXT + event("response.completed") + b": bye\n\n",
        TEXT + b"data: [DONE]\n\n",
        TEXT + b"data:[DONE]\n\n",
    ],
)
def test_a_stream_that_says_that_it_is_over_is_whole(told):
    assert is_whole(told)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        TEXT,
        event("response.created", response={"usage": None}),
        event("response.output_item.done", item={"status": "completed"}),
        event("errors"),
    ],
)
def test_a_stream_that_does_not_say_so_is_not(told):
    assert not is_whole(told)


@given(
    st.text(), st.sampled_from(["\ndata: [DONE]\n\n", '"type": "response.completed"', '"usage": {', '"type":"error"'])
)
def test_what_a_model_writes_never_ends_a_stream(text, said):
    assert not is_whole(event("response.output_text.delta", delta=text + said + text))


@pytest.mark.parametrize("cut", [0, 1])
def test_a_stream_is_whole_once_its_last_event_is(cut):
    came = answered({"model": "m", "stream": True}, Reply("word " * 9_000), Usage(100, 0, 10), 1)[0].body
    assert is_whole(came[: len(came) - cut]) is not bool(cut)
    assert not is_whole(came.rpartition(b"event: ")[0])
