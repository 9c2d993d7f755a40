"""The made-up API of `line_api`, as its server speaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from proxy.demo import MESSAGE_TOKENS, REPLY_TOKENS, count
from proxy.wire import Request
from support.line_api import LINES, ended
from support.upstream.replies import Answer, Json, Refusal, Reply, Usage

IMAGE_TOKENS = 765


class Lines:
    """A face whose bodies are no JSON: what a rule reads as such is the parsed request, under `request`."""

    name, path, member = "lines", LINES.path, "messages"
    also, counted_at, held_by = (), "", ""
    in_streams = ("lines",)
    refusals: ClassVar[Mapping[str, Refusal]] = {"lines": lambda _, sent, limit: _refused(_too_long(sent, limit))}

    def parse(self, body: bytes) -> Json:
        return {"request": LINES.parse(body)}

    def items(self, body: Mapping[str, Any]) -> list[Any]:
        return list(body["request"].conversation.messages)

    def count(self, body: Mapping[str, Any]) -> int:
        return tokens_of(body["request"]) if "request" in body else count("".join(body[self.member]))

    def tools(self, body: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        return [(name, None) for name in bytes(body["request"].members.get("offers", b"")).decode().split()]

    def reply_limit(self, _: Mapping[str, Any]) -> int:
        return 0

    def last_user(self, body: Mapping[str, Any]) -> str:
        return next((one.text() for one in reversed(self.items(body)) if one.role == "user"), "")

    def is_stream(self, body: Mapping[str, Any]) -> bool:
        return bool(body["request"].stream)

    def complaints(self, body: Json, _: Sequence[Sequence[Json]] = ()) -> Sequence[str]:
        waiting = 0
        for message in self.items(body):
            if message.role == "tool":
                if not waiting:
                    return ["unpaired\n> There is a result without its call."]
                waiting -= 1
            elif waiting:
                return ["unpaired\n> Calls must be followed by tool messages that respond to each of them."]
            waiting += len(message.calls)
        return []

    def error(self, message: str, status: int = 400, **_: Any) -> Answer:
        return _refused(message, status)

    def error_event(self, message: str, **_: Any) -> bytes:
        return ended(["assistant", *f"refused: {message}".split("\n")])

    def counted(self, tokens: int) -> Answer:
        raise NotImplementedError(f"this API counts nothing, {tokens} tokens neither")

    def answered(self, body: Json, reply: Reply, usage: Usage | None, _: int) -> tuple[Answer, list[Json]]:
        """The text is the lines of a reply, without `assistant` before them and the ends behind."""
        end = "calls" if "+ " in reply.text else "done"
        counts = [f"counted: {usage.prompt} {len(reply.text)}"] if usage else []
        lines = ["assistant", *reply.text.split("\n"), f"ended: {end}", *counts]
        if self.is_stream(body):
            return Answer(200, ended(lines), LINES.framing.content_type.decode()), []
        return Answer(200, "\n".join(lines).encode(), LINES.content_type.decode()), []


def blind(sent: Any) -> Answer | None:
    """Refuse pictures."""
    sees = any(message.images for message in sent.messages)
    return sent.face.error("unsupported\n> This model does not support image input.") if sees else None


def tokens_of(request: Request) -> int:
    """Of a whole prompt."""
    messages = request.conversation.messages
    texts = sum(MESSAGE_TOKENS + count(message.text()) for message in messages)
    tools = count(bytes(request.members.get("offers", b"")).decode())
    return REPLY_TOKENS + tools + texts + IMAGE_TOKENS * sum(message.images for message in messages)


def _too_long(sent: int, limit: int) -> str:
    return f"too_long\n> The prompt has {sent} tokens, but the context window is {limit} tokens."


def _refused(message: str, status: int = 400) -> Answer:
    return Answer(status, f"refused: {message}".encode(), LINES.content_type.decode())
