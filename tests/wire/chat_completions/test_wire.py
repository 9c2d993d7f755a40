from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import valid_histories

from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS


@given(valid_histories(), st.sampled_from([None, 1]))
def test_a_request_is_read_as_one_view_for_each_message_and_written_with_their_bytes(history, indent):
    body = json.dumps({"model": "m", "messages": history, "temperature": 0.1}, indent=indent).encode()
    request = CHAT_COMPLETIONS.parse(body)
    assert [json.loads(message.raw) for message in request.conversation] == json.loads(body)["messages"]
    rendered = CHAT_COMPLETIONS.render(request, list(request.conversation), {})
    assert json.loads(rendered) == json.loads(body)
    assert all(message.raw in rendered and message.raw in body for message in request.conversation)


def test_members_that_are_given_stand_for_those_that_came_and_the_others_keep_their_bytes():
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
    assert (request.reply_limit or ("", None))[1] == limit


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
def test_an_answer_is_plainly_a_reply_once_a_choice_has_begun_and_no_word_of_a_refusal_stands_there(evidence, is_plain):
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
