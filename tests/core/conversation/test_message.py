from __future__ import annotations

import json

from proxy.core.conversation.message import Conversation
from proxy.wire.chat_completions.message import ChatMessage


def read(**members):
    return ChatMessage.read(json.dumps(members).encode())


def test_a_conversation_is_a_sequence_of_its_messages():
    first, second = read(role="user", content="a"), read(role="assistant", content="b")
    conversation = Conversation((first, second))
    assert len(conversation) == 2
    assert list(conversation) == [first, second]
    assert conversation[1] is second
    assert conversation.index(second) == 1


def test_the_content_of_a_message_is_not_shown_by_repr():
    assert "SECRET" not in repr(Conversation((read(role="user", content="SECRET"),)))
