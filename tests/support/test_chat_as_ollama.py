from __future__ import annotations

from support.chat_as_ollama import request_as_ollama
from support.test_chat_as_messages import CHAT
from support.upstream.ollama_server import OllamaServer


def test_results_cite_their_calls_only_where_their_order_is_another():
    as_called = request_as_ollama(CHAT)["messages"]
    assert not any("tool_call_id" in one for one in as_called)
    assert OllamaServer().chat({"model": "m", "messages": as_called[:-1]})
    task, call, first, second = CHAT["messages"][1:5]
    turned = request_as_ollama({**CHAT, "messages": [task, call, second, first]})["messages"]
    assert [one.get("tool_call_id") for one in turned] == [None, None, "call_1", None]
