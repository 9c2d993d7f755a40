"""A small model server: OpenAI's chat API over a policy, with a real token count. It has a window and a real refusal.

Rule: it treats every client the same and keeps nothing between requests. The same request gets the same reply, so two
runs can be compared: ids are digests of it. It knows the requests of this demo's agent: no streams, no reply limits.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.demo.incident import ChatMessage, Policy
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


MODEL: Final = "embedded-model"
"""The one model in `/v1/models`; any name in a request is accepted and echoed."""


def create_model_server(window_tokens: int, policy: Policy) -> Starlette:
    """The server as an ASGI application: `/v1/chat/completions` and `/v1/models`."""

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def chat(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_answer, body, window_tokens, policy)  # counting takes milliseconds

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)])


def _answer(body: bytes, window_tokens: int, policy: Policy) -> Response:
    wanted = json.loads(body)
    messages, tools = prompt_tokens(wanted["messages"]), tool_tokens(wanted.get("tools"))
    if messages + tools >= window_tokens:  # one token of the reply has to fit
        return JSONResponse({"error": _too_long(messages, tools, window_tokens)}, 400)
    reply, digest = policy(wanted["messages"]), hashlib.sha256(body).hexdigest()
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{digest[:22]}{index:02}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for index, call in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
    usage = {"prompt_tokens": messages + tools, "completion_tokens": _value_tokens(message)}
    return JSONResponse(
        {"id": f"chatcmpl-{digest[:24]}", "object": "chat.completion", "model": wanted.get("model")}
        | {"choices": [choice], "usage": usage | {"total_tokens": sum(usage.values())}}
    )


def _too_long(message_tokens: int, tool_tokens: int, window_tokens: int) -> Mapping[str, Any]:
    """As LangChain's guide to query analysis prints it: "33885 tokens (33855 in the messages, 30 in the functions)"."""
    split = f" ({message_tokens} in the messages, {tool_tokens} in the functions)" if tool_tokens else ""
    message = (
        f"This model's maximum context length is {window_tokens} tokens. However, your messages resulted in "
        f"{message_tokens + tool_tokens} tokens{split}. "
        f"Please reduce the length of the messages{' or functions' if tool_tokens else ''}."
    )
    return {
        "message": message,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
