"""Conversations of chat completions as the Messages API has them, and back.

Rule: translated there and back, a conversation is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
_SIGNED = "EuYB=="
_written: dict[str, str] = {}
"""What was given to a call, as JSON → as its model wrote it."""


def request_as_messages(body: Mapping[str, Any]) -> Json:
    """A chat request, in the order in which Claude Code writes it. System texts at its head are `system`."""
    messages = list(body["messages"])
    count = next((at for at, one in enumerate(messages) if one["role"] not in ("system", "developer")), len(messages))
    made: Json = {"model": body.get("model"), "messages": messages_of(messages[count:])}
    if count:
        made["system"] = [{"type": "text", "text": text_of(one["content"])} for one in messages[:count]]
    if body.get("tools"):
        made["tools"] = [_tool(tool["function"]) for tool in body["tools"]]
    return made | {"max_tokens": 4_096}


def _tool(function: Mapping[str, Any]) -> Json:
    members = {name: found for name, found in function.items() if name != "parameters"}
    return {**members, "input_schema": function.get("parameters") or {"type": "object"}}


def request_as_chat(body: Mapping[str, Any]) -> Json:
    head = [{"role": "system", "content": block["text"]} for block in body.get("system") or ()]
    made: Json = {"model": body.get("model"), "messages": [*head, *chat_of(body["messages"])]}
    if body.get("tools"):
        tools = ({**tool, "parameters": tool["input_schema"]} for tool in body["tools"])
        kept = ({name: value for name, value in tool.items() if name != "input_schema"} for tool in tools)
        made["tools"] = [{"type": "function", "function": tool} for tool in kept]
    return made


def messages_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Results of one batch stand in one message."""
    found: list[Json] = []
    is_batch = False
    for message in messages:
        if message["role"] == "tool":
            content = _blocks(message.get("content"))
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            if is_batch:
                found[-1]["content"].append(result)
            else:
                found.append({"role": "user", "content": [result]})
        elif message["role"] == "assistant":
            found.append({"role": "assistant", "content": _said(message)})
        else:
            found.append({"role": message["role"], "content": _blocks(message.get("content"))})
        is_batch = message["role"] == "tool"
    return found


def _said(message: Mapping[str, Any]) -> list[Json]:
    blocks: list[Json] = []
    if thought := message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": thought, "signature": _SIGNED})
    if text := text_of(message.get("content")):
        blocks.append({"type": "text", "text": text})
    for call in message.get("tool_calls") or ():
        written = call["function"].get("arguments") or ""
        try:
            given = json.loads(written)
        except ValueError:
            given = written
        given = given if isinstance(given, dict) else {"text": written}
        _written[json.dumps(given)] = written
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given})
    return blocks or [{"type": "text", "text": ""}]


def _blocks(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [{"type": "text", "text": part["text"]} if "text" in part else _image(part) for part in content]


def _image(part: Mapping[str, Any]) -> Json:
    head, _, data = part["image_url"]["url"].partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source if data else {"type": "url", "url": head}}


def text_of(content: Any) -> str:
    """The text of a content."""
    if not isinstance(content, list):
        return content or ""
    return "\n".join(part["text"] for part in content if "text" in part)


def chat_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant":
            found.append(_chat_said(content))
            continue
        results = [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []
        found += [
            {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _back(block["content"])}
            for block in results
        ]
        rest = content if not results else [block for block in content if block["type"] != "tool_result"]
        if rest or not results:
            found.append({"role": message["role"], "content": _back(rest)})
    return found


def _chat_said(blocks: Sequence[Mapping[str, Any]]) -> Json:
    found: Json = {"role": "assistant", "content": None}
    for block in blocks:
        match block["type"]:
            case "thinking":
                found["reasoning_content"] = block["thinking"]
            case "text":
                found["content"] = block["text"] or None
            case "tool_use":
                given = json.dumps(block["input"])
                function = {"name": block["name"], "arguments": _written.get(given, given)}
                found.setdefault("tool_calls", []).append({"id": block["id"], "type": "function", "function": function})
    return found


def _back(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": block["text"]}
        if block["type"] == "text"
        else {"type": "image_url", "image_url": {"url": _url(block["source"])}}
        for block in content
    ]


def _url(source: Mapping[str, Any]) -> str:
    return source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
