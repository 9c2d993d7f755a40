"""A small model server: OpenAI's chat API over a policy, with a real token count, a window and real refusals.

Rule: it treats every client the same and keeps nothing between requests. The same request gets the same bytes, so two
runs can be compared: ids are digests of it and the time is fixed. A tool call and its results belong together, as at
OpenAI: a careless cut breaks exactly this. Refusals are those of real servers, word for word, each with its source.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.demo.incident import ChatMessage, Policy, Reply
from proxy.shell.models import counter_for

ENCODING: Final = "o200k_base"
"""The vocabulary of gpt-4o and later; if it is not installed, `counter_for` estimates."""
MESSAGE_TOKENS: Final = 3
"""The frame of one message; it and REPLY_TOKENS as in OpenAI's cookbook, "How to count tokens with tiktoken"."""
REPLY_TOKENS: Final = 3
"""Every reply is primed with the start of an assistant message."""
IMAGE_TOKENS: Final = 765
"""A picture of 1024 × 1024 in high detail, by OpenAI's price table for gpt-4o: 85 + 4 tiles of 170."""


def prompt_tokens(messages: Sequence[ChatMessage]) -> int:
    """Tokens of all messages, without the tool definitions."""
    return REPLY_TOKENS + sum(MESSAGE_TOKENS + _value_tokens(message) for message in messages)


def tool_tokens(tools: object) -> int:
    """Tokens of the tool definitions; their JSON is close to the form in which a model reads them."""
    return count(json.dumps(tools, ensure_ascii=False)) if isinstance(tools, list) and tools else 0


def reply_tokens(message: Mapping[str, Any]) -> int:
    """Tokens of the model's message."""
    return _value_tokens(message)


def _value_tokens(value: object) -> int:
    """Texts count in full, wherever they are; an image counts by its price, not by the length of its data URL."""
    match value:
        case str():
            return count(value)
        case {"type": "image_url"}:
            return IMAGE_TOKENS
        case dict():
            return sum(_value_tokens(inner) for inner in value.values())
        case list():
            return sum(_value_tokens(inner) for inner in value)
        case _:
            return 0


@functools.lru_cache(maxsize=1024)  # each turn repeats the conversation; a message of 50 KB takes 8 ms
def count(text: str) -> int:
    """Tokens of a text in ENCODING."""
    return counter_for(ENCODING, "").count(text)


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
        spoken = reply_tokens(message)
        finish_reason = "tool_calls" if reply.calls else "stop" if text == reply.text else "length"
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": spoken,
            "total_tokens": prompt_tokens + spoken,
        }
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


class Load(Struct, frozen=True):
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


class Flavour(Struct, frozen=True):
    """A kind of server."""

    name: str
    counts_reply: bool
    """Whether the requested reply has to fit beside the prompt, or simply ends where the window ends."""
    refusal: Callable[[Load], Mapping[str, Any]]
    """The body of its 400."""
    model_fields: Callable[[int], Mapping[str, Any]]
    """Fields of `/v1/models` for a window of this many tokens."""

    def accepts(self, load: Load) -> bool:
        """At least one token of the reply has to fit."""
        wanted = load.reply_tokens if self.counts_reply and load.reply_tokens else 1
        return load.prompt_tokens + wanted <= load.window_tokens


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


FLAVOURS: Final[Mapping[str, Flavour]] = {
    flavour.name: flavour
    for flavour in (
        Flavour("openai", counts_reply=True, refusal=_openai, model_fields=lambda _: {}),
        Flavour("vllm", counts_reply=True, refusal=_vllm, model_fields=lambda window: {"max_model_len": window}),
        Flavour(
            "llama.cpp",
            counts_reply=False,
            refusal=_llama_cpp,
            model_fields=lambda window: {"meta": {"n_ctx_train": window}},
        ),
        Flavour("dashscope", counts_reply=False, refusal=_dashscope, model_fields=lambda _: {}),
    )
}
OPENAI: Final = FLAVOURS["openai"]


ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


class InvalidRequest(Exception):
    """The request is refused with a 400 in OpenAI's shape."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error": {"message": self.message, "type": "invalid_request_error", "param": self.param, "code": None}}


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


MODEL: Final = "embedded-model"
"""The one model in `/v1/models`; any name in a request is accepted and echoed."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Far over any window; a larger body is not a chat request."""


def create_model_server(window_tokens: int, policy: Policy, flavour: Flavour = OPENAI) -> Starlette:
    """The server as an ASGI application: `/v1/chat/completions` (JSON and streams) and `/v1/models`."""
    endpoint = _Endpoint(window_tokens, policy, flavour)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
            Route("/v1/models", endpoint.models),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Endpoint:
    window_tokens: int
    policy: Policy
    flavour: Flavour

    async def models(self, _: Request) -> Response:
        model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "context-proxy"}
        listed = model | dict(self.flavour.model_fields(self.window_tokens))
        return _json({"object": "list", "data": [listed]})

    async def chat(self, request: Request) -> Response:
        try:
            body = await _read(request)
            return await run_in_threadpool(self._answer, body)  # counting takes milliseconds that others need
        except InvalidRequest as invalid:
            return _json(invalid.body(), 400)
        except ClientDisconnect:
            return Response(status_code=499)

    def _answer(self, body: bytes) -> Response:
        wanted = _decoded(body)
        messages = check_messages(wanted.get("messages"))
        reply_tokens = _reply_limit(wanted)
        load = Load(
            prompt_tokens(messages),
            tool_tokens(wanted.get("tools")),
            reply_tokens,
            self.window_tokens,
        )
        if not self.flavour.accepts(load):
            return _json(dict(self.flavour.refusal(load)), 400)
        left = self.window_tokens - load.prompt_tokens
        room = min(reply_tokens, left) if reply_tokens else left
        model = str(wanted.get("model") or MODEL)
        completion = Completion.make(body, model, self.policy(messages), load.prompt_tokens, room)
        if not wanted.get("stream"):
            return _json(completion.whole())
        options = wanted.get("stream_options")
        events: Iterator[bytes] = completion.events(isinstance(options, dict) and bool(options.get("include_usage")))
        return StreamingResponse(events, media_type="text/event-stream")


def _json(content: object, status_code: int = 200) -> Response:
    """ASCII only: a model's name may contain half a surrogate pair, which has no UTF-8."""
    return Response(json.dumps(content), status_code, media_type="application/json")


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise InvalidRequest(f"The body is over {MAX_BODY_BYTES} bytes.", None)
    return bytes(body)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict):
        raise InvalidRequest("We could not parse the JSON body of your request.", None)
    return wanted


def _reply_limit(wanted: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = wanted.get(name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidRequest(f"Invalid '{name}': expected an integer of at least 1.", name)
        return limit
    return None
