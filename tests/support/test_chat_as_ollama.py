"""The translation with which Ollama's own API is measured loses nothing."""

from __future__ import annotations

from support.chat_as_ollama import request_as_chat, request_as_ollama
from support.test_chat_as_messages import CHAT
from support.upstream.ollama_server import OllamaServer


def test_there_and_back_a_conversation_is_the_same_and_valid_between():
    between = request_as_ollama(CHAT)
    assert request_as_chat(between) == CHAT
    assert not any("tool_call_id" in one for one in between["messages"])
    assert OllamaServer().chat({**between, "messages": between["messages"][:-1]})[0]["done"]


def test_results_in_another_order_than_their_calls_cite_them():
    task, call, first, second = CHAT["messages"][1:5]
    other = {**CHAT, "messages": [task, call, second, first]}
    between = request_as_ollama(other)
    assert request_as_chat(between) == other
    assert [one.get("tool_call_id") for one in between["messages"]] == [None, None, "call_1", None]
