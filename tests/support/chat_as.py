"""Chat requests as the other APIs have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]


def request_as_messages(body: Mapping[str, Any]) -> Json:
    """In the order in which Claude Code writes it. System texts at the head are `system`."""
    messages = list(body["messages"])
    count = next((at for at, one in enumerate(messages) if one["role"] not in ("system", "developer")), len(messages))
    made: Json = {"model": body.get("model"), "messages": _turns(messages[count:])}
    if count:
        made["system"] = [{"type": "text", "text": _text_of(one["content"])} for one in messages[:count]]
    if body.get("tools"):
        made["tools"] = [_tool(tool["function"]) for tool in body["tools"]]
    return made | {"max_tokens": 4_096}


def _tool(function: Mapping[str, Any]) -> Json:
    members = {name: found for name, found in function.items() if name != "parameters"}
    return {**members, "input_schema": function.get("parameters") or {"type": "object"}}


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
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
            text = _text_of(message.get("content"))
            calls = [{"type": "tool_use", **_call(call)} for call in message.get("tool_calls") or ()]
            said = [{"type": "text", "text": text}] if text or not calls else []
            found.append({"role": "assistant", "content": [*said, *calls]})
        else:
            found.append({"role": message["role"], "content": _blocks(message.get("content"))})
        is_batch = message["role"] == "tool"
    return found


def _call(call: Mapping[str, Any]) -> Json:
    """With its arguments as an object, whatever the model wrote."""
    written = call["function"].get("arguments") or ""
    try:
        given = json.loads(written)
    except ValueError:
        given = written
    given = given if isinstance(given, dict) else {"text": written}
    return {"id": call["id"], "name": call["function"]["name"], "input": given}


def _blocks(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [{"type": "text", "text": part["text"]} if "text" in part else _image(part) for part in content]


def _image(part: Mapping[str, Any]) -> Json:
    head, _, data = part["image_url"]["url"].partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source if data else {"type": "url", "url": head}}


def _text_of(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    return "\n".join(part["text"] for part in content if "text" in part)


def request_as_responses(body: Mapping[str, Any]) -> Json:
    made: Json = {"model": body.get("model"), "input": _items(body["messages"]), "store": False}
    if body.get("tools"):
        made["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    return made


def _items(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        content = message.get("content")
        if message["role"] == "tool":
            output = _parts(content)
            found.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
        elif message["role"] != "assistant":
            found.append({"role": message["role"], "content": _parts(content)})
        else:
            calls = message.get("tool_calls") or ()
            said = [{"type": "output_text", "text": _text_of(content)}] if content or not calls else []
            found += [{"type": "message", "role": "assistant", "content": said}] if said else []
            found += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
    return found


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "input_text", "text": part["text"]}
        if "text" in part
        else {"type": "input_image", "image_url": part["image_url"]["url"]}
        for part in content
    ]


def request_as_ollama(body: Mapping[str, Any]) -> Json:
    """As ollama-python writes it; results have their content alone, as with most clients."""
    messages = [_message(message) for message in body["messages"]]
    made: Json = {"model": body.get("model"), "stream": False, "options": {}, "messages": messages}
    return made | ({"tools": body["tools"]} if body.get("tools") else {})


def _message(message: Mapping[str, Any]) -> Json:
    made: Json = {"role": message["role"]}
    content = message.get("content")
    if content is not None:
        made["content"] = _text_of(content)
    parts = content if isinstance(content, list) else []
    if images := [part["image_url"]["url"].partition(";base64,")[2] for part in parts if "image_url" in part]:
        made["images"] = images
    if calls := [_call(call) for call in message.get("tool_calls") or ()]:
        made["tool_calls"] = [
            {"id": one["id"], "function": {"name": one["name"], "arguments": one["input"]}} for one in calls
        ]
    return made


SPELLED: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Json]]]] = {
    "chat": ("/chat/completions", dict),
    "messages": ("/messages", request_as_messages),
    "responses": ("/responses", request_as_responses),
    "ollama": ("/api/chat", request_as_ollama),
}
"""The path of each API, and a chat request as it is written there."""
