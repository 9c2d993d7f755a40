"""Answers of `/v1/responses`: whole, as events, and every form in which a request is refused for its length.

Rule: shapes are those of openai 3.54.0's types; each refusal was seen, or is in a source that is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support import valid_responses
from support.upstream.replies import ON_EVERY_API, Answer, Refusal, Reply, Usage, as_events, as_json, pieces, tokens

PATH = "/v1/responses"


def items_of(body: Mapping[str, Any]) -> list[Any]:
    return list(valid_responses.items_of(body))


def counted(body: Mapping[str, Any]) -> int:
    """Tokens of a request: input, instructions and tools."""
    return tokens([body.get("input"), body.get("instructions"), body.get("tools")])


def tools_of(body: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Names and namespaces, also of tools that come as an item of the input."""
    listed = list(body.get("tools") or ())
    for item in items_of(body):
        listed += item.get("tools") or () if item.get("type") == "additional_tools" else ()
    found: list[tuple[str, str | None]] = []
    for tool in listed:
        if tool.get("type") == "namespace":
            found += [(inner.get("name", ""), tool.get("name")) for inner in tool.get("tools") or ()]
        else:
            found.append((tool.get("name") or tool.get("type", ""), None))
    return found


def last_user(body: Mapping[str, Any]) -> str:
    """The newest words of the user."""
    for item in reversed(items_of(body)):
        if item.get("role") == "user":
            content = item.get("content")
            return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())
    return ""


def thinks(body: Mapping[str, Any]) -> bool:
    return "reasoning.encrypted_content" in (body.get("include") or ())


def output_of(reply: Reply, number: int, *, thinking: bool) -> list[dict[str, Any]]:
    """The items of an answer; `number` makes each id the only one of its kind."""
    if reply.content is not None:
        return list(reply.content)
    items: list[dict[str, Any]] = []
    if thinking and reply.thought:
        sealed = f"gAAAA{number:027d}=="
        items.append({"type": "reasoning", "id": f"rs_{number:024d}", "summary": [], "encrypted_content": sealed})
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        name = f"msg_{number:024d}"
        items.append({"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [part]})
    for index, call in enumerate(reply.calls):
        named = {"call_id": f"call_{number:020d}{index:04d}", "name": call.name, "status": "completed"}
        named |= {"namespace": call.namespace} if call.namespace else {}
        if isinstance(call.given, str):
            item = {"type": "custom_tool_call", "id": f"ctc_{number:020d}{index:04d}", **named, "input": call.given}
        else:
            written = json.dumps(call.given)
            item = {"type": "function_call", "id": f"fc_{number:020d}{index:04d}", **named, "arguments": written}
        items.append(item)
    return items


def answered(
    body: Mapping[str, Any], reply: Reply, usage: Usage | None, number: int
) -> tuple[Answer, list[dict[str, Any]]]:
    """The answer as the request wants it, and its output."""
    output = output_of(reply, number, thinking=thinks(body))
    response = _response(body, number, "completed", output, usage)
    return (as_events(_events(response)) if body.get("stream") else as_json(response)), output


def _response(
    body: Mapping[str, Any],
    number: int,
    status: str,
    output: Sequence[Mapping[str, Any]] = (),
    usage: Usage | None = None,
) -> dict[str, Any]:
    return {
        "id": f"resp_{number:024d}",
        "object": "response",
        "created_at": 1_700_000_000 + number,
        "status": status,
        "model": body.get("model"),
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "usage": usage
        and {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.reply,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.reply,
        },
    }


def _events(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    begun = dict(response) | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        opening, inner = _inner_events(item, at)
        events.append({"type": "response.output_item.added", "output_index": index, "item": opening})
        events += inner
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return _numbered([*events, {"type": "response.completed", "response": response}])


def _inner_events(item: Mapping[str, Any], at: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    opening = dict(item) | ({"status": "in_progress"} if "status" in item else {})
    match item["type"]:
        case "message":
            part, text = item["content"][0], item["content"][0]["text"]
            here = {**at, "content_index": 0}
            deltas = [{"type": "response.output_text.delta", **here, "delta": p, "logprobs": []} for p in pieces(text)]
            return opening | {"content": []}, [
                {"type": "response.content_part.added", **here, "part": dict(part) | {"text": ""}},
                *deltas,
                {"type": "response.output_text.done", **here, "text": text, "logprobs": []},
                {"type": "response.content_part.done", **here, "part": part},
            ]
        case "function_call":
            kind, name, text = "response.function_call_arguments", "arguments", item["arguments"]
        case "custom_tool_call":
            kind, name, text = "response.custom_tool_call_input", "input", item["input"]
        case _:
            return opening, []
    deltas = [{"type": f"{kind}.delta", **at, "delta": piece} for piece in pieces(text)]
    done = {"type": f"{kind}.done", **at, name: text, "name": item["name"]}
    return opening | {name: ""}, [*deltas, done]


def _numbered(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def error(message: str, status: int = 400, code: str | None = None, **members: Any) -> Answer:
    """In OpenAI's envelope."""
    details = {"message": message, "type": "invalid_request_error", "param": "input", "code": code, **members}
    return as_json({"error": details}, status)


EXCEEDED = "context_length_exceeded"
WORDS = "Your input exceeds the context window of this model. Please adjust your input and try again."


_REFUSED = 10**9
"""Numbers of refusals begin here, so that none has the id of an answer."""


def _opening(body: Mapping[str, Any], sent: int) -> list[dict[str, Any]]:
    begun = _response(body, _REFUSED + sent, "in_progress")
    return [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]


def _failed(body: Mapping[str, Any], sent: int, code: str) -> dict[str, Any]:
    failed = _response(body, _REFUSED + sent, "failed") | {"error": {"code": code, "message": WORDS}}
    return {"type": "response.failed", "response": failed}


def _flat(body: Mapping[str, Any], sent: int, _: int) -> Answer:
    reported = {"type": "error", "code": EXCEEDED, "message": WORDS, "param": "input"}
    return as_events(_numbered([*_opening(body, sent), reported, _failed(body, sent, EXCEEDED)]))


def _nested(body: Mapping[str, Any], sent: int, _: int) -> Answer:
    details = {"type": "invalid_request_error", "code": EXCEEDED, "message": WORDS, "param": "input"}
    reported = {"type": "error", "error": details}
    return as_events(_numbered([*_opening(body, sent), reported, _failed(body, sent, EXCEEDED)]))


def _only_failed(code: str) -> Refusal:
    return lambda body, sent, _: as_events(_numbered([*_opening(body, sent), _failed(body, sent, code)]))


def _incomplete(body: Mapping[str, Any], sent: int, _: int) -> Answer:
    ended = _response(body, _REFUSED + sent, "incomplete", (), Usage(sent, 0, 0))
    ended |= {"incomplete_details": {"reason": "max_output_tokens"}}
    if not body.get("stream"):
        return as_json(ended)
    return as_events(_numbered([*_opening(body, sent), {"type": "response.incomplete", "response": ended}]))


def _vllm(_: Mapping[str, Any], sent: int, limit: int) -> Answer:
    text = (
        f"This model's maximum context length is {limit} tokens. However, your request has {sent} input tokens. Please "
        "reduce the length of the input messages."
    )
    return as_json({"error": {"message": text, "type": "BadRequestError", "param": "input", "code": 400}}, 400)


def _openrouter(_: Mapping[str, Any], sent: int, limit: int) -> Answer:
    text = f"This endpoint's maximum context length is {limit} tokens. However, you requested about {sent} tokens."
    return as_json({"error": {"code": "invalid_prompt", "message": text}, "error_type": EXCEEDED}, 400)


def _llama_cpp(_: Mapping[str, Any], sent: int, limit: int) -> Answer:
    text = f"request ({sent} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    numbers = {"n_prompt_tokens": sent, "n_ctx": limit}
    return as_json({"error": {"code": 400, "message": text, "type": "exceed_context_size_error", **numbers}}, 400)


REFUSALS: dict[str, Refusal] = {
    "openai": lambda _, s, limit: error(WORDS, code=EXCEEDED),
    "openai, with numbers": lambda _, sent, limit: error(
        f"This model's maximum context length is {limit} tokens. However, your input resulted in {sent} tokens. Please "
        "reduce the length of the input.",
        code=EXCEEDED,
    ),
    "error event, flat": _flat,
    "error event, nested": _nested,
    "failed event": _only_failed(EXCEEDED),
    "context_too_large": _only_failed("context_too_large"),
    "openrouter": _openrouter,
    "vllm": _vllm,
    "llama.cpp": _llama_cpp,
    "ollama": lambda _, s, limit: error(
        "continued conversation is too large; compact it or resend a shorter history", 413
    ),
    "incomplete": _incomplete,
    **ON_EVERY_API,
}
"""By who says it: codex#8632, CLIProxyAPI codex_executor_terminal.go, openrouter.ai/docs error-handling,
vllm/entrypoints/openai/responses/serving.py, ggml-org/llama.cpp tools/server, ollama middleware/responses_history.go;
`incomplete` as NeMo-Gym."""
IN_STREAM: tuple[str, ...] = ("error event, flat", "error event, nested", "failed event", "context_too_large")
"""Forms that only a stream can take; a whole answer is refused in the vendor's own form."""


class Responses:
    """OpenAI's newer API."""

    name, path, member = "responses", "/v1/responses", "input"
    refusals: Mapping[str, Refusal] = REFUSALS
    in_streams: Sequence[str] = ("openai", *IN_STREAM)
    also: Sequence[str] = ("/v1/responses/compact",)
    parse = staticmethod(json.loads)
    counted_at, held_by = "/v1/responses/input_tokens", "previous_response_id"
    items, count = staticmethod(items_of), staticmethod(counted)
    tools, last_user = staticmethod(tools_of), staticmethod(last_user)
    answered = staticmethod(answered)

    def complaints(self, body: dict[str, Any], issued: Sequence[Sequence[Any]] = ()) -> Sequence[str]:
        return valid_responses.complaints(body, issued)

    def reply_limit(self, body: Mapping[str, Any]) -> int:
        return int(body.get("max_output_tokens") or 0)

    def is_stream(self, body: Mapping[str, Any]) -> bool:
        return bool(body.get("stream"))

    def error(self, message: str, status: int = 400, **members: Any) -> Answer:
        return error(message, status, **members)

    def error_event(self, message: str, **members: Any) -> bytes:
        reported = {"type": "error", "code": None, "message": message, "param": None, **members}
        return as_events([reported]).body

    def counted(self, tokens: int) -> Answer:
        return as_json({"object": "response.input_tokens", "input_tokens": tokens})
