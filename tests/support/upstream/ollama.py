"""Ollama as its source has it (0.33): decodes as Go does, renders and counts with one fixed counter, drops and cuts
without a word, loads and unloads models, answers in lines.

https://github.com/ollama/ollama/blob/main/server/prompt.go, …/server/routes.go, …/llm/llama_server.go
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.tokens import ByteClassCounter
from support.upstream.replies import LINES, ON_EVERY_API, Answer, Refusal, Reply, Usage, as_json

Json = dict[str, Any]
COUNTER = ByteClassCounter()
CHAT = "/api/chat"
GENERATE = "/api/generate"
IMAGE_TOKENS = 768
CREATED_AT = "2026-11-23T10:00:00.123456789Z"
KEPT_TOKENS = 4
"""`num_keep`."""
_REQUEST_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "model": str,
    "messages": list,
    "prompt": str,
    "suffix": str,
    "system": str,
    "template": str,
    "context": list,
    "raw": bool,
    "images": list,
    "tools": list,
    "stream": bool,
    "keep_alive": (str, int, float),
    "format": (str, dict),
    "options": dict,
    "think": (bool, str),
    "truncate": bool,
    "shift": bool,
    "logprobs": bool,
    "top_logprobs": int,
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "role": str,
    "content": str,
    "thinking": str,
    "images": list,
    "tool_calls": list,
    "tool_name": str,
    "tool_call_id": str,
}
NO_SHIFT = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


class Refused(Exception):
    """An error before the first byte."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Completion:
    """One reply of the model."""

    content: str = "Done."
    thinking: str = ""
    calls: Sequence[tuple[str, Json]] = ()
    reason: str = "stop"
    error: str = ""
    """Breaks the reply off in the middle, where it is a stream."""


def answered(head: Json, reply: Completion, prompt_tokens: int, number: int | None, *, is_stream: bool) -> list[Json]:
    """The lines of a reply, or the only object. `number`: of the reply, in the ids of its calls; None: they have none.
    Raises Refused."""
    calls = [
        {
            **({} if number is None else {"id": f"call_{number:04d}{index:04d}"}),
            "function": {"index": index, "name": name, "arguments": arguments},
        }
        for index, (name, arguments) in enumerate(reply.calls)
    ]
    count = len(reply.content) + len(reply.thinking) + 9 * len(calls)
    counts = {"total_duration": 900, "load_duration": 100, "prompt_eval_count": prompt_tokens}
    counts |= {"prompt_eval_duration": 300, "eval_count": count, "eval_duration": 500}
    if reply.error and not is_stream:
        raise Refused(500, reply.error)
    if not is_stream:
        message = _message(reply.content, reply.thinking, calls)
        return [{**head, "message": message, "done": True, "done_reason": reply.reason, **counts}]
    lines = [_message("", piece) for piece in _pieces(reply.thinking)]
    lines += [_message(piece) for piece in _pieces(reply.content)] + [_message("", "", [call]) for call in calls]
    reported: list[Json] = [{**head, "message": message, "done": False} for message in lines]
    if reply.error:
        return [*reported, {"error": reply.error}]
    return [*reported, {**head, "message": _message(""), "done": True, "done_reason": reply.reason, **counts}]


def as_lines(lines: Sequence[Json]) -> list[bytes]:
    """As they go over the wire, each with its end."""
    return [json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines]


def tokens_of(messages: Sequence[Json], tools: str = "", count: Callable[[str], int] = COUNTER.count) -> int:
    """Of a rendered prompt."""
    texts = sum(4 + count(_rendered(message)) for message in messages)
    return 3 + count(tools) + texts + IMAGE_TOKENS * sum(len(one.get("images") or ()) for one in messages)


def without_thoughts(messages: Sequence[Json]) -> list[Json]:
    """Remove thinking from assistant texts before the last question."""
    last = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=0)
    return [
        {**one, "content": re.sub(r"(?s)<think>.*?</think>", "", one.get("content", ""))}
        if at < last and one["role"] == "assistant"
        else one
        for at, one in enumerate(messages)
    ]


def as_response(line: Json) -> Json:
    message = line.pop("message", {})
    thought = {"thinking": message["thinking"]} if "thinking" in message else {}
    return line if "error" in line else {**line, "response": message["content"], **thought}


def _rendered(message: Json) -> str:
    texts = [message.get("content", ""), message.get("thinking", "")]
    for call in message.get("tool_calls") or ():
        texts += [call["function"]["name"], _marshalled(call["function"]["arguments"])]
    return "\n".join(filter(None, texts))


def _marshalled(found: Any) -> str:
    """JSON as Go's `json.Marshal` writes it, which templates use."""
    written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda one: f"\\u{ord(one[0]):04x}", written)


def decoded(body: bytes) -> Json:
    """The request in a body. Raises Refused."""
    try:
        sent: Json = json.loads(body)
    except ValueError:
        raise Refused(400, "invalid character looking for beginning of value") from None
    check(sent)
    return sent


def check(sent: Json) -> None:
    """Raises Refused for what Go's decoder does not take."""
    _check(sent, _REQUEST_TYPES, "Request")
    for name, found in (sent.get("options") or {}).items():
        if name in ("num_ctx", "num_predict") and type(found) is not int and found is not None:
            raise Refused(400, f'option "{name}" must be of type integer')
    _check_images(sent)
    for message in sent.get("messages") or ():
        _check(message, _TYPES, "Message")
        _check_images(message)
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                raise Refused(400, "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments")


def _check(found: Any, types: Mapping[str, type | tuple[type, ...]], kind: str) -> None:
    if not isinstance(found, dict):
        raise Refused(400, f"json: cannot unmarshal {type(found)} into Go value of type api.{kind}")
    for name, wanted in types.items():
        if found.get(name) is not None and not isinstance(found[name], wanted):
            raise Refused(400, f"json: cannot unmarshal {type(found[name])} into Go struct field {kind}.{name}")


def _check_images(found: Json) -> None:
    for image in found.get("images") or ():
        try:
            base64.b64decode(image, validate=True)
        except ValueError:
            raise Refused(400, "illegal base64 data at input byte 4") from None


def oldest(messages: Sequence[Json]) -> int | None:
    return next((at for at, one in enumerate(messages[:-1]) if one["role"] != "system"), None)


def native_refusal(count: int, window: int) -> Json:
    """The error in llama-server's words, which Ollama forwards as a string in its own."""
    message = f"request ({count} tokens) exceeds the available context size ({window} tokens), try increasing it"
    reported = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return {"error": {**reported, "n_prompt_tokens": count, "n_ctx": window}}


def _message(content: str, thinking: str = "", calls: Sequence[Json] = ()) -> Json:
    reported: Json = {"role": "assistant", "content": content}
    return reported | ({"thinking": thinking} if thinking else {}) | ({"tool_calls": [*calls]} if calls else {})


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _refuses(message: str) -> Answer:
    return as_json({"error": message}, 400)


class Ollama:
    """Ollama's own API."""

    name, path, member = "ollama", CHAT, "messages"
    in_streams: Sequence[str] = ("native",)
    also: Sequence[str] = ()
    parse = staticmethod(json.loads)
    counted_at, held_by = "", ""
    refusals: Mapping[str, Refusal] = {
        "native": lambda _, sent, limit: _refuses(json.dumps(native_refusal(sent, limit))),
        "no shift": lambda *_: _refuses(NO_SHIFT),
        "cloud": lambda _, sent, limit: _refuses(
            f"prompt too long; exceeded max context length by {sent - limit} tokens (ref: a1b2)"
        ),
        **ON_EVERY_API,
    }

    def items(self, body: Mapping[str, Any]) -> list[Any]:
        return list(body.get("messages") or ())

    def count(self, body: Mapping[str, Any]) -> int:
        messages = [{"role": "assistant", "content": one} if isinstance(one, str) else one for one in self.items(body)]
        return tokens_of(messages, json.dumps(body["tools"]) if body.get("tools") else "")

    def tools(self, body: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        return [((tool.get("function") or tool).get("name", ""), None) for tool in body.get("tools") or ()]

    def reply_limit(self, body: Mapping[str, Any]) -> int:
        return int((body.get("options") or {}).get("num_predict") or 0)

    def last_user(self, body: Mapping[str, Any]) -> str:
        return next((one["content"] for one in reversed(self.items(body)) if one.get("role") == "user"), "")

    def is_stream(self, body: Mapping[str, Any]) -> bool:
        return bool(body.get("stream", True))

    def complaints(self, body: Json, _: Sequence[Sequence[Json]] = ()) -> Sequence[str]:
        try:
            check(body)
        except Refused as refused:
            return [str(refused)]
        return []

    def error(self, message: str, status: int = 400, **members: Any) -> Answer:
        return as_json({"error": message, **members}, status)

    def error_event(self, message: str, **members: Any) -> bytes:
        return json.dumps({"error": message, **members}).encode() + b"\n"

    def counted(self, tokens: int) -> Answer:
        raise NotImplementedError(f"this API counts nothing, {tokens} tokens neither")

    def answered(self, body: Json, reply: Reply, usage: Usage | None, number: int) -> tuple[Answer, list[Json]]:
        calls = [(call.name, dict(call.given)) for call in reply.calls]  # type: ignore[arg-type] # no text
        head = {"model": body.get("model"), "created_at": CREATED_AT}
        made = Completion(reply.text, reply.thought, calls)
        lines = answered(head, made, usage.prompt if usage else 0, number, is_stream=self.is_stream(body))
        if usage is None:
            lines = [{name: one for name, one in line.items() if not name.endswith("eval_count")} for line in lines]
        content = b"".join(as_lines(lines))
        return Answer(200, content, LINES if self.is_stream(body) else "application/json"), []
