"""The APIs of the bench: how a client of each writes the same request, and how the upstream writes the same response.

A request is made as a chat request and translated, so that all APIs carry the same words. A response names the checksum
of the request that it answers, `fp_…`, in a member that no proxy has a reason to change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TEXT = "The build fails because the cache returns a stale prefix; the handler has to read it once more."
"""In every response that is no stream."""

PROMPT_TOKENS = 0
"""Nothing is learned from it. A figure made up from the bytes would be wrong differently for each conversation, and
more so for a cut one; a proxy that believed it would move its cuts again and again."""

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Api:
    """One API."""

    name: str
    path: str
    request: Callable[[_Json], _Json]
    """A chat request → the same in this API, in the order in which its clients write the members."""
    response: Callable[[str], bytes]
    """A checksum → a response that is no stream, always of one length."""
    events: Callable[[str, int], list[bytes]]
    """A checksum and a number → that many writes with a word each, of about 130 bytes, and the end of the stream."""


def _chat_response(checksum: str) -> bytes:
    return (
        '{"id":"chatcmpl-bench","object":"chat.completion","created":1714000000,"model":"bench","choices":[{"index":0,'
        f'"message":{{"role":"assistant","content":"{TEXT}"}},"logprobs":null,"finish_reason":"stop"}}],'
        f'"usage":{{"prompt_tokens":{PROMPT_TOKENS},"completion_tokens":24,"total_tokens":24}},'
        f'"system_fingerprint":"{checksum}"}}'
    ).encode()


def _chat_events(checksum: str, count: int) -> list[bytes]:
    head = 'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1714000000,"model":"bench",'
    first = (
        f'{head}"system_fingerprint":"{checksum}",'
        '"choices":[{"index":0,"delta":{"role":"assistant","content":"word00000 "}}]}\n\n'
    )
    rest = (head + f'"choices":[{{"index":0,"delta":{{"content":"word{n:05d} "}}}}]}}\n\n' for n in range(1, count))
    return [first.encode(), *(event.encode() for event in rest), b"data: [DONE]\n\n"]


CHAT = Api("chat", "/v1/chat/completions", dict, _chat_response, _chat_events)


def _messages_request(chat: _Json) -> _Json:
    """In the order of Claude Code."""
    system = [{"type": "text", "text": one["content"]} for one in chat["messages"] if one["role"] == "system"]
    messages = [_message(one) for one in chat["messages"] if one["role"] != "system"]
    made: _Json = {"model": chat["model"], "messages": messages, "system": system}
    if "tools" in chat:
        made["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
    stream = {"stream": True} if chat.get("stream") else {}
    return made | {"max_tokens": chat.get("max_tokens", 4_096)} | stream


def _tool(function: _Json) -> _Json:
    described = {"name": function["name"], "description": function["description"]}
    return described | {"input_schema": function["parameters"]}


def _message(message: _Json) -> _Json:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    if message["role"] == "user":
        return {"role": "user", "content": message["content"]}
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": [{"type": "text", "text": message["content"]}, *calls]}


def _messages_response(checksum: str) -> bytes:
    return (
        f'{{"id":"msg_bench","type":"message","role":"assistant","model":"{checksum}","content":[{{"type":"text",'
        f'"text":"{TEXT}"}}],"stop_reason":"end_turn","stop_sequence":null,'
        f'"usage":{{"input_tokens":{PROMPT_TOKENS},"output_tokens":24}}}}'
    ).encode()


def _messages_events(checksum: str, count: int) -> list[bytes]:
    def delta(number: int) -> bytes:
        text_delta = f'{{"type":"text_delta","text":"word{number:05d} "}}'
        return _event("content_block_delta", f'"index":0,"delta":{text_delta}')

    begun = (
        f'"message":{{"id":"msg_bench","type":"message","role":"assistant","model":"{checksum}","content":[],'
        f'"stop_reason":null,"usage":{{"input_tokens":{PROMPT_TOKENS},"output_tokens":1}}}}'
    )
    head = _event("message_start", begun)
    head += _event("content_block_start", '"index":0,"content_block":{"type":"text","text":""}')
    end = _event("content_block_stop", '"index":0')
    end += _event("message_delta", '"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":24}')
    end += b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    return [head + delta(0), *map(delta, range(1, count)), end]


def _event(kind: str, members: str) -> bytes:
    return f'event: {kind}\ndata: {{"type":"{kind}",{members}}}\n\n'.encode()


MESSAGES = Api("messages", "/v1/messages", _messages_request, _messages_response, _messages_events)


def _responses_request(chat: _Json) -> _Json:
    """In the order of Codex."""
    stream = {"stream": True} if chat.get("stream") else {}
    made: _Json = {
        "model": chat["model"],
        **stream,
        "input": [item for one in chat["messages"] for item in _items(one)],
    }
    if "tools" in chat:
        made["tools"] = [{"type": "function", **tool["function"]} for tool in chat["tools"]]
    if "max_tokens" in chat:
        made["max_output_tokens"] = chat["max_tokens"]
    return made | {"store": False}


def _items(message: _Json) -> list[_Json]:
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    if message["role"] != "assistant":
        role = "developer" if message["role"] == "system" else "user"
        content = [{"type": "input_text", "text": message["content"]}]
        return [{"type": "message", "role": role, "content": content}]
    content = [{"type": "output_text", "text": message["content"]}]
    calls = [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in message["tool_calls"]]
    return [{"type": "message", "role": "assistant", "content": content}, *calls]


def _responses_body(checksum: str, output: str = "") -> str:
    status = "completed" if output else "in_progress"
    usage = f'{{"input_tokens":{PROMPT_TOKENS},"output_tokens":24,"total_tokens":24}}' if output else "null"
    return (
        f'{{"id":"resp_bench","object":"response","created_at":1714000000,"status":"{status}","error":null,'
        f'"incomplete_details":null,"model":"{checksum}","output":[{output}],"usage":{usage}}}'
    )


def _output_message(text: str) -> str:
    part = f'{{"type":"output_text","text":"{text}","annotations":[]}}'
    return f'{{"id":"msg_bench","type":"message","status":"completed","role":"assistant","content":[{part}]}}'


def _responses_response(checksum: str) -> bytes:
    return _responses_body(checksum, _output_message(TEXT)).encode()


def _responses_events(checksum: str, count: int) -> list[bytes]:
    def delta(number: int) -> bytes:
        return _event("response.output_text.delta", f'"sequence_number":{number},"delta":"word{number:05d} "')

    head = _event("response.created", f'"response":{_responses_body(checksum)}')
    item = '{"id":"msg_bench","type":"message","status":"in_progress","role":"assistant","content":[]}'
    head += _event("response.output_item.added", f'"output_index":0,"item":{item}')
    done = _output_message(f"{count} words")
    end = _event("response.output_item.done", f'"output_index":0,"item":{done}')
    end += _event("response.completed", f'"response":{_responses_body(checksum, done)}')
    return [head + delta(0), *map(delta, range(1, count)), end]


RESPONSES = Api("responses", "/v1/responses", _responses_request, _responses_response, _responses_events)

APIS = {api.path: api for api in (CHAT, MESSAGES, RESPONSES)}
"""APIs by path."""
