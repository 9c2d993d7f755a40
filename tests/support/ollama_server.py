"""An upstream that behaves as Ollama does: it loads models on demand, tells what it allocated in its own API only, and
cuts longer prompts without a word. Message by message, the oldest first, as `chatPrompt` does; never system or last.

https://github.com/ollama/ollama/blob/main/server/prompt.go
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.core.tokens import ByteClassCounter
from support.scripted_upstream import Connection, Request

COUNTER = ByteClassCounter()


@dataclass
class Ollama:
    """The script of a `ScriptedUpstream`."""

    allocates: int = 4096
    """OLLAMA_CONTEXT_LENGTH, or what the VRAM is good for."""
    num_ctx: int | None = None
    """Of the model's Modelfile."""
    has_own_api: bool = True
    can_load: bool = True
    fails_from: int | None = None
    """The number of the chat request from which on it fails."""
    counts: int | None = None
    """What it says of each prompt, in the place of what it counted."""
    loaded: int | None = None
    """The window that the model is loaded with."""
    models: tuple[str, ...] = ("gemma3:12b", "llama3.2:latest")
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    chats: list[dict[str, Any]] = field(default_factory=list)
    seen: list[list[dict[str, Any]]] = field(default_factory=list)
    """The messages that the model saw, for each chat."""

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            status, answer = self._answered(request)
            stream = isinstance(answer, bytes)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            kind = b"text/event-stream" if stream else b"application/json"
            head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body))
            await connection.send(head + body)

    def _answered(self, request: Request) -> tuple[int, Any]:
        method, path, _ = request.line.decode().split(" ")
        self.requests.append(f"{method} {path}")
        sent = json.loads(request.body) if request.body else {}
        if path == "/v1/models":
            return 200, {"data": [{"id": name, "object": "model", "owned_by": "library"} for name in self.models]}
        if path == "/v1/chat/completions":
            is_failing = self.fails_from is not None and len(self.chats) + 1 >= self.fails_from
            return (
                (500, {"error": {"message": "llama runner process no longer running"}})
                if is_failing
                else (
                    200,
                    self._chat(sent),
                )
            )
        if not self.has_own_api:
            return 404, {"error": "404 page not found"}
        return {
            "/api/version": lambda: (200, {"version": "0.15.5"}),
            "/api/ps": lambda: (200, {"models": self._ps()}),
            "/api/show": lambda: (200, self._show()),
            "/api/generate": lambda: self._generate(sent),
        }.get(path, lambda: (404, {"error": "404 page not found"}))()

    def _ps(self) -> list[dict[str, Any]]:
        return [{"name": self.models[0], "model": self.models[0], "context_length": self.loaded}] if self.loaded else []

    def _show(self) -> dict[str, Any]:
        set_there = f"num_ctx                        {self.num_ctx}\n" if self.num_ctx else ""
        return {"parameters": set_there + "temperature 1", "model_info": {"gemma3.context_length": 131072}}

    def _generate(self, sent: dict[str, Any]) -> tuple[int, Any]:
        assert sent == {"model": self.models[0]}, "with anything more it would be loaded otherwise"
        if not self.can_load:
            return 500, {"error": "model requires more system memory than is available"}
        self.loaded = self.num_ctx or self.allocates
        return 200, {"model": self.models[0], "response": "", "done": True, "done_reason": "load"}

    def _chat(self, sent: dict[str, Any]) -> dict[str, Any] | bytes:
        self.loaded = self.loaded or self.num_ctx or self.allocates
        self.chats.append(sent)
        kept = list(sent["messages"])
        while _tokens(kept) > self.loaded and (old := _oldest(kept)) is not None:
            del kept[old]
        self.seen.append(kept)
        prompt = self.counts or min(_tokens(kept), self.loaded - 1)
        usage = {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": prompt + 1}
        if not sent.get("stream"):
            message = {"role": "assistant", "content": "Done."}
            return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        events = [{"choices": [{"index": 0, "delta": {"content": "Done."}}]}, {"choices": [], "usage": usage}]
        return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def _oldest(messages: list[dict[str, Any]]) -> int | None:
    return next((at for at, one in enumerate(messages[:-1]) if one["role"] != "system"), None)


def _tokens(messages: list[dict[str, Any]]) -> int:
    return sum(4 + COUNTER.count(json.dumps(message)) for message in messages)
