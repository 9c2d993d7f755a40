from __future__ import annotations

import json

from proxy.core.retrieval_tool.hidden_calls import HISTORY_BYTES
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.protocol import repaired
from proxy.wire.responses.wire import RESPONSES

CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ORPHAN = {"role": "tool", "tool_call_id": "c2", "content": "of no call"}
ASKED = {"role": "user", "content": "go on"}


def test_a_result_that_lacks_is_added_and_one_of_no_call_is_left_out():
    request = CHAT_COMPLETIONS.parse(json.dumps({"messages": [ASKED, CALLED, ORPHAN, ASKED]}).encode())
    messages = repaired(CHAT_COMPLETIONS, request, "", "it was interrupted").conversation.messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user"]
    assert (messages[2].answers, messages[2].text()) == ("c1", "it was interrupted")
    assert messages[:2] == request.conversation.messages[:2]
    assert messages[3] == request.conversation.messages[3]


def test_a_call_that_only_the_upstream_has_is_answered_by_the_id_in_its_refusal():
    body = {"model": "m", "previous_response_id": "resp_1", "input": [{"role": "user", "content": "go on"}]}
    request = RESPONSES.parse(json.dumps(body).encode())
    healed = repaired(RESPONSES, request, "No tool output found for function call call_7.", "it was interrupted")
    first = json.loads(healed.body)["input"][0]
    assert (first["type"], first["call_id"], first["output"]) == (
        "function_call_output",
        "call_7",
        "it was interrupted",
    )
    assert (healed.healed, len(healed.history)) == ((0,), HISTORY_BYTES + len(request.history))
    assert json.loads(healed.body)["previous_response_id"] == "resp_1"


def test_a_second_result_of_one_call_stays_only_where_the_wire_allows_several():
    again = {"role": "tool", "tool_call_id": "c1", "content": "once more"}
    once = {"role": "tool", "tool_call_id": "c1", "content": "first"}
    chat = CHAT_COMPLETIONS.parse(json.dumps({"messages": [ASKED, CALLED, once, again, ORPHAN]}).encode())
    messages = repaired(CHAT_COMPLETIONS, chat, "", "it was interrupted").conversation.messages
    assert [message.text() for message in messages if message.role == "tool"] == ["first"]

    items = [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "first"},
        {"type": "function_call_output", "call_id": "c1", "output": "once more"},
        {"type": "function_call_output", "call_id": "c2", "output": "of no call"},
    ]
    responses = RESPONSES.parse(json.dumps({"input": items}).encode())
    messages = repaired(RESPONSES, responses, "", "it was interrupted").conversation.messages
    assert messages == responses.conversation.messages[:3]
