from __future__ import annotations

from hypothesis import given

from support.chat_as_responses import items_of, messages_of
from support.strategies import SHORT_TEXTS, exchange, system, user
from support.valid_responses import complaints


@given(SHORT_TEXTS, SHORT_TEXTS)
def test_a_conversation_is_the_same_there_and_back(words, result):
    reply = {"role": "assistant", "content": words or "x", "reasoning_content": "hm"}
    chat = [system(), user(), *exchange([result, result]), reply, user([{"type": "text", "text": words}])]
    assert messages_of(items_of(chat)) == chat
    assert complaints({"model": "m", "input": items_of(chat)}) == []
