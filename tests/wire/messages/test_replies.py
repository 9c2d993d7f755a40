"""Replies and errors of the Messages API: what proves a reply, what was counted, when a stream is whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_journey import message_of

from proxy.core.overflow.silent_truncation import Counted
from proxy.core.retrieval_tool.assistant_message import OwnCall
from proxy.errors import (
    ArtifactStoreUnavailable,
    BodyTooLarge,
    ContextOverflow,
    MalformedRequest,
    MissingKey,
    UnknownPath,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.wire.error_bodies import judge_answer
from proxy.wire.messages.message import ApiMessage
from proxy.wire.messages.wire import MESSAGES

START_USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 400, "output_tokens": 1}


def event(kind, **members):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


START = event("message_start", message={"id": "msg_1", "type": "message", "content": [], "usage": START_USAGE})
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7}) + event("message_stop")


def block(index, opening, *deltas):
    return b"".join(
        [
            event("content_block_start", index=index, content_block=opening),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ]
    )


def text_block(index, *pieces):
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def call_block(index, name, given, number=1):
    opening = {"type": "tool_use", "id": f"toolu_{name}_{number}", "name": name, "input": {}}
    written = json.dumps(given)
    pieces = [written[:4], written[4:]]
    return block(index, opening, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


@pytest.mark.parametrize("data", [b'{"type":"message_start","message":{}}', b'{"type": "ping"}', b""])
def test_the_head_of_a_stream_says_nothing_yet(data):
    assert not MESSAGES.says_something(data)


@pytest.mark.parametrize(
    "data", [b'{"type":"content_block_start"}', b'{"type":"message_delta"}', b'{"type":"error"}', b'{"error":1}', b"x"]
)
def test_whatever_else_comes_says_something(data):
    assert MESSAGES.says_something(data)


def test_a_block_that_begins_is_a_reply():
    assert MESSAGES.is_plainly_a_reply(START + text_block(0, "hi"))
    assert MESSAGES.is_plainly_a_reply(b'{"type":"message","content":[{"type":"text","text":"x"}]}')
    assert not MESSAGES.is_plainly_a_reply(START)
    assert not MESSAGES.is_plainly_a_reply(b'{"content":[{}],"stop_reason":"model_context_window_exceeded"}')


def test_what_counts_is_the_prompt_with_all_that_the_cache_had_and_got():
    assert MESSAGES.counted(START + END) == Counted(423, 7, 400)
    newer = event("message_delta", delta={}, usage={**START_USAGE, "output_tokens": 9})
    assert MESSAGES.counted(newer) == Counted(423, 9, 400)
    assert MESSAGES.counted(END) is None
    assert MESSAGES.counted(b'data: {"usage": {"input') is None


def test_a_prompt_that_filled_its_window_is_an_overflow_whatever_part_was_cached():
    body = json.dumps({"content": [], "stop_reason": "model_context_window_exceeded", "usage": START_USAGE}).encode()
    assert judge_answer(200, (), body).prompt == 423


@pytest.mark.parametrize("end", [END, event("error", error={"type": "overloaded_error"})])
def test_a_stream_is_whole_with_its_last_event(end):
    assert MESSAGES.is_complete(START + text_block(0, "x") + end)
    assert not MESSAGES.is_complete(START + text_block(0, '"type":"message_stop"'))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MalformedRequest("x"), "invalid_request_error"),
        (MissingKey("x"), "authentication_error"),
        (UnknownPath("x"), "not_found_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (UpstreamUnreachable("x"), "api_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (ArtifactStoreUnavailable("x"), "overloaded_error"),
    ],
)
def test_errors_of_the_proxy_have_the_types_of_the_api(error, kind):
    body = json.loads(MESSAGES.error(error, "req-1"))
    assert body == {"type": "error", "error": {"type": kind, "message": "x"}, "request_id": "req-1"}


def test_an_overflow_is_told_in_the_one_sentence_that_clients_know():
    error = ContextOverflow("words", sizes=(9, 7), advice="Shorten it.")
    told = json.loads(MESSAGES.error(error))["error"]
    assert told == {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 7 maximum. Shorten it."}


def test_what_is_no_error_of_the_api_becomes_one_at_the_end_of_a_stream():
    told = MESSAGES.error_in_stream(400, b'{"error":{"message":"no","type":"BadRequestError"}}')
    name, data = told.decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "no"},
    }
    own = b'{"type": "error", "error": {"type": "x"}}'
    assert own in MESSAGES.error_in_stream(400, own)


def fed(stream, data, sizes):
    """What the client gets of a stream that comes in pieces of these sizes."""
    told, at = [], 0
    for size in [*sizes, len(data)]:
        told.append(stream.feed(data[at : at + size]))
        at += size
    return b"".join(told)


@given(st.lists(st.integers(1, 200), max_size=20))
def test_a_stream_without_our_calls_passes_as_the_very_bytes(sizes):
    data = START + event("ping") + text_block(0, "a", "b") + call_block(1, "fetch", {"a": 1}) + END
    stream = MESSAGES.streamed_reply()
    assert fed(stream, data, sizes) == data
    assert stream.end() is None
    assert stream.last_words() == b""
    assert stream.usage == {}


@given(st.lists(st.integers(1, 200), max_size=20), st.lists(st.integers(1, 200), max_size=20))
def test_two_rounds_are_one_message_for_the_client_however_they_come(first, second):
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "s=="},
    )
    calls = call_block(2, "read_artifact", {"id": "a"}) + END.replace(b"end_turn", b"tool_use")
    stream = MESSAGES.streamed_reply()
    told = fed(stream, START + thought + text_block(1, "I ", "look") + calls, first)
    said = stream.end()
    assert said is not None
    assert [json.loads(call.arguments) for call in said.own] == [{"id": "a"}]
    assert json.loads(said.message)["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_read_artifact_1", "name": "read_artifact", "input": {"id": "a"}},
    ]
    stream.next_round()
    told += fed(stream, START.replace(b"msg_1", b"msg_2") + text_block(0, "found") + END, second)
    assert stream.end() is None
    told += stream.last_words()
    message = message_of(told.decode())
    assert message["id"] == "msg_1"
    assert [one.get("text") for one in message["content"]] == [None, "I look", "found"]
    assert message["usage"]["output_tokens"] == 14
    assert stream.usage == {"prompt_tokens": 846, "completion_tokens": 14, "total_tokens": 860}


def test_a_call_that_breaks_off_stands_as_the_answer():
    stream = MESSAGES.streamed_reply()
    told = stream.feed(START + call_block(0, "read_artifact", {"id": "a"}) + END.replace(b"end_turn", b"max_tokens"))
    assert stream.end() is None
    assert message_of((told + stream.last_words()).decode())["stop_reason"] == "max_tokens"


def test_a_block_of_a_kind_that_is_not_known_is_not_put_together():
    stream = MESSAGES.streamed_reply()
    odd = block(0, {"type": "new"}, {"type": "new_delta", "new": 1})
    stream.feed(START + odd + call_block(1, "read_artifact", {}) + END)
    assert stream.end() is None


def test_the_answer_to_a_call_is_a_message_with_its_result():
    found = MESSAGES.message(MESSAGES.result(OwnCall(0, "toolu_1", "{}", b"{}"), "a page"))
    assert isinstance(found, ApiMessage)
    assert (found.role, found.answers, found.text()) == ("tool", "toolu_1", "a page")
