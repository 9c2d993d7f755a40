"""Conversations of chat completions as the Responses API has them, and back.

Rule: translated there and back, a conversation is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def request_as_responses(body: Mapping[str, Any]) -> Json:
    """A chat request, in the order in which clients write it."""
    made: Json = {"model": body.get("model"), "input": items_of(body["messages"]), "store": False}
    if body.get("tools"):
        made["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    return made


def request_as_chat(body: Mapping[str, Any]) -> Json:
    made: Json = {"model": body.get("model"), "messages": messages_of(body["input"])}
    if body.get("tools"):
        tools = ({name: value for name, value in tool.items() if name != "type"} for tool in body["tools"])
        made["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return made


def items_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    for number, message in enumerate(messages):
        content = message.get("content")
        if message["role"] == "tool":
            output = _parts(content, "input_text")
            found.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
        elif message["role"] != "assistant":
            found.append({"role": message["role"], "content": _parts(content, "input_text")})
        else:
            found += _said(number, message)
    return found


def _said(number: int, message: Mapping[str, Any]) -> list[Json]:
    found: list[Json] = []
    if thought := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thought}]
        found.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content})
    if message.get("content"):
        content = _parts(message["content"], "output_text")
        content = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        found.append({"type": "message", "role": "assistant", "content": content})
    calls = message.get("tool_calls") or ()
    found += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
    return found or [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}]


def _parts(content: Any, kind: str) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": kind, "text": part["text"]}
        if "text" in part
        else {"type": "input_image", "image_url": part["image_url"]["url"]}
        for part in content
    ]


def messages_of(items: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    is_open = False
    for item in items:
        kind = item.get("type", "message")
        is_own = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if is_own and (not is_open or (kind != "function_call" and "tool_calls" in found[-1])):
            found.append({"role": "assistant", "content": None})
        is_open = is_own
        match kind:
            case "reasoning":
                found[-1]["reasoning_content"] = item["content"][0]["text"]
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                found[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                found.append({"role": "tool", "tool_call_id": item["call_id"], "content": _back(item["output"])})
            case _ if is_own:
                found[-1]["content"] = "".join(part["text"] for part in item["content"])
            case _:
                found.append({"role": item["role"], "content": _back(item["content"])})
    return found


def _back(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": part["text"]}
        if "text" in part
        else {"type": "image_url", "image_url": {"url": part["image_url"]}}
        for part in content
    ]
