"""What the demo's model reads, counts and replies: messages, tokens as OpenAI bills them, a reply as one JSON object or
a stream of events, and a mind that follows a script.

Rule: messages are read as they arrive, whoever made them; missing or odd parts read as empty. Texts are really
tokenised; only their surroundings (the frame of a message, of a tool, an image) are constants. The same request gets
the same bytes: names are digests of it and the time is fixed, so that two runs can be compared.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from proxy.shell.models.tokenizer import counter_for

ChatMessage = Mapping[str, Any]
"""One message of a chat request, as decoded from JSON."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's message in one turn; without calls the turn is its last."""

    text: str
    calls: tuple[Call, ...] = ()


Policy = Callable[[Sequence[ChatMessage]], Reply]
"""The model's mind: the messages that reached it → its reply. Pure, so the same messages get the same reply."""


def text_of(message: ChatMessage) -> str:
    """The text of a message: its string content, or the text parts of a list.

    >>> text_of({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]})
    'a\\nb'
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("type") == "text"
    )


def last_user_text(messages: Sequence[ChatMessage]) -> str:
    """The last question, or nothing."""
    return next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")


def newest_results(messages: Sequence[ChatMessage]) -> str:
    """The tool results since the model last spoke, joined."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            texts.append(text_of(message))
    return "\n".join(reversed(texts))


def newest_note(messages: Sequence[ChatMessage], mark: str) -> str:
    """The rest of the newest line by the model that starts with `mark`, or nothing."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            for line in text_of(message).splitlines():
                if line.startswith(mark):
                    return line[len(mark) :].strip()
    return ""


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
    if count(text) <= room_tokens:
        return text
    words = re.findall(r"\S+\s*|\s+", text)
    while words and count("".join(words)) > room_tokens:
        words.pop()
    return "".join(words)


MARK: Final = "Script step "
_LINE: Final = re.compile(r"^\s*(?:(call|and)\s+([\w.-]+)\s+(\{.*\})|write\s+(\w+)\s+(\S.*?))\s*$", re.MULTILINE)


def scripted(messages: Sequence[ChatMessage]) -> Reply:
    """The next turn of the script in the last user message; without a script, a sentence about what arrived. For tests
    with any client and any tools.

    Every line `call NAME {JSON}` of that message is one turn, in this order; `and NAME {JSON}` adds a call to the same
    turn. `write LANGUAGE TEXT` is a turn that has TEXT in a fenced block, for agents that read their calls from the
    text. Then the model says what it saw. It finds its place in the script from its own newest message.

    >>> scripted([{"role": "user", "content": 'call ls {"path": "."}'}])
    Reply(text='Script step 1', calls=(Call(name='ls', arguments={'path': '.'}),))
    """
    script = _script(last_user_text(messages))
    done = _steps_done(messages)
    if done < len(script):
        return Reply(f"{MARK}{done + 1}{script[done].text}", script[done].calls)
    seen = len(newest_results(messages))
    return Reply(
        f"Done after {done} steps. {len(messages)} messages reached me; the newest tool results have {seen} characters."
    )


def _steps_done(messages: Sequence[ChatMessage]) -> int:
    last_user = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=0)
    step = newest_note(messages[last_user:], MARK)
    return int(step) if step.isdigit() else 0


def _script(text: str) -> list[Reply]:
    turns: list[Reply] = []
    for word, name, arguments, language, written in _LINE.findall(text):
        if language:
            turns.append(Reply(f"\n```{language}\n{written}\n```"))
            continue
        try:
            call = Call(name, json.loads(arguments))
        except ValueError:
            continue  # prose that looks like a call
        if word == "and" and turns:
            turns[-1] = replace(turns[-1], calls=(*turns[-1].calls, call))
        else:
            turns.append(Reply("", (call,)))
    return turns
