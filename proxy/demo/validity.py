"""The rules for a chat request before a model may see it, and OpenAI's words for breaking them.

Rule: a tool call and its results belong together: every result answers a call of the assistant message before it, and
every call is answered before anybody else speaks. A careless cut breaks exactly this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.demo.chat import ChatMessage

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
