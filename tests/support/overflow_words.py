"""The requests and the refusals of these journeys, and what must hold of every request that is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec

from proxy.core.tokens import ByteClassCounter
from support.upstream import Scene
from support.upstream.scenes import COMPLETION, accepting, saying
from support.upstream.sockets import Connection, Request

SYSTEM = "You are a careful agent. Answer briefly."
QUESTION = "Which of the lines above names the failing unit?"
_PROSE = "the unit started and wrote its state, then it waited for the next message to arrive; "


def conversation(
    tokens: int, *, model: str = "snug/m", stream: bool = False, exchanges: int = 16, **more: Any
) -> bytes:
    """A request of about so many tokens by the estimate: an agent's run with single and parallel calls, and one more
    exchange behind the last user message."""
    share = _PROSE * max(1, tokens // (exchanges * 30))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Look at the log and say what broke."},
    ]
    for number in range(exchanges):
        if number == exchanges - 1:
            messages += [{"role": "assistant", "content": "Nothing yet."}, {"role": "user", "content": QUESTION}]
        messages += _exchange(number, share)
    body = {"model": model, "messages": messages, "stream": stream, "temperature": 0.25, **more}
    short = tokens - estimate(json.dumps(body).encode())
    if short > 30:  # the rest goes into the oldest result
        messages[3]["content"] += _PROSE * (short // 26)
    return json.dumps(body).encode()


def _exchange(number: int, text: str) -> list[dict[str, Any]]:
    ids = [f"call_{number}_{letter}" for letter in ("ab" if number % 3 else "a")]
    calls = [{"id": i, "type": "function", "function": {"name": "read_log", "arguments": "{}"}} for i in ids]
    results = [{"role": "tool", "tool_call_id": i, "content": f"{i}: {text[: len(text) // len(ids)]}"} for i in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def estimate(body: bytes) -> int:
    """Tokens of the texts of a request, by the estimate that replaces an unknown tokenizer."""
    return sum(4 + ByteClassCounter().count("\n".join(_texts(message))) for message in json.loads(body)["messages"])


def _texts(message: dict[str, Any]) -> list[str]:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return [message.get("content") or "", *(call["name"] + "\n" + call["arguments"] for call in calls)]


def assert_valid(sent: bytes) -> None:
    """Every call has its results behind it, every result its call; system text and last user message are whole."""
    messages = json.loads(sent)["messages"]
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, f"{message['tool_call_id']} answers no call"
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls, f"{open_calls} have no result"
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls, f"{open_calls} have no result"
    assert messages[0] == {"role": "system", "content": SYSTEM}
    assert [message["content"] for message in messages if message["role"] == "user"][-1] == QUESTION
    assert messages[-1]["role"] == "tool", "the newest exchange stays"


def without_messages(body: bytes, *names: str) -> dict[str, Any]:
    """The members of a request besides its messages and these."""
    return {name: value for name, value in json.loads(body).items() if name not in ("messages", *names)}


def raw_messages(body: bytes) -> list[bytes]:
    """The bytes of each message."""
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return [bytes(raw) for raw in msgspec.json.decode(members["messages"], type=list[msgspec.Raw])]


def openai_error(message: str, code: str | None = None) -> bytes:
    kind = "invalid_request_error"
    return json.dumps({"error": {"message": message, "type": kind, "param": "messages", "code": code}}).encode()


def too_long(limit: int, counted: int) -> bytes:
    """https://community.openai.com/t/error-this-models-maximum-context-length-is-x-tokens/533894"""
    return openai_error(
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {counted} tokens. "
        "Please reduce the length of the messages.",
        "context_length_exceeded",
    )


def too_long_with_reply(limit: int, prompt: int, reply: int) -> bytes:
    """vLLM and OpenAI: https://github.com/vllm-project/vllm/issues/1723"""
    return openai_error(
        f"This model's maximum context length is {limit} tokens. However, you requested {prompt + reply} tokens "
        f"({prompt} in the messages, {reply} in the completion). Please reduce the length."
    )


def at_least(limit: int) -> bytes:
    """vLLM stops counting one token past its limit: vllm/entrypoints/renderer.py."""
    return openai_error(
        f"This model's maximum context length is {limit} tokens. However, your request has at least {limit + 1} input "
        "tokens. Please reduce the length of the input messages."
    )


def without_numbers() -> bytes:
    return openai_error("Your input exceeds the context window of this model.", "context_length_exceeded")


def tokens_per_minute(limit: int, requested: str) -> bytes:
    """Groq: https://github.com/continuedev/continue/issues/10218"""
    message = (
        "Request too large for model `m` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): "
        f"Limit {limit}, {requested}, please reduce your message size and try again."
    )
    return json.dumps({"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}}).encode()


def edited_request() -> bytes:
    """A request that fits and yet is edited: a tool result over the limit for one. Its agent has a shell, so that
    nothing else is changed."""
    shell = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    body = json.loads(conversation(6_000, exchanges=8, tools=[shell]))
    body["messages"][3]["content"] += "\n".join(f"line {number} of the log" for number in range(2_500))
    return json.dumps(body).encode()


def window(tokens: int, **more: Any) -> dict[str, Any]:
    """Settings in which every model has this window by configuration."""
    return {"models": [{"match": "*", "context_window": tokens}], **more}


def counted(tokens: int) -> Scene:
    """A completion whose prompt had so many tokens."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2}
    return saying(200, json.dumps({**json.loads(COMPLETION), "usage": usage}).encode())


def times(ratio: float) -> Callable[[bytes], float]:
    """A count of so many tokens for one of the estimate's."""
    return lambda body: ratio * estimate(body)


def limited(
    limit: float,
    refused: Callable[[int], Scene],
    *,
    count: Callable[[bytes], float] = estimate,
    taken: Callable[[int], Scene] = lambda _: accepting,
) -> Scene:
    """A model server that takes requests up to this limit, by its count; both answers are made for what it counted."""

    async def scene(connection: Connection, request: Request) -> None:
        seen = int(count(request.body))
        await (refused if seen > limit else taken)(seen)(connection, request)

    return scene


def counting(limit: float = math.inf, *, count: Callable[[bytes], float] = estimate) -> Scene:
    """A model server with this window that says what it counted, in refusals and in usage."""
    return limited(limit, lambda tokens: saying(400, too_long(int(limit), tokens)), count=count, taken=counted)
