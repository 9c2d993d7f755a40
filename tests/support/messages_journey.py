"""An agent that works over the Messages API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from support.journey import World

PATH = "/messages"
MARK = {"type": "ephemeral"}
Messages = list[dict[str, Any]]
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "bash")]


def request(messages: object, **members: Any) -> dict[str, Any]:
    """As Claude Code writes it: messages before system and tools, one mark for a cache on the newest block."""
    system = [{"type": "text", "text": "You are careful.", "cache_control": MARK}]
    thinking = {"thinking": {"type": "adaptive"}}
    return {
        "model": "m",
        "messages": messages,
        "system": system,
        "tools": TOOLS,
        "max_tokens": 500,
        **thinking,
    } | members


def marked(messages: Messages) -> Messages:
    """With the mark on the last block."""
    *before, last = messages
    blocks = [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
    return [*before, {**last, "content": [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]}]


def message_of(text: str) -> dict[str, Any]:
    """The message that a stream makes, put together as clients do."""
    message: dict[str, Any] = {}
    written: dict[int, str] = {}
    for line in text.splitlines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        match event.get("type"):
            case "message_start":
                assert not message, "one answer is one message"
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"]), "blocks are numbered without gaps"
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                if delta["type"] == "input_json_delta":
                    written[event["index"]] = written.get(event["index"], "") + delta["partial_json"]
                    block["input"] = {"": written[event["index"]]}
                else:
                    name = delta["type"].removesuffix("_delta")
                    block[name] = block.get(name, "") + delta[name]
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case "error":
                raise AssertionError(event)
    assert message["stop_reason"], text
    for index, found in written.items():
        message["content"][index]["input"] = json.loads(found)
    return message


def ask(world: World, body: Mapping[str, Any], proxy: int = 0) -> httpx.Response:
    """Send a request, with the key where this API has it."""
    headers = {"x_api_key": "sk-ant-canary", "anthropic_version": "2023-06-01", "anthropic_beta": "a,b"}
    return world.ask(dict(body), path=PATH, proxy=proxy, **headers)


def said_by(world: World, body: Mapping[str, Any], proxy: int = 0) -> dict[str, Any]:
    """The model's message."""
    answer = ask(world, body, proxy)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = message_of(answer.text) if body.get("stream") else answer.json()
    return found


def results_of(content: Sequence[Mapping[str, Any]], text: str) -> Messages:
    """A result for each call, the last one first."""
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    return [{"type": "tool_result", "tool_use_id": name, "content": text} for name in reversed(calls)]


def work(
    world: World, turns: int, text: Callable[[int], str], start: Messages | None = None, **members: Any
) -> Messages:
    """An agent that answers every call with `text(turn)`; its messages."""
    messages = list(start or [{"role": "user", "content": "Read all."}])
    for turn in range(turns):
        reply = said_by(world, request(marked(messages), **members))
        results = results_of(reply["content"], text(turn))
        messages = [*messages, {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": results}]
    return messages
