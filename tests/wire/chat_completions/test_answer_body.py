from __future__ import annotations

import json

from hypothesis import given
from support.answer_shapes import body, is_own, messages, read

from proxy.wire.chat_completions import AnswerBody


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
        assert len(reply.others) == len(reported.get("tool_calls", []))
