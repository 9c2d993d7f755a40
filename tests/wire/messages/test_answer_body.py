from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import read
from support.messages_conversations import text, use
from support.messages_rounds import START_USAGE, body_of_answer

from proxy.wire.messages import AnswerBody

OWN = use(1, "read_artifact", id="a")
THOUGHT = {"type": "thinking", "thinking": "read_artifact", "signature": "s=="}
BLOCKS = st.sampled_from(
    [OWN, use(2, "read_artifact"), use(3, "fetch", a=1), text("x"), text(""), THOUGHT, {"type": "new"}]
)
LISTS = st.lists(BLOCKS, max_size=5)


def is_ours(block):
    return block.get("name") == "read_artifact"


def visible(blocks):
    return [block for block in blocks if not is_ours(block)]


@given(LISTS)
def test_the_client_gets_its_own_blocks_and_we_get_ours(blocks):
    answer = AnswerBody()
    reply = read(answer, body_of_answer(blocks, "tool_use", odd=1.50))
    reported = json.loads(answer.last_words())
    assert reported == json.loads(body_of_answer(visible(blocks), "tool_use", odd=1.50))
    assert (reply is not None) == any(map(is_ours, blocks))
    if reply is not None:
        assert [call.id for call in reply.own] == [block["id"] for block in filter(is_ours, blocks)]


@given(LISTS, LISTS)
def test_rounds_are_one_answer_with_the_name_of_the_first(first, last):
    answer = AnswerBody()
    read(answer, body_of_answer([*first, OWN], usage=START_USAGE))
    answer.next_round()
    read(answer, body_of_answer(last, id="msg_2", usage={"input_tokens": 900, "output_tokens": 6}))
    reported = json.loads(answer.last_words())
    assert reported["content"] == [*visible(first), *visible(last)]
    assert reported["id"] == "msg_1"
    assert reported["usage"] == {"input_tokens": 3, "output_tokens": 7}
    assert answer.usage == {"prompt_tokens": 1323, "completion_tokens": 7, "total_tokens": 1330}


def test_of_three_rounds_the_first_one_names_the_answer():
    answer = AnswerBody()
    for number in (1, 2):
        assert read(answer, body_of_answer([text(str(number)), OWN], id=f"msg_{number}"))
        answer.next_round()
    read(answer, body_of_answer([text("3")], id="msg_3"))
    reported = json.loads(answer.last_words())
    assert (reported["id"], reported["content"]) == ("msg_1", [text("1"), text("2"), text("3")])


@pytest.mark.parametrize(
    "reason", ["max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "compaction"]
)
def test_a_truncated_answer_is_forwarded_without_our_calls(reason):
    answer = AnswerBody()
    assert read(answer, body_of_answer([text("So"), OWN], reason)) is None
    assert json.loads(answer.last_words()) == json.loads(body_of_answer([text("So")], reason))
