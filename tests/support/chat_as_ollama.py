"""Conversations of chat completions as Ollama's own API has them, and back: what is measured on one wire can be
measured on the other. `python -m support.chat_as_ollama --port P --upstream URL COMMAND…`: see `chat_as_responses`.

Rule: translated there and back, a conversation is the same. Results are written as most clients write them, with their
content alone, unless they are in another order than their calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.chat_as_messages import text_of
from support.chat_as_responses import stand_around

Json = dict[str, Any]
_written: dict[str, str] = {}
"""What was given to a call, as JSON → as its model wrote it."""
_parts: dict[str, Any] = {}
"""A content and its images, as JSON → the parts that it came as."""


def request_as_ollama(body: Mapping[str, Any]) -> Json:
    """A chat request, as ollama-python writes it."""
    made: Json = {"model": body.get("model"), "stream": False, "options": {}, "messages": messages_of(body["messages"])}
    return made | ({"tools": body["tools"]} if body.get("tools") else {})


def request_as_chat(body: Mapping[str, Any]) -> Json:
    made: Json = {"model": body.get("model"), "messages": chat_of(body["messages"])}
    return made | ({"tools": body["tools"]} if body.get("tools") else {})


def messages_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    waiting: list[str] = []
    for message in messages:
        made: Json = {"role": message["role"]}
        content = message.get("content")
        if content is not None:
            made["content"] = text_of(content)
        if images := _images(content):
            made["images"] = images
        if isinstance(content, list):
            _parts[json.dumps([made["content"], images])] = content
        if thought := message.get("reasoning_content"):
            made["thinking"] = thought
        if message["role"] == "tool":
            if waiting[:1] != [message["tool_call_id"]]:
                made["tool_call_id"] = message["tool_call_id"]
            waiting = [one for one in waiting if one != message["tool_call_id"]]
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if message.get("tool_calls"):
            made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
        found.append(made)
    return found


def _call(call: Mapping[str, Any]) -> Json:
    written = call["function"].get("arguments") or ""
    try:
        given = json.loads(written)
    except ValueError:
        given = written
    given = given if isinstance(given, dict) else {"text": written}
    _written[json.dumps(given)] = written
    return {"id": call["id"], "function": {"name": call["function"]["name"], "arguments": given}}


def _images(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else []
    return [part["image_url"]["url"].partition(";base64,")[2] for part in parts if "image_url" in part]


def chat_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    waiting: list[str] = []
    for message in messages:
        made: Json = {"role": message["role"], "content": _content(message)}
        if "thinking" in message:
            made["reasoning_content"] = message["thinking"]
        if message["role"] == "tool":
            made["tool_call_id"] = message.get("tool_call_id") or waiting[0]
            waiting.remove(made["tool_call_id"])
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if message.get("tool_calls"):
            made["tool_calls"] = [_chat_call(call) for call in message["tool_calls"]]
        found.append(made)
    return found


def _content(message: Mapping[str, Any]) -> Any:
    content, images = message.get("content"), message.get("images") or []
    if known := _parts.get(json.dumps([content, images])):
        return known
    if not images:
        return content
    shown = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}} for image in images]
    return [{"type": "text", "text": content}, *shown]


def _chat_call(call: Mapping[str, Any]) -> Json:
    given = json.dumps(call["function"]["arguments"])
    function = {"name": call["function"]["name"], "arguments": _written.get(given, given)}
    return {"id": call["id"], "type": "function", "function": function}


def reply_as_ollama(reply: Mapping[str, Any]) -> Json:
    usage = reply.get("usage") or {}
    (message,) = messages_of([reply["choices"][0]["message"]])
    counts = {"prompt_eval_count": usage.get("prompt_tokens", 0), "eval_count": usage.get("completion_tokens", 0)}
    end = {"done": True, "done_reason": "stop", **counts}
    return {"model": "m", "created_at": "2026-11-23T10:00:00Z", "message": {"content": "", **message}, **end}


def reply_as_chat(reply: Mapping[str, Any]) -> Json:
    choice = {"index": 0, "message": chat_of([reply["message"]])[0], "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


if __name__ == "__main__":
    stand_around("/api/chat", (request_as_ollama, request_as_chat), (reply_as_ollama, reply_as_chat))
