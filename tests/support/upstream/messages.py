"""Answers of `/v1/messages`: whole, as events, and every form in which a request is refused for its length.

Rule: shapes are those of anthropic 2.12.0's types; each refusal was seen, or is in a source that is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.core.overflow import refused_twice
from support import valid_messages
from support.upstream.replies import ON_EVERY_API, Answer, Refusal, Reply, Usage, as_events, as_json, pieces, tokens

PATH = "/v1/messages"


def items_of(body: Mapping[str, Any]) -> list[Any]:
    return list(body.get("messages") or ())


def counted(body: Mapping[str, Any]) -> int:
    """Tokens of a request: messages, system text and tools."""
    return tokens([body.get("messages"), body.get("system"), body.get("tools")])


def tools_of(body: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(tool.get("name", ""), None) for tool in body.get("tools") or ()]


def last_user(body: Mapping[str, Any]) -> str:
    """The newest words of the user that are no result."""
    for message in reversed(items_of(body)):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        texts = [block.get("text", "") for block in blocks if block.get("type") == "text"]
        if message.get("role") == "user" and texts:
            return "\n".join(texts)
    return ""


def content_of(reply: Reply, number: int, thinking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of an answer; `number` makes each id the only one of its kind. `thinking`: as the request wants it."""
    if reply.content is not None:
        return list(reply.content)
    blocks: list[dict[str, Any]] = []
    if thinking.get("type") in ("enabled", "adaptive") and reply.thought:
        shown = "" if thinking.get("display") == "omitted" else reply.thought
        blocks.append({"type": "thinking", "thinking": shown, "signature": f"EuYB{number:024d}=="})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.calls):
        name = f"toolu_01{number:018d}{index:04d}"
        blocks.append({"type": "tool_use", "id": name, "name": call.name, "input": call.given})
    return blocks


def answered(
    body: Mapping[str, Any], reply: Reply, usage: Usage | None, number: int
) -> tuple[Answer, list[dict[str, Any]]]:
    """The answer as the request wants it, and its content."""
    content = content_of(reply, number, body.get("thinking") or {})
    usage = usage or Usage(0, 0, 0)  # the API has no answer without
    reason = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    message = _message(body, number, usage, content, reason)
    return (as_events(_events(message)) if body.get("stream") else as_json(message)), content


def _message(
    body: Mapping[str, Any], number: int, usage: Usage, content: Sequence[Mapping[str, Any]], stop_reason: str | None
) -> dict[str, Any]:
    fresh = min(3, usage.prompt - usage.cached)  # the API bills a few tokens behind the last breakpoint in full
    return {
        "id": f"msg_01{number:022d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": fresh,
            "cache_creation_input_tokens": usage.prompt - usage.cached - fresh,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.reply,
        },
    }


def _events(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    start = dict(message) | {"content": [], "stop_reason": None, "usage": message["usage"] | {"output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        opening, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opening})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    return [*events, {"type": "message_stop"}]


def _deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "thinking":
            words = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            return dict(block) | {"thinking": "", "signature": ""}, [
                *words,
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            written = pieces(json.dumps(block["input"]))
            return dict(block) | {"input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in written]
        case _:
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(block["text"])]


def error(message: str, status: int = 400, kind: str = "invalid_request_error", **members: Any) -> Answer:
    """In Anthropic's envelope."""
    content = {"type": "error", "error": {"type": kind, "message": message, **members}, "request_id": "req_011CScript"}
    return as_json(content, status, **{"request-id": "req_011CScript"})


def _openai(code: str | None) -> Refusal:
    def answer(_: Mapping[str, Any], tokens_sent: int, limit: int) -> Answer:
        text = (
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens_sent} "
            "tokens. Please reduce the length of the messages."
        )
        kind = "invalid_request_error"
        return as_json({"error": {"message": text, "type": kind, "param": "messages", "code": code}}, 400)

    return answer


def _ours(**members: Any) -> Refusal:
    """This project's own refusal after a second one of the upstream."""
    return lambda _, sent, __: error(refused_twice(sent, "en"), **members)


_REFUSED = 10**9
"""Numbers of refusals begin here, so that none has the id of an answer: clients merge what has one id."""


def _too_long(sent: int, limit: int) -> str:
    return f"prompt is too long: {sent} tokens > {limit} maximum"


def _in_stream(body: Mapping[str, Any], sent: int, limit: int) -> Answer:
    start = _message(body, _REFUSED + sent, Usage(sent, 0, 0), (), None)
    reported = {"type": "error", "error": {"type": "invalid_request_error", "message": _too_long(sent, limit)}}
    return as_events([{"type": "message_start", "message": start}, {"type": "ping"}, reported])


def _stopped(body: Mapping[str, Any], sent: int, _: int) -> Answer:
    message = _message(body, _REFUSED + sent, Usage(sent, 0, 0), (), "model_context_window_exceeded")
    return as_events(_events(message)) if body.get("stream") else as_json(message)


def _with_reply(body: Mapping[str, Any], sent: int, limit: int) -> Answer:
    reply = body.get("max_tokens", 0)
    return error(f"input length and `max_tokens` exceed context limit: {sent} + {reply} > {limit}")


REFUSALS: dict[str, Refusal] = {
    "anthropic": lambda _, sent, limit: error(_too_long(sent, limit)),
    "anthropic, with the reply": _with_reply,
    "413 context": lambda _, s, limit: error("Request size exceeds model context window", 413, "request_too_large"),
    "413 bytes": lambda _, s, limit: error("Request exceeds the maximum size", 413, "request_too_large"),
    "openai": _openai("context_length_exceeded"),
    "openai, no code": _openai(None),
    "vllm": lambda _, sent, limit: error(
        f"This model's maximum context length is {limit} tokens. However, your request has {sent} input tokens. Please "
        "reduce the length of the input messages.",
        kind="BadRequestError",
    ),
    "llama.cpp": lambda _, sent, limit: as_json(
        {
            "error": {
                "code": 400,
                "message": f"request ({sent} tokens) exceeds the available context size ({limit} tokens), try "
                "increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": sent,
                "n_ctx": limit,
            }
        },
        400,
    ),
    "capability": lambda _, s, limit: error("capability_rejected: prompt_too_long"),
    "ours, no code": _ours(),
    "ours": _ours(code="context_length_exceeded"),
    "in the stream": _in_stream,
    "stop reason": _stopped,
    "kimi": lambda _, s, limit: error(f"k3-{limit // 1024}k supports only {limit // 1024}K context.", 401, "error"),
    **ON_EVERY_API,
}
"""By who says it: platform.claude.com/docs/en/api/errors, vllm/entrypoints/anthropic/api_router.py, ggml-org/llama.cpp
tools/server; `in the stream` as CLIProxyAPI, which sends `message_start` before it knows."""
IN_STREAM: tuple[str, ...] = ("in the stream",)
"""Forms that only a stream can take; a whole answer is refused in the vendor's own form."""


class Messages:
    """Anthropic's API."""

    name, path, member = "messages", "/v1/messages", "messages"
    refusals: Mapping[str, Refusal] = REFUSALS
    in_streams: Sequence[str] = ("anthropic", *IN_STREAM)
    also: Sequence[str] = ()
    parse = staticmethod(json.loads)
    counted_at, held_by = "/v1/messages/count_tokens", ""
    items, count = staticmethod(items_of), staticmethod(counted)
    tools, last_user = staticmethod(tools_of), staticmethod(last_user)
    complaints, answered = staticmethod(valid_messages.complaints), staticmethod(answered)

    def reply_limit(self, body: Mapping[str, Any]) -> int:
        return int(body.get("max_tokens") or 0)

    def is_stream(self, body: Mapping[str, Any]) -> bool:
        return bool(body.get("stream"))

    def error(self, message: str, status: int = 400, **members: Any) -> Answer:
        kind = members.pop("type", "invalid_request_error" if status < 500 else "api_error")
        return error(message, status, kind, **members)

    def error_event(self, message: str, **members: Any) -> bytes:
        reported = {"type": "error", "error": {"type": "invalid_request_error", "message": message, **members}}
        return as_events([reported]).body

    def counted(self, tokens: int) -> Answer:
        return as_json({"input_tokens": tokens})
