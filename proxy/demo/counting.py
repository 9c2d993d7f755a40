"""Tokens of a chat request, counted the way OpenAI bills them.

Rule: the text is really tokenised; only its surroundings (the frame of a message, of a tool, an image) are constants.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.demo.chat import ChatMessage
from proxy.shell.models.tokenizer import counter_for

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
