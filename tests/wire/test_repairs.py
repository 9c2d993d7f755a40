from __future__ import annotations

import json

from proxy.core.retrieval_tool.hidden_calls import HISTORY_BYTES
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.repairs import repaired
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
