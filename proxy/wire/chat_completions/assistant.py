"""A model's message in a response of chat completions, whole or assembled from a stream.

Rule: a call with anything odd about it is the client's; every call keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions.calls import meant_by

_SENT_BACK: Final = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")
"""The members of a model's message that are sent back upstream: those that a client sends, and reasoning, which
DeepSeek, Kimi and OpenRouter want back inside a turn. https://api-docs.deepseek.com/guides/thinking_mode"""


def said_in(message: Mapping[str, Raw]) -> AssistantMessage:
    """Read the members of an assistant message; a call with anything odd about it is the client's."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    calls = _listed(message.get("tool_calls"))
    for position, raw in enumerate(calls):
        found = jsontext.opened(raw)
        if called(found) == RETRIEVAL_TOOL:
            own.append(OwnCall(position, str(found.get("id") or ""), _arguments(found), bytes(raw)))
        else:
            others.append(bytes(raw))
    sent_back = {"role": b'"assistant"', "content": b"null"}
    sent_back |= {name: bytes(message[name]) for name in _SENT_BACK if _is_said(message.get(name))}
    texts = {name: text for name in TEXT_MEMBERS if isinstance(text := jsontext.opened(message.get(name)), str)}
    return AssistantMessage(jsontext.join_object(sent_back), tuple(own), tuple(others), meant_by(others), texts)


TEXT_MEMBERS: Final = ("content", "reasoning_content", "reasoning")
"""Of a message or a delta."""


def called(call: Any) -> str:
    """The name of the function in a call; empty if there is none.

    >>> called({"function": {"name": "ls"}}), called({"type": "custom"}), called(None)
    ('ls', '', '')
    """
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _arguments(call: Mapping[str, Any]) -> str:
    """The arguments of a call that names a function; a few servers send them as an object."""
    found = call["function"].get("arguments")
    return found if isinstance(found, str) else jsontext.dump(found).decode("utf-8", "replace")


def _listed(raw: Raw | None) -> list[Raw]:
    try:
        return list(jsontext.items(raw)) if raw is not None else []
    except jsontext.NotJson:
        return []


def _is_said(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) != b"null"


def result_of(call_id: str, text: str) -> bytes:
    """The message that answers a call."""
    return jsontext.dump({"role": "tool", "tool_call_id": call_id, "content": text})
