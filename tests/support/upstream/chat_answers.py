"""What servers of `/v1/chat/completions` answer: a reply in both forms, refusals for length, refusals of a history.

Rule: refusals are those of real servers, word for word, each with its source. The same request gets the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.demo import ChatMessage, Reply, count, prompt_tokens

CREATED: Final = 1_767_225_600
"""2026-01-01, for every response."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply, with everything that the two forms need."""

    id: str
    model: str
    message: Mapping[str, Any]
    finish_reason: str
    usage: Mapping[str, int]

    @classmethod
    def make(cls, body: bytes, model: str, reply: Reply, prompt_tokens: int, room_tokens: int) -> Completion:
        """`room_tokens`: the limit of the reply; a longer text ends there with `length`, as on a real server."""
        digest = hashlib.sha256(body).hexdigest()
        text = _shortened(reply.text, room_tokens) if not reply.calls else reply.text
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{digest[:22]}{index:02}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
                }
                for index, call in enumerate(reply.calls)
            ]
        spoken = _spoken_tokens(message)
        finish_reason = "tool_calls" if reply.calls else "stop" if text == reply.text else "length"
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": spoken, "total_tokens": prompt_tokens + spoken}
        return cls(f"chatcmpl-{digest[:24]}", model, message, finish_reason, usage)

    def whole(self) -> dict[str, Any]:
        """The response to a request without `stream`."""
        choice = {"index": 0, "message": dict(self.message), "logprobs": None, "finish_reason": self.finish_reason}
        return self._framed("chat.completion", [choice]) | {"usage": dict(self.usage)}

    def events(self, include_usage: bool) -> Iterator[bytes]:
        """The response as server-sent events; `usage` in its own event before the end, if requested."""
        yield self._event({"role": "assistant", "content": ""})
        for piece in re.findall(r"\S+\s*|\s+", self.message["content"] or ""):
            yield self._event({"content": piece})
        for index, call in enumerate(self.message.get("tool_calls", ())):
            arguments = call["function"]["arguments"]
            opening = {"name": call["function"]["name"], "arguments": ""}
            yield self._event({"tool_calls": [{"index": index} | call | {"function": opening}]})
            for start in range(0, len(arguments), 16):
                piece = {"arguments": arguments[start : start + 16]}
                yield self._event({"tool_calls": [{"index": index, "function": piece}]})
        yield self._event({}, self.finish_reason)
        if include_usage:
            yield _sse(self._framed("chat.completion.chunk", []) | {"usage": dict(self.usage)})
        yield b"data: [DONE]\n\n"

    def _event(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _sse(self._framed("chat.completion.chunk", [choice]))

    def _framed(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": CREATED, "model": self.model, "choices": choices}


def _spoken_tokens(message: Mapping[str, Any]) -> int:
    return prompt_tokens([message]) - prompt_tokens([{}])


def _sse(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _shortened(text: str, room_tokens: int) -> str:
    """Keep as many whole words as fit."""
    if count(text) <= room_tokens:
        return text
    words = re.findall(r"\S+\s*|\s+", text)
    while words and count("".join(words)) > room_tokens:
        words.pop()
    return "".join(words)


@dataclass(frozen=True)
class Load:
    """A request's demand on the window."""

    message_tokens: int
    tool_tokens: int
    """Tokens of the tool definitions."""
    reply_tokens: int | None
    """`max_completion_tokens` or `max_tokens` of the request."""
    window_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return self.message_tokens + self.tool_tokens


def _openai(load: Load) -> dict[str, Any]:
    """All four wordings have been seen on api.openai.com: https://github.com/chathub-dev/chathub/issues/126,
    https://github.com/FoundationAgents/OpenManus/issues/62, and LangChain's guide to query analysis, whose printed
    error has "33885 tokens (33855 in the messages, 30 in the functions)"."""
    start = f"This model's maximum context length is {load.window_tokens} tokens. However, "
    functions = f", {load.tool_tokens} in the functions" if load.tool_tokens else ""
    if load.reply_tokens and load.prompt_tokens < load.window_tokens:
        total = load.prompt_tokens + load.reply_tokens
        reply = f"{', and' if functions else ','} {load.reply_tokens} in the completion"
        parts = "messages, functions, or completion" if functions else "messages or completion"
        counted = f"you requested {total} tokens ({load.message_tokens} in the messages{functions}{reply})"
    else:
        parts = "messages or functions" if functions else "messages"
        split = f" ({load.message_tokens} in the messages{functions})" if functions else ""
        counted = f"your messages resulted in {load.prompt_tokens} tokens{split}"
    message = f"{start}{counted}. Please reduce the length of the {parts}."
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


def _vllm(load: Load) -> dict[str, Any]:
    """vLLM 0.11, vllm/entrypoints/openai/serving_engine.py, `_validate_input`."""
    window, prompt, reply = load.window_tokens, load.prompt_tokens, load.reply_tokens
    if reply and prompt < window:
        message = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {reply}. This model's maximum context length is "
            f"{window} tokens and your request has {prompt} input tokens ({reply} > {window} - {prompt})."
        )
    else:
        message = (
            f"This model's maximum context length is {window} tokens. However, your request has {prompt} input tokens. "
            "Please reduce the length of the input messages."
        )
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def _llama_cpp(load: Load) -> dict[str, Any]:
    """llama.cpp, tools/server/server-context.cpp and `format_error_response` in server-common.cpp, 2026."""
    prompt, window = load.prompt_tokens, load.window_tokens
    message = f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
    return {
        "error": {
            "code": 400,
            "message": message,
            "type": "exceed_context_size_error",
            "n_prompt_tokens": prompt,
            "n_ctx": window,
        }
    }


def _dashscope(load: Load) -> dict[str, Any]:
    """https://github.com/QwenLM/qwen-code/issues/98; the range is that of the input; the size sent is not stated."""
    message = (
        f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {load.window_tokens - 1}]"
    )
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_parameter_error"}
    }


REFUSALS: Final[Mapping[str, Callable[[Load], Mapping[str, Any]]]] = {
    "openai": _openai,
    "vllm": _vllm,
    "llama.cpp": _llama_cpp,
    "dashscope": _dashscope,
}
"""Bodies of a 400 by the server's name."""
LISTED: Final[Mapping[str, Callable[[int], Mapping[str, Any]]]] = {
    "vllm": lambda window: {"max_model_len": window},
    "llama.cpp": lambda window: {"meta": {"n_ctx_train": window}},
}
"""Members of `/v1/models` for a window of this many tokens."""


ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


class InvalidRequest(Exception):
    """The request is refused with a 400 in OpenAI's shape."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def check_messages(messages: object) -> Sequence[ChatMessage]:
    """The messages of a valid request. Raises InvalidRequest."""
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("Invalid 'messages': expected an array with at least one message.", "messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest(f"Invalid type for 'messages[{index}]': expected an object.", f"messages.[{index}]")
        if message.get("role") not in ROLES:
            allowed = ", ".join(f"'{role}'" for role in ROLES)
            wrong = f"Invalid value for 'messages[{index}].role'. Supported values are: {allowed}."
            raise InvalidRequest(wrong, f"messages.[{index}].role")
    _check_pairing(messages)
    return messages


def _check_pairing(messages: Sequence[ChatMessage]) -> None:
    """Both texts from one report, with these `param`s: https://github.com/sdcb/chats/pull/132."""
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        at = f"messages.[{index}].role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise InvalidRequest(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    at,
                )
            open_calls.remove(message["tool_call_id"])
            continue
        _all_answered(open_calls, at)
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        open_calls = (
            [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        )
    _all_answered(open_calls, "messages")


def _all_answered(open_calls: Sequence[str], at: str) -> None:
    if open_calls:
        raise InvalidRequest(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}",
            at,
        )
