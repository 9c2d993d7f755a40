from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import valid_histories

from proxy.core.overflow import Counted
from proxy.wire import TAIL_BYTES, Tail
from proxy.wire.chat_completions import CHAT_COMPLETIONS

# What a reply counts

COUNTS = st.integers(0, 999_999_999)


@given(COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_what_an_answer_counted_is_read_however_it_is_laid_out(prompt, reply, cached, indent):
    usage = {"prompt_tokens": prompt, "completion_tokens": reply, "prompt_tokens_details": {"cached_tokens": cached}}
    end = json.dumps({"choices": [], "usage": usage}, indent=indent).encode()
    assert CHAT_COMPLETIONS.counted(end) == Counted(prompt, reply, cached)


@pytest.mark.parametrize("name", ["cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"])
def test_what_came_from_a_cache_is_read_by_the_name_of_each_provider(name):
    assert CHAT_COMPLETIONS.counted(b'{"prompt_tokens": 9, "%b": 4}' % name.encode()) == Counted(9, 0, 4)


def test_of_several_usages_in_a_stream_the_last_one_counts():
    end = b'data: {"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: {"usage":{"prompt_tokens":3}}\n\n'
    assert CHAT_COMPLETIONS.counted(end) == Counted(3, 2, 0)


@pytest.mark.parametrize(
    "end", [b"", b"data: [DONE]\n\n", b'{"completion_tokens": 7}', b'"prompt_tokens": "7"', b'"prompt_tokens": null']
)
def test_an_answer_that_does_not_say_what_its_prompt_took_counted_nothing(end):
    assert CHAT_COMPLETIONS.counted(end) is None


# The end of a stream


def event(delta, finish=None, **members):
    made = {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}
    return b"data: " + json.dumps(made).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
TEXT = event({"content": "Hi."})


@pytest.mark.parametrize(
    "reported",
    [
        TEXT + DONE,
        TEXT + b"data:[DONE]\r\n\r\n",
        TEXT + DONE + b": bye\n\n",
        TEXT + event({}, "stop") + USAGE,
        TEXT + event({}, "stop", usage={"prompt_tokens": 9}),
        TEXT + event({"content": "x" * TAIL_BYTES}) + event({}, "stop") + USAGE,
    ],
)
def test_a_stream_that_says_that_it_is_over_is_whole(reported):
    assert CHAT_COMPLETIONS.is_complete(reported)


@pytest.mark.parametrize(
    "reported",
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
def test_a_stream_that_does_not_say_so_is_not(reported):
    assert not CHAT_COMPLETIONS.is_complete(reported)


@given(st.text(), st.sampled_from(["\ndata: [DONE]\n\n", '"finish_reason": "stop"', '"usage": {', "data: [DONE]"]))
def test_what_a_model_writes_never_ends_a_stream(text, end):
    assert not CHAT_COMPLETIONS.is_complete(TEXT + event({"content": text + end + text + '"usage": {'}))


@given(st.lists(st.binary(max_size=30), max_size=12))
def test_a_tail_holds_the_end_and_little_more(pieces):
    tail = Tail(8, 12)
    for piece in pieces:
        tail.add(piece)
    stream = b"".join(pieces)
    assert tail.joined[-8:] == stream[-8:]
    assert stream.endswith(tail.joined)
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


# Errors


@given(st.binary(max_size=100))
def test_an_error_ends_a_stream_as_one_event_in_one_line(body):
    first, done, rest = CHAT_COMPLETIONS.error_in_stream(500, body).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert first.startswith(b"data: ")
    assert not {10, 13} & set(first)
    assert "error" in json.loads(first.removeprefix(b"data: "))


# The wire


@given(valid_histories(), st.sampled_from([None, 1]))
def test_a_request_is_read_as_one_view_for_each_message_and_written_with_their_bytes(history, indent):
    body = json.dumps({"model": "m", "messages": history, "temperature": 0.1}, indent=indent).encode()
    request = CHAT_COMPLETIONS.parse(body)
    assert [json.loads(message.raw) for message in request.conversation] == json.loads(body)["messages"]
    rendered = CHAT_COMPLETIONS.render(request, list(request.conversation), {})
    assert json.loads(rendered) == json.loads(body)
    assert all(message.raw in rendered and message.raw in body for message in request.conversation)


def test_given_members_replace_received_ones_and_the_others_keep_their_bytes():
    body = b'{"model": "m", "messages": [{"role":"user"}], "seed":  7.0, "max_tokens": 9}'
    request = CHAT_COMPLETIONS.parse(body)
    rendered = CHAT_COMPLETIONS.render(request, [], {"max_tokens": b"5"})
    assert json.loads(rendered) == {"model": "m", "messages": [], "seed": 7.0, "max_tokens": 5}
    assert b"7.0" in rendered


@pytest.mark.parametrize(
    ("members", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({}, None),
    ],
)
def test_of_two_limits_of_the_reply_the_newer_name_has_the_say(members, limit):
    request = CHAT_COMPLETIONS.parse(json.dumps({"model": "m", "messages": [], **members}).encode())
    assert request.reply_tokens == limit


@pytest.mark.parametrize(
    ("evidence", "is_plain"),
    [
        (b'data: {"choices": [{"delta": {"content": "hi"}}]}', True),
        (b'{"choices":[ {"message": {}}]}', True),
        (b'{"choices": []}', False),
        (b'{"choices": [{"finish_reason": "length"}]}', False),
        (b'{"choices": [{}], "error": {}}', False),
        (b'{"choices": [{"text": "the context is full"}]}', False),
        (b"", False),
    ],
)
def test_an_answer_is_plainly_a_reply_once_a_choice_has_begun_without_a_word_of_a_refusal(evidence, is_plain):
    assert CHAT_COMPLETIONS.is_plainly_a_reply(evidence) is is_plain


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", False),
        (b'{"choices": [], "prompt_filter_results": [{}]}', False),
        (b'{"choices": [{"delta": {"role": "assistant"}}]}', False),
        (b'{"choices": [{"index": 1, "delta": {"role": "assistant", "content": "", "tool_calls": []}}]}', False),
        (b'{"choices": [{"delta": {}, "finish_reason": null}], "usage": null}', False),
        (b'{"choices": [{"delta": {"role": "assistant", "content": "a"}}]}', True),
        (b'{"choices": [{"delta": {"role": "assistant", "reasoning": "a"}}]}', True),
        (b'{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}', True),
        (b'{"choices": [{"delta": {}, "finish_reason": "length"}]}', False),
        (b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', True),
        (b'{"choices": [{"delta": {}, "error": {"message": "too long"}}]}', True),
        (b'{"choices": [{"delta": {}}], "usage": {"prompt_tokens": 3}}', True),
        (b'{"choices": [{"message": {"role": "assistant", "content": ""}}]}', True),
        (b'{"choices": [{"delta": null}]}', True),
        (b'{"choices": ["a"]}', True),
        (b'{"choices": "a"}', True),
        (b"[1]", True),
        (b"[DONE]", True),
        (b'{"error": {"message": "too long"}}', True),
    ],
)
def test_an_event_without_a_choice_or_with_only_a_role_says_nothing(data, says):
    assert CHAT_COMPLETIONS.says_something(data) is says


def test_system_texts_are_messages_and_no_member_of_the_request():
    assert CHAT_COMPLETIONS.instructions({"system": b'"x"', "messages": b"[]"}) == b""


def test_only_a_part_that_holds_an_image_makes_a_request_one_with_images():
    assert CHAT_COMPLETIONS.may_hold_images(b'[{"type": "image_url", "image_url": {}}]')
    assert not CHAT_COMPLETIONS.may_hold_images(b'[{"type": "text", "text": "image"}]')
