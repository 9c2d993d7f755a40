from __future__ import annotations

import json

import pytest
from hypothesis import given
from support.answer_shapes import body, is_own, messages, read

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.chat_completions import AnswerBody

OWN = {"id": "call_o", "type": "function", "function": {"name": RETRIEVAL_TOOL, "arguments": "{}"}}


def said_by(content):
    return {"role": "assistant", "content": content, "tool_calls": [OWN]}


@given(messages(own=False))
def test_an_answer_without_our_calls_keeps_its_bytes(message):
    answer, written = AnswerBody(), body(message)
    assert read(answer, written) is None
    assert answer.last_words() is written


@given(messages())
def test_the_client_gets_its_own_calls_and_we_get_ours(message):
    answer, written = AnswerBody(), body(message, odd=1.50)
    reply = read(answer, written)
    reported = json.loads(answer.last_words())["choices"][0]["message"]
    calls = message.get("tool_calls", [])
    assert reported.get("tool_calls", []) == [call for call in calls if not is_own(call)]
    assert (reply is not None) == any(map(is_own, calls))
    if reply is not None:
        assert [call.id for call in reply.own] == [call["id"] for call in calls if is_own(call)]
        assert b'"odd":1.5' in answer.last_words()
        assert reply.is_mixed == bool(reported.get("tool_calls"))


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_truncated_answer_is_forwarded_without_our_calls(reason):
    answer = AnswerBody()
    assert read(answer, body(said_by("So"), reason)) is None
    choice = json.loads(answer.last_words())["choices"][0]
    assert choice["finish_reason"] == reason
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize(
    "written",
    [
        b"read_artifact",
        b'["read_artifact"]',
        b'{"choices": "read_artifact"}',
        b'{"choices": [{"message": "read_artifact"}]}',
        b'{"choices": [{"message": {"tool_calls": "read_artifact"}}]}',
        b'{"choices": [{"message": {}}, {"message": {"content": "read_artifact"}}]}',
    ],
)
@pytest.mark.parametrize("rounds", [0, 1])
def test_what_is_no_answer_of_a_model_keeps_its_bytes(written, rounds):
    answer = AnswerBody()
    for _ in range(rounds):
        read(answer, body(said_by(None)))
        answer.next_round()
    assert read(answer, written) is None
    assert answer.last_words() == written


@pytest.mark.parametrize("spoken", [None, "So."])
def test_a_model_that_is_stopped_ends_with_a_word(spoken):
    answer = AnswerBody()
    for _ in range(2):
        assert read(answer, body(said_by(spoken)))
        ending = answer.stopped("Stopped.")
        answer.next_round()
    choice = json.loads(ending)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == ("So.\n\nSo.\n\nStopped." if spoken else "Stopped.")
    assert "tool_calls" not in choice["message"]


def test_a_usage_from_only_one_round_is_reported():
    answer = AnswerBody()
    read(answer, body(said_by("a"), usage={"total_tokens": 3}))
    answer.next_round()
    read(answer, body({"role": "assistant", "content": "b"}, "stop"))
    assert "usage" not in json.loads(answer.last_words())
