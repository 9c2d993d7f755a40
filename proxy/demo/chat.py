"""Shared by the model server and its policies: a reply, a tool call, and how messages are read.

Rule: messages are read as they arrive, whoever made them; missing or odd parts read as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
