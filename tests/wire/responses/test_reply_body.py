from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import read

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.responses import ReplyBody

OWN = {"type": "function_call", "call_id": "o", "name": RETRIEVAL_TOOL, "arguments": "{}"}
FETCH = {"type": "function_call", "call_id": "f", "name": "fetch", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def words(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


THEIRS = [FETCH, THOUGHT, words("So."), words(RETRIEVAL_TOOL), {"type": "web_search_call", "id": "ws_1"}, 7]


def body(*output, **members):
    return json.dumps({"id": "resp_1", "status": "completed", "output": output, **members}, indent=2).encode()


def ours_in(item):
    """The text of a message of the model that it did not say, and its id."""
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    return [part["text"] for part in item["content"]], item["id"]


def outputs(reported):
    return json.loads(reported)["output"]


@given(st.lists(st.sampled_from([*THEIRS, OWN]), max_size=6))
def test_the_client_gets_its_own_items_and_we_get_our_calls(output):
    answer = ReplyBody()
    reply = read(answer, body(*output)[:-1] + b', "odd": 1.50}')
    assert outputs(answer.last_words()) == [item for item in output if item is not OWN]
    assert b"1.50" in answer.last_words()
    assert (reply is not None) == (OWN in output)
    assert reply is None or len(reply.own) == output.count(OWN)


def test_rounds_are_one_response_with_the_id_of_the_last_and_without_thoughts_that_led_to_our_calls():
    answer = ReplyBody()
    for round_of_ours in ((THOUGHT, words("Let me look."), OWN), (THOUGHT, OWN, words("And here."))):
        assert read(answer, body(*round_of_ours))
        answer.next_round()
    assert read(answer, body(THOUGHT, words("It is 7."), id="resp_2")) is None
    reported = json.loads(answer.last_words())
    assert reported["id"] == "resp_2"
    spoken = [THOUGHT, words("Let me look."), words("And here."), THOUGHT, words("It is 7.")]
    assert reported["output"] == spoken


@pytest.mark.parametrize("spoken", [(), (words("So."),)])
def test_a_model_that_is_stopped_ends_with_a_word_that_has_an_id_of_its_own(spoken):
    answer, names = ReplyBody(), set()
    for number in (1, 2):
        assert read(answer, body(THOUGHT, *spoken, OWN))
        *shown, last = outputs(answer.stopped("Stopped."))
        answer.next_round()
        assert shown == [THOUGHT, *spoken] * number * len(spoken)
        text, name = ours_in(last)
        assert text == ["Stopped."]
        names.add(name)
    assert len(names) == 2
