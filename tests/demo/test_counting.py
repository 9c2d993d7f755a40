from __future__ import annotations

import json

import httpx
from support.demo_server import HELLO, TOO_LONG, ask

from proxy.demo import counting

HELLO_TOKENS = 3 + 3 + 1 + 2
"""Priming, frame, `user`, `hello world`."""


def test_usage_counts_the_text_and_the_frame_of_each_message(server: httpx.Client) -> None:
    answer = ask(server, HELLO).json()
    assert answer["usage"]["prompt_tokens"] == HELLO_TOKENS
    spoken = answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == counting.count(spoken) + counting.count("assistant")
    assert answer["usage"]["total_tokens"] == HELLO_TOKENS + answer["usage"]["completion_tokens"]


def test_tool_definitions_count_and_are_named_in_the_refusal(server: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    counted = ask(server, HELLO, tools=tools).json()["usage"]["prompt_tokens"]
    assert counted == HELLO_TOKENS + counting.count(json.dumps(tools))
    refused = ask(server, TOO_LONG, tools=tools).json()["error"]["message"]
    assert f" in the messages, {counting.count(json.dumps(tools))} in the functions)." in refused


def test_an_image_is_counted_by_its_price_and_not_by_its_bytes(server: httpx.Client) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 5000}}
    messages = [{"role": "user", "content": [image]}]
    refused = ask(server, messages).json()["error"]["message"]
    assert f"resulted in {counting.IMAGE_TOKENS + HELLO_TOKENS - 2} tokens" in refused
