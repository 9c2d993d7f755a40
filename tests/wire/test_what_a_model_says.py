"""A reply is one, whatever words it holds: a model reads logs, and writes about errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.overflow import Sent, VerdictKind
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA, OLLAMA_PROMPTS
from proxy.wire.responses import RESPONSES

WORDS = [
    "error",
    '"error": {"message": "prompt is too long", "code": "context_length_exceeded"}',
    "This model's maximum context length is 8192 tokens. However, you requested 9712 tokens.",
    '{"detail": "context_length_exceeded"}',
    "event: error\ndata: {}\n\n",
]
SENT = Sent(9_000, 36_000, 8_192, has_user_text=True)


def chat(words: str) -> dict[str, Any]:
    call = {"id": words, "type": "function", "function": {"name": words, "arguments": json.dumps({"error": words})}}
    message = {"role": "assistant", "content": words, "reasoning_content": words, "refusal": words}
    choice = {"index": 0, "message": message | {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    return {"id": words, "object": "chat.completion", "model": words, "choices": [choice]}


def chat_events(words: str) -> list[dict[str, Any]]:
    chunk = chat(words)
    delta = chunk["choices"][0]["message"]
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    choices = [first, {"index": 0, "delta": delta, "finish_reason": None}]
    return [chunk | {"object": "chat.completion.chunk", "choices": [choice]} for choice in choices]


def blocks(words: str) -> list[dict[str, Any]]:
    failed = {"type": "web_search_tool_result_error", "error_code": words}
    return [
        {"type": "thinking", "thinking": words, "signature": words},
        {"type": "text", "text": words},
        {"type": "tool_use", "id": words, "name": words, "input": {"error": words, "type": "error"}},
        {"type": "web_search_tool_result", "tool_use_id": words, "content": failed},
    ]


def message(words: str) -> dict[str, Any]:
    counts = {"input_tokens": 9, "output_tokens": 9}
    return {"id": words, "type": "message", "role": "assistant", "model": words, "content": [], "usage": counts}


def messages(words: str) -> dict[str, Any]:
    return message(words) | {"content": blocks(words), "stop_reason": "tool_use"}


def messages_events(words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "message_start", "message": message(words)}]
    for index, block in enumerate(blocks(words)):
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        found.append({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": words}})
    return found


def items(words: str) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": words, "annotations": [{"type": "error", "message": words}]}
    refusal = {"type": "refusal", "refusal": words}
    return [
        {"type": "reasoning", "id": words, "summary": [{"type": "summary_text", "text": words}]},
        {"type": "message", "id": words, "role": "assistant", "content": [part, refusal], "status": "completed"},
        {
            "type": "function_call",
            "id": words,
            "call_id": words,
            "name": words,
            "arguments": json.dumps({"error": words}),
        },
        {"type": "mcp_call", "id": words, "name": words, "arguments": words, "error": words, "status": "failed"},
    ]


def response(words: str) -> dict[str, Any]:
    asked = {"instructions": words, "metadata": {"error": words}, "tools": [{"type": "function", "name": words}]}
    return {"id": words, "object": "response", "status": "in_progress", "error": None, "output": [], **asked}


def responses(words: str) -> dict[str, Any]:
    return response(words) | {"output": items(words), "status": "completed"}


def responses_events(words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "response.created", "response": response(words)}]
    for index, item in enumerate(items(words)):
        found.append({"type": "response.output_item.added", "output_index": index, "item": item})
        found.append({"type": "response.output_text.delta", "item_id": words, "output_index": index, "delta": words})
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    found.append({"type": "response.mcp_list_tools.failed", "output_index": 9, "item_id": words})
    return found


def line(words: str) -> dict[str, Any]:
    call = {"function": {"name": words, "arguments": {"error": words, "detail": words}}}
    spoken = {"role": "assistant", "content": words, "thinking": words, "tool_calls": [call]}
    return {"model": words, "created_at": "2026-01-01T00:00:00Z", "message": spoken, "done": False}


def ollama(words: str) -> dict[str, Any]:
    return line(words) | {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 9}


def prompt(words: str) -> dict[str, Any]:
    return {"model": words, "response": words, "thinking": words, "done": False}


def sse(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        if "type" in event
        else f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    )


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


REPLIES = {
    "chat": (CHAT_COMPLETIONS, lambda words: json.dumps(chat(words)).encode()),
    "chat, streamed": (CHAT_COMPLETIONS, lambda words: sse(chat_events(words))),
    "messages": (MESSAGES, lambda words: json.dumps(messages(words)).encode()),
    "messages, streamed": (MESSAGES, lambda words: sse(messages_events(words))),
    "responses": (RESPONSES, lambda words: json.dumps(responses(words)).encode()),
    "responses, streamed": (RESPONSES, lambda words: sse(responses_events(words))),
    "ollama": (OLLAMA, lambda words: json.dumps(ollama(words)).encode()),
    "ollama, streamed": (OLLAMA, lambda words: lines(line(words), ollama(words))),
    "prompts": (OLLAMA_PROMPTS, lambda words: json.dumps(prompt(words) | {"done": True}).encode()),
    "prompts, streamed": (OLLAMA_PROMPTS, lambda words: lines(prompt(words), prompt(words))),
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", REPLIES)
def test_a_success_is_judged_by_its_structure_whatever_words_it_holds(name: str, words: str) -> None:
    wire, reply = REPLIES[name]
    for body in (reply(words), reply(words).replace(b": ", b":")):
        verdict = wire.judged(200, [], body, sent=SENT, request=b"{}")
        assert verdict.kind is VerdictKind.ACCEPTED, verdict


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_one_wherever_the_network_cuts_its_beginning(name: str, words: str) -> None:
    wire, reply = REPLIES[name]
    body = reply(words)
    for end in range(len(body) // 3, len(body), 37):
        verdict = wire.judged(200, [], body[:end], sent=SENT, request=b"{}")
        assert verdict.kind is VerdictKind.ACCEPTED, (body[:end], verdict)
