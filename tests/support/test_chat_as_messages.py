"""The translation with which the Messages API is measured loses nothing."""

from __future__ import annotations

from support.chat_as_messages import request_as_chat, request_as_messages
from support.valid_messages import complaints

CALLS = [
    {"id": f"call_{number}", "type": "function", "function": {"name": "sh", "arguments": '{ "c":  "ls" }'}}
    for number in range(2)
]
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be careful."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "I look.", "reasoning_content": "why", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_0", "content": "a"},
        {"role": "tool", "tool_call_id": "call_1", "content": "b"},
        {"role": "assistant", "content": "Done."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            ],
        },
    ],
    "tools": [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}],
}


def test_there_and_back_a_conversation_is_the_same_and_valid_between():
    between = request_as_messages(CHAT)
    assert request_as_chat(between) == CHAT
    assert complaints(between) == []
