"""Growing conversations whose history an upstream refuses for one or more reasons, as after a switch of the model in
mid-session; and that upstream, which names one reason at a time.

Rule: what it refuses, the public APIs refuse in these words; it reads nothing but the bytes that reached it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from starlette.types import Send

from support import valid_messages
from support.journey import Received
from support.media_samples import anthropic_block, image_part

LIMIT_TOKENS: Final = 8_000
REASONS: Final = ("image", "seal", "pairing", "length", "unnumbered", "tool")
"""Ordered as chosen: an upstream checks them in the order of a conversation's own."""
PATHS: Final = {"chat": "/chat/completions", "messages": "/messages"}
SEAL: Final = "c2VhbGVk"
SYSTEM: Final = "You help with the logs. " * 20
SAID: Final = {
    "image": "This model does not support image input.",
    "file": "This model does not support file input.",
    "seal": "messages.1.content.0: Invalid `signature` in `thinking` block",
    "length": "This model's maximum context length is {limit} tokens. However, your messages resulted in {sent} "
    "tokens.",
    "unnumbered": "Input is too long for requested model.",
    "tool": "tools: the function read_artifact is not allowed here",
}
_PAIRING: Final = {
    "chat": "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {call}",
    "messages": "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: {call}. Each "
    "`tool_use` block must have a corresponding `tool_result` block in the next message.",
}


def refusal(api: str, reason: str, sent: int, lost: str) -> bytes:
    """The error in the shape of its API."""
    said = (_PAIRING[api] if reason == "pairing" else SAID[reason]).format(limit=LIMIT_TOKENS, sent=sent, call=lost)
    error = {"message": said, "type": "invalid_request_error"}
    return json.dumps({"type": "error", "error": error} if api == "messages" else {"error": error}).encode()


@dataclass
class StrictUpstream:
    """Refuses for the reasons of each model: its name is theirs, joined by dots, after that of the API."""

    sent: list[bytes] = field(default_factory=list)

    async def __call__(self, request: Received, send: Send) -> bool:
        self.sent.append(request.body)
        body = json.loads(request.body)
        api, *reasons = body["model"].split("/")[-1].split(".")
        found = next((reason for reason in reasons if _is_refused(api, reason, body, len(request.body) // 4)), None)
        text = "Fine."
        reply: dict[str, Any] = {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
        }
        if api == "messages":
            content = [{"type": "text", "text": text}]
            reply = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
        lost = next(iter(_unanswered(api, body)), "")
        said = json.dumps(reply).encode() if found is None else refusal(api, found, len(request.body) // 4, lost)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200 if found is None else 400, "headers": headers})
        await send({"type": "http.response.body", "body": said})
        return True


def _is_refused(api: str, reason: str, body: dict[str, Any], tokens: int) -> bool:
    match reason:
        case "image":
            return '"type": "image' in json.dumps(body["messages"])
        case "seal":
            return SEAL in json.dumps(body)
        case "pairing":
            return bool(_unanswered(api, body))
        case "tool":
            return "read_artifact" in json.dumps(body.get("tools", []))
    return tokens > LIMIT_TOKENS


def _unanswered(api: str, body: dict[str, Any]) -> list[str]:
    """The calls that the next message does not answer."""
    lost: list[str] = []
    if api == "messages":
        turns = valid_messages.turns_of(body["messages"])
        for number, turn in enumerate(turns):
            calls = [block["id"] for _, block in turn.blocks if block["type"] == "tool_use"]
            after = turns[number + 1].blocks if number + 1 < len(turns) else []
            results = [block["tool_use_id"] for _, block in after if block["type"] == "tool_result"]
            lost += [call for call in calls if call not in results]
        return lost
    open_calls: list[str] = []
    for message in [*body["messages"], {"role": "end"}]:
        if message["role"] == "tool":
            open_calls = [call for call in open_calls if call != message["tool_call_id"]]
        else:
            lost += open_calls
            open_calls = [call["id"] for call in message.get("tool_calls") or []]
    return lost


@dataclass
class Session:
    """One agent's conversation. Its first turn is another model's: it holds what this one refuses."""

    api: str
    reasons: Sequence[str]
    model: str = ""
    has_tools: bool = True
    lines: int = 40
    """Of each tool result."""
    reply_tokens: int | None = None
    name: str = "s"
    messages: list[dict[str, Any]] = field(default_factory=list)
    _calls: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.model = self.model or ".".join((self.api, *self.reasons))
        self._user(f"The task of {self.name}: find why the build fails.", image="image" in self.reasons)
        self._exchange()
        if "pairing" in self.reasons:
            self._call(next(self._calls), seal=False)
        if "length" in self.reasons or "unnumbered" in self.reasons:
            for _ in range(12):
                self._exchange()

    @property
    def newest_words(self) -> str:
        """Of the user."""
        return f"The newest words of {self.name}, after {len(self.messages)} messages."

    def body(self) -> bytes:
        """Of the next turn."""
        for _ in range(2):
            self._exchange()
        words = self.newest_words
        self._user(words)
        self.words = words
        tools = [{"name": "bash", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}]
        body: dict[str, Any] = {"model": self.model, "messages": self.messages}
        if self.api == "messages":
            body |= {"system": SYSTEM, "max_tokens": self.reply_tokens or 512}
        else:
            body["messages"] = [{"role": "system", "content": SYSTEM}, *self.messages]
            body |= {} if self.reply_tokens is None else {"max_tokens": self.reply_tokens}
            tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
        return json.dumps(body | ({"tools": tools} if self.has_tools else {})).encode()

    def answered(self) -> None:
        """The reply, which the client keeps."""
        self.messages.append({"role": "assistant", "content": "Fine."})

    def _user(self, text: str, *, image: bool = False) -> None:
        content: Any = text
        if image:
            media = anthropic_block() if self.api == "messages" else image_part()
            content = [{"type": "text", "text": text}, media]
        self.messages.append({"role": "user", "content": content})

    def _call(self, number: int, *, seal: bool) -> None:
        if self.api == "messages":
            thinking = [{"type": "thinking", "thinking": "Hm.", "signature": SEAL}] if seal else []
            use = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"n": number}}
            self.messages.append({"role": "assistant", "content": [*thinking, use]})
            return
        function = {"name": "bash", "arguments": json.dumps({"n": number})}
        made = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
        }
        details = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": SEAL}]} if seal else {}
        self.messages.append(made | details)

    def _exchange(self) -> None:
        number = next(self._calls)
        self._call(number, seal="seal" in self.reasons and number == 1)
        text = "\n".join(
            f"{self.name} result {number} line {line}: step {line * number} of the build has run"
            for line in range(self.lines)
        )
        if self.api == "messages":
            result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
            self.messages.append({"role": "user", "content": [result]})
        else:
            self.messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
