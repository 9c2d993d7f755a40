from __future__ import annotations

import json
from typing import Any

import httpx
from support.demo_server import HELLO, ask

from proxy.demo import counting


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_says_what_the_json_answer_says(server: httpx.Client) -> None:
    whole = ask(server, HELLO).json()
    events = events_of(ask(server, HELLO, stream=True, stream_options={"include_usage": True}))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_no_usage_unless_it_is_asked_for(server: httpx.Client) -> None:
    assert all("usage" not in event for event in events_of(ask(server, HELLO, stream=True)))


def test_a_reply_that_may_not_be_so_long_ends_with_length(server: httpx.Client) -> None:
    choice = ask(server, HELLO, max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert 0 < counting.count(choice["message"]["content"]) <= 3
