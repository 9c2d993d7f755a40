from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import any_histories, exchange, pairing_faults, user, valid_histories

from proxy.core.conversation.message import ToolCall
from proxy.core.conversation.pairing import Unanswered, unpaired
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS


def request_of(messages):
    return CHAT_COMPLETIONS.parse(json.dumps({"model": "m", "messages": messages}).encode())


def repaired(request):
    found = unpaired(request.conversation.messages)
    return request.repaired(
        found,
        lambda message, call: CHAT_COMPLETIONS.message(CHAT_COMPLETIONS.missing_result(message, call, "interrupted")),
    )


def sent(request):
    body = CHAT_COMPLETIONS.render(request, request.conversation.messages, {})
    return [json.dumps(message).encode() for message in json.loads(body)["messages"]]


@given(valid_histories())
def test_what_pairs_up_is_left_alone(messages):
    assert not unpaired(request_of(messages).conversation.messages)


@given(st.one_of(any_histories(), valid_histories(2)), st.data())
def test_a_repaired_history_pairs_up_and_keeps_every_other_message(messages, data):
    messages = [message for message in messages if data.draw(st.integers(0, 4))]  # one in five is lost
    request = request_of(messages)
    found = unpaired(request.conversation.messages)
    assert bool(found) == bool(pairing_faults([message.raw for message in request.conversation.messages]))
    made = repaired(request)
    assert pairing_faults(sent(made)) == []
    kept = [message for index, message in enumerate(request.conversation.messages) if index not in found.orphans]
    added = set(made.put_in)
    assert [m for index, m in enumerate(made.conversation.messages) if index not in added] == kept
    assert found.count == len(found.orphans) + len(added) == len(made.healed)


def test_the_result_that_is_missing_stands_after_those_that_are_there():
    messages = [user("go"), *exchange(["one", "two"]), user("stop")]
    del messages[3]  # the second result
    found = unpaired(request_of(messages).conversation.messages)
    call = json.loads(json.dumps(messages[1]))["tool_calls"][1]
    assert found.unanswered == (Unanswered(1, 2, (ToolCall(call["id"], call["function"]["name"]),)),)
    made = repaired(request_of(messages))
    assert [message.role for message in made.conversation.messages] == ["user", "assistant", "tool", "tool", "user"]


def test_a_second_result_of_one_call_is_one_too_many_but_where_the_wire_allows_it():
    messages = [user("go"), *exchange(["one"]), exchange(["again"])[1]]
    conversation = request_of(messages).conversation.messages
    assert unpaired(conversation).orphans == (3,)
    assert not unpaired(conversation, may_repeat=True)


def test_calls_at_the_end_lack_their_results_too():
    messages = [user("go"), exchange(["one"])[0]]
    assert unpaired(request_of(messages).conversation.messages).count == 1
    assert not unpaired(request_of([user("go"), {"role": "assistant", "content": "done"}]).conversation.messages)
