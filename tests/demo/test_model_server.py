"""The embedded model server, over real sockets."""

import json

from support.demo_server import HELLO, TOO_LONG, WINDOW, ask

from proxy.demo import IMAGE_TOKENS, count, prompt_tokens


def words_of_length(tokens):
    """A conversation of exactly so many tokens."""
    messages = [{"role": "user", "content": " hello" * (tokens - 7)}]
    assert prompt_tokens(messages) == tokens
    return messages


def test_what_is_over_the_window_is_refused_in_openais_words(server):
    tokens = prompt_tokens(TOO_LONG)
    refused = ask(server, TOO_LONG)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "messages")
    assert error["code"] == "context_length_exceeded"
    words = f"maximum context length is 200 tokens. However, your messages resulted in {tokens} tokens. Please"
    assert error["message"] == f"This model's {words} reduce the length of the messages."


def test_the_last_token_of_the_window_is_the_replys(server):
    assert ask(server, words_of_length(WINDOW - 1)).status_code == 200
    assert ask(server, words_of_length(WINDOW)).status_code == 400


HELLO_TOKENS = 3 + 3 + 1 + 2
"""Priming, frame, `user`, `hello world`."""


def test_usage_counts_the_text_and_the_frame_of_each_message(server):
    answer = ask(server, HELLO).json()
    assert answer["usage"]["prompt_tokens"] == HELLO_TOKENS
    spoken = answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == count(spoken) + count("assistant")
    assert answer["usage"]["total_tokens"] == HELLO_TOKENS + answer["usage"]["completion_tokens"]


def test_tool_definitions_count_and_are_named_in_the_refusal(server):
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    counted = ask(server, HELLO, tools=tools).json()["usage"]["prompt_tokens"]
    assert counted == HELLO_TOKENS + count(json.dumps(tools))
    refused = ask(server, TOO_LONG, tools=tools).json()["error"]["message"]
    assert f" in the messages, {count(json.dumps(tools))} in the functions)." in refused


def test_an_image_is_counted_by_its_price_and_not_by_its_bytes(server):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 5000}}
    messages = [{"role": "user", "content": [image]}]
    refused = ask(server, messages).json()["error"]["message"]
    assert f"resulted in {IMAGE_TOKENS + HELLO_TOKENS - 2} tokens" in refused
