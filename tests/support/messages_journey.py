"""A model server of the Messages API as a journey's upstream, and an agent that works with it.

Rule: the server refuses in the API's words what is not valid, and what is over its window, really tokenised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import Send

from support import scripted_upstream
from support.agent_model import AgentModel
from support.journey import Received, World

PATH = "/messages"
MARK = {"type": "ephemeral"}
Messages = list[dict[str, Any]]
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "bash")]


@dataclass
class MessagesServer:
    """`build(answer=…)`: what is asked is answered by a model that works step by step."""

    model: AgentModel = field(default_factory=lambda: AgentModel(steps=1_000))

    async def __call__(self, request: Received, send: Send) -> bool:
        received = scripted_upstream.Request(b"", list(request.headers.items()), request.body)
        answer = self.model.answer("POST", "/v1/messages", received)
        headers = [(b"content-type", answer.content_type.encode())]
        headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        pieces = [answer.body]
        if answer.content_type.startswith("text/event-stream"):
            pieces = [event + b"\n\n" for event in answer.body.split(b"\n\n")[:-1]]
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return True


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
