"""Conversations of chat completions as Ollama's own API has them.

Rule: results are written as most clients write them, with their content alone, unless they are in another order than
their calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.chat_as_messages import text_of

Json = dict[str, Any]


def request_as_ollama(body: Mapping[str, Any]) -> Json:
    """A chat request, as ollama-python writes it."""
    made: Json = {"model": body.get("model"), "stream": False, "options": {}, "messages": messages_of(body["messages"])}
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
    return {"id": call["id"], "function": {"name": call["function"]["name"], "arguments": given}}


def _images(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else []
    return [part["image_url"]["url"].partition(";base64,")[2] for part in parts if "image_url" in part]
