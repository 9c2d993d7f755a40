"""A reply as OpenAI writes it: one JSON object, or a stream of events.

Rule: the same request gets the same bytes. Names are digests of the request and the time is fixed, so that two runs can
be compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.demo import counting
from proxy.demo.chat import Reply

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
        spoken = counting.reply_tokens(message)
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
        """The same response as server-sent events; `usage` in its own event before the end, if requested."""
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
    """As many whole words as fit."""
    if counting.count(text) <= room_tokens:
        return text
    words = re.findall(r"\S+\s*|\s+", text)
    while words and counting.count("".join(words)) > room_tokens:
        words.pop()
    return "".join(words)
