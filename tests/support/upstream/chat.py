"""Answers of `/v1/chat/completions`: whole, as events, and every form in which a request is refused for its length."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.demo import Call, prompt_tokens, tool_tokens
from proxy.demo import Reply as DemoReply
from support.upstream.chat_answers import REFUSALS, Completion, InvalidRequest, Load, check_messages
from support.upstream.replies import ON_EVERY_API, Answer, Json, Refusal, Reply, Usage, as_json


def _of_flavour(name: str) -> Refusal:
    def refusal(body: Mapping[str, Any], sent: int, limit: int) -> Answer:
        tools = tool_tokens(body.get("tools"))
        load = Load(max(0, sent - tools), min(tools, sent), _reply_limit(body) or None, limit)
        return as_json(dict(REFUSALS[name](load)), 400)

    return refusal


def _reply_limit(body: Mapping[str, Any]) -> int:
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 0)


class Chat:
    """OpenAI's chat completions, as most servers have them."""

    name, path, member = "chat", "/v1/chat/completions", "messages"
    in_streams: Sequence[str] = ("openai",)
    also: Sequence[str] = ()
    parse = staticmethod(json.loads)
    counted_at, held_by = "", ""

    def __init__(self) -> None:
        self.refusals: Mapping[str, Refusal] = {name: _of_flavour(name) for name in REFUSALS} | ON_EVERY_API

    def items(self, body: Mapping[str, Any]) -> list[Any]:
        return list(body.get("messages") or ())

    def count(self, body: Mapping[str, Any]) -> int:
        return prompt_tokens(self.items(body)) + tool_tokens(body.get("tools"))

    def tools(self, body: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        return [((tool.get("function") or tool).get("name", ""), None) for tool in body.get("tools") or ()]

    def reply_limit(self, body: Mapping[str, Any]) -> int:
        return _reply_limit(body)

    def last_user(self, body: Mapping[str, Any]) -> str:
        said = (one.get("content") for one in reversed(self.items(body)) if one.get("role") == "user")
        content = next(said, "")
        return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())

    def is_stream(self, body: Mapping[str, Any]) -> bool:
        return bool(body.get("stream"))

    def complaints(self, body: Json, _: Sequence[Sequence[Json]] = ()) -> Sequence[str]:
        try:
            check_messages(body.get("messages"))
        except InvalidRequest as error:
            return [error.message]
        return []

    def error(self, message: str, status: int = 400, **members: Any) -> Answer:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return as_json({"error": {"message": message, "type": kind, "param": None, "code": None, **members}}, status)

    def error_event(self, message: str, **members: Any) -> bytes:
        error = {"message": message, "type": "server_error", "code": 500, **members}
        return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"

    def counted(self, tokens: int) -> Answer:
        raise NotImplementedError(f"this API counts nothing, {tokens} tokens neither")

    def answered(self, body: Json, reply: Reply, usage: Usage | None, number: int) -> tuple[Answer, list[Json]]:
        calls = tuple(Call(call.name, dict(call.given)) for call in reply.calls)  # type: ignore[arg-type] # no text
        named = json.dumps([number, reply.text]).encode()
        prompt = usage.prompt if usage else 0
        room = _reply_limit(body) or 10**6
        made = Completion.make(named, str(body.get("model")), DemoReply(reply.text, calls), prompt, room)
        issued = [dict(made.message)]
        if not body.get("stream"):
            whole = made.whole()
            return as_json(whole if usage else {name: one for name, one in whole.items() if name != "usage"}), issued
        reported = usage is not None and bool((body.get("stream_options") or {}).get("include_usage"))
        return Answer(200, b"".join(made.events(reported)), "text/event-stream"), issued
