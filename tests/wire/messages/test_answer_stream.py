from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_journey import message_of
from support.messages_rounds import END, START, call_block, event, fed, text_block

from proxy.wire.messages import AnswerStream

SIZES = st.lists(st.integers(1, 200), max_size=20)
OUR_CALL = call_block(0, "read_artifact", {"id": "a"})


def test_whole_events_pass_at_once_and_a_broken_one_when_it_is_whole():
    stream = AnswerStream()
    data = text_block(0, "a")
    assert stream.feed(START) == START
    assert stream.feed(data[:-1]) + stream.feed(data[-1:]) == data
    assert stream.feed(b"data: {") == b""
    assert stream.end() is None
    assert stream.last_words() == b"data: {"


@given(SIZES, SIZES)
def test_two_rounds_are_one_message_for_the_client_however_they_come(first, second):
    calls = call_block(1, "read_artifact", {"id": "a"}) + END.replace(b"end_turn", b"tool_use")
    stream = AnswerStream()
    reported = fed(stream, START + text_block(0, "I ", "look") + calls, first)
    reply = stream.end()
    assert reply is not None
    assert [json.loads(call.arguments) for call in reply.own] == [{"id": "a"}]
    stream.next_round()
    reported += fed(stream, START.replace(b"msg_1", b"msg_2") + text_block(0, "found") + END, second)
    assert stream.end() is None
    reported += stream.last_words()
    message = message_of(reported.decode())
    assert message["id"] == "msg_1"
    assert [one["text"] for one in message["content"]] == ["I look", "found"]
    assert message["usage"]["output_tokens"] == 14
    assert stream.usage == {"prompt_tokens": 846, "completion_tokens": 14, "total_tokens": 860}


def test_blocks_that_a_gateway_numbers_from_1_keep_their_numbers():
    data = START + text_block(1, "a", "b") + call_block(2, "fetch", {"a": 1}) + END
    stream = AnswerStream()
    assert stream.feed(data) == data


@pytest.mark.parametrize("held", [b"", OUR_CALL + END])
def test_an_event_too_long_to_wait_for_passes_as_it_arrives(held, monkeypatch):
    monkeypatch.setattr("proxy.wire.replies.MAX_KEPT_BYTES", 2_000)
    stream, pieces = AnswerStream(), [b"data: ", b"x" * 3_000, b"y", b"\n\ndata: z"]
    reported = stream.feed(START + held) + b"".join(map(stream.feed, pieces))
    assert stream.end() is None
    assert stream.last_words() == b""
    assert reported == START + (END if held else b"") + b"".join(pieces)


def test_what_ends_a_stream_is_held_once_we_are_called():
    stream = AnswerStream()
    assert stream.feed(START + OUR_CALL + END) == START
    assert stream.last_words() == END


def test_of_a_model_that_is_stopped_an_odd_end_stays():
    stream, odd = AnswerStream(), event("message_delta", delta=7)
    stream.feed(START + text_block(0, "So.") + call_block(1, "read_artifact", {}) + odd)
    assert stream.end() is not None
    assert stream.stopped("Stopped.").endswith(odd)
