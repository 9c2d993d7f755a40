"""Ollama as its source has it (0.33): loads and unloads models, drops and cuts without a word, answers in lines.

https://github.com/ollama/ollama/blob/main/server/prompt.go, …/server/routes.go, …/llm/llama_server.go
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from support.upstream.model import ScriptedModel
from support.upstream.ollama import (
    COUNTER,
    CREATED_AT,
    GENERATE,
    KEPT_TOKENS,
    NO_SHIFT,
    Completion,
    Json,
    Refused,
    answered,
    as_lines,
    as_response,
    decoded,
    native_refusal,
    oldest,
    tokens_of,
    without_thoughts,
)
from support.upstream.replies import LINES, Answer, as_json
from support.upstream.script import Sent


@dataclass
class Model:
    """A model installed under a name."""

    num_ctx: int | None = None
    system: str = ""
    messages: Sequence[Json] = ()
    """What the Modelfile puts before those of a request."""
    strips_thoughts: bool = False
    """Whether `<think>` is taken out of what an assistant said before the last question, as for qwen3."""
    trained: int = 131_072
    shifts: bool = True
    is_native: bool = False
    """Whether llama-server renders its template, and refuses what is too long."""
    has_bos: bool = True
    needs_user: bool = False
    """Whether its renderer wants a message of a user, as those of qwen do."""
    capabilities: tuple[str, ...] = ("completion", "tools", "thinking", "vision")
    remote_window: int | None = None
    """Of a model at ollama.com, where `num_ctx` is ignored."""


@dataclass
class Chat:
    """One chat as the model got it."""

    sent: Json
    window: int
    seen: list[Json]
    """The messages that were left."""
    prompt_tokens: int
    was_cut: bool


@dataclass
class OllamaServer(ScriptedModel):
    """Ollama: it loads models on demand, tells what it allocated in its own API only, and cuts without a word."""

    models: dict[str, Model] = field(default_factory=lambda: {"m": Model()})
    replies: list[Completion] = field(default_factory=lambda: [Completion()])
    """The last one for ever."""
    allocates: int = 4_096
    """`OLLAMA_CONTEXT_LENGTH`."""
    has_ids: bool = True
    """Whether it gives calls an id, as since 0.13."""
    piece_bytes: int | None = None
    """Of the pieces in which a stream arrives; a line each if it is not stated."""
    loaded: dict[str, int] = field(default_factory=dict)
    loads: list[tuple[str, int]] = field(default_factory=list)
    chats: list[Chat] = field(default_factory=list)
    uploads: list[bytes] = field(default_factory=list)
    count: Callable[[str], int] = COUNTER.count
    """Of a text, in the model's tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rules = [*self.rules, lambda sent: self._answered_by(self.chat, sent.body)]
        self.beside = self._around

    def _answered_by(self, answer: Callable[[Json], list[Json]], raw: bytes) -> Answer:
        try:
            request = decoded(raw)
            lines = answer(request)
        except Refused as refused:
            return as_json({"error": str(refused)}, refused.status)
        body = as_lines(lines)
        if not request.get("stream", True):
            return Answer(200, body[0].rstrip(b"\n"), "application/json; charset=utf-8")
        return Answer(200, b"".join(body), LINES, piece_bytes=self.piece_bytes)

    # Chats

    def chat(self, sent: Json) -> list[Json]:
        """The lines of an answer, or the only object. Raises Refused."""
        name, messages = sent.get("model") or "", sent.get("messages") or []
        model, window = self._asked(name, sent)
        head = {"model": name, "created_at": CREATED_AT}
        if not messages:
            return [{**head, "message": {"role": "assistant", "content": ""}, **self._loads(name, sent)}]
        said_before = [*model.messages, *messages]
        if model.system and messages[0]["role"] != "system":
            said_before.insert(0, {"role": "system", "content": model.system})
        if model.strips_thoughts:
            said_before = without_thoughts(said_before)
        tools = json.dumps(sent["tools"]) if sent.get("tools") else ""
        kept, count, was_cut = self._prompt(model, sent, said_before, tools, window)
        self.chats.append(Chat(sent, window, kept, count, was_cut))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if not tools:
            reply = replace(reply, calls=())
        return answered(head, reply, count, self._number, is_stream=sent.get("stream", True))

    def prompt(self, sent: Json) -> list[Json]:
        """The same of a prompt."""
        name, prompt = sent.get("model") or "", sent.get("prompt") or ""
        model, window = self._asked(name, sent)
        head = {"model": name, "created_at": CREATED_AT}
        if not prompt:
            return [{**head, "response": "", **self._loads(name, sent)}]
        if sent.get("raw") and any(sent.get(one) for one in ("template", "system", "context")):
            raise Refused(400, "raw mode does not support template, system, or context")
        system = sent.get("system") or model.system
        messages = [{"role": "user", "content": prompt, "images": sent.get("images") or []}]
        messages = [{"role": "system", "content": system}, *messages] if system and not sent.get("raw") else messages
        extra = len(sent.get("context") or ())
        kept, count, was_cut = self._prompt(model, sent, messages, "", window, extra)
        self.chats.append(Chat(sent, window, kept, count, was_cut))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        lines = answered(head, replace(reply, calls=()), count, None, is_stream=sent.get("stream", True))
        return [as_response(line) for line in lines]

    @property
    def _number(self) -> int | None:
        return len(self.chats) if self.has_ids else None

    def _asked(self, name: str, sent: Json) -> tuple[Model, int]:
        if not name:
            raise Refused(400, "model is required")
        model = self.models.get(name)
        if model is None:
            raise Refused(404, f"model '{name}' not found")
        for wanted, needs in (("tools", "tools"), ("think", "thinking")):
            if sent.get(wanted) and needs not in model.capabilities:
                raise Refused(400, f'"{name}" does not support {needs}')
        if not (sent.get("messages") or sent.get("prompt")) and sent.get("keep_alive") == 0:
            return model, 0
        return model, self._loaded(name, model, (sent.get("options") or {}).get("num_ctx"))

    def _loads(self, name: str, sent: Json) -> Json:
        unloads = sent.get("keep_alive") == 0
        if unloads:
            self.loaded.pop(name, None)
        return {"done": True, "done_reason": "unload" if unloads else "load"}

    def _loaded(self, name: str, model: Model, num_ctx: Any) -> int:
        if model.remote_window is not None:
            return model.remote_window
        window = min(num_ctx or model.num_ctx or self.allocates, model.trained)
        if self.loaded.get(name) != window and not (num_ctx is None and name in self.loaded):
            self.loaded[name] = window
            self.loads.append((name, window))
        return self.loaded[name]

    def _prompt(
        self, model: Model, sent: Json, messages: Sequence[Json], tools: str, window: int, extra: int = 0
    ) -> tuple[list[Json], int, bool]:
        """What is left of the messages, the tokens of the prompt, and whether anything was left out."""

        def tokens() -> int:
            return extra + tokens_of(kept, tools, self.count)

        kept = list(messages)
        whole = len(kept)
        if model.remote_window is not None:
            over = tokens() - window
            if over > 0:
                raise Refused(400, f"prompt too long; exceeded max context length by {over} tokens (ref: a1b2)")
        elif "messages" in sent and sent.get("truncate", True):
            while tokens() > window and (old := oldest(kept)) is not None:
                del kept[old]
        if model.needs_user and not any(one["role"] == "user" for one in kept):
            raise Refused(500, "no user query found in messages")
        count = tokens()
        if count <= window - 1:
            return kept, count, len(kept) < whole
        if model.is_native or not sent.get("truncate", True) or any(one.get("images") for one in kept):
            raise Refused(400, json.dumps(native_refusal(count, window)))
        if not (model.shifts and sent.get("shift", True)):
            raise Refused(400, NO_SHIFT)
        kept_tokens = KEPT_TOKENS + model.has_bos
        return kept, window - max((window - kept_tokens) // 2, 1), True

    # Everything else

    def _around(self, _: str, path: str, body: bytes) -> Answer:
        if path == "/":
            return Answer(200, b"Ollama is running", "text/plain; charset=utf-8")
        if path.startswith(("/api/blobs/", "/api/pull")):
            self.uploads.append(body)
            return Answer(200, b'{"status":"pulling"}\n{"status":"success"}\n', LINES)
        if path == GENERATE and json.loads(body).keys() - {"model"}:
            return self._answered_by(self.prompt, body)
        try:
            found = self._shown_at(path, json.loads(body) if body else {})
        except Refused as refused:
            return as_json({"error": str(refused)}, refused.status)
        return Answer(200, json.dumps(found).encode(), "application/json; charset=utf-8")

    def _shown_at(self, path: str, sent: Json) -> Json:
        match path:
            case "/api/version":
                return {"version": "0.33.0"}
            case "/api/tags":
                return {"models": [{"name": name, "model": name} for name in self.models]}
            case "/v1/models":
                return {"object": "list", "data": [{"id": name, "owned_by": "library"} for name in self.models]}
            case "/api/ps":
                loaded = self.loaded.items()
                return {"models": [{"name": name, "model": name, "context_length": size} for name, size in loaded]}
            case "/api/show":
                return self._shown(self.models[sent["model"]])
            case "/api/generate":
                assert set(sent) == {"model"}, "with anything more it would be loaded otherwise"
                self._loaded(sent["model"], self.models[sent["model"]], None)
                return {"model": sent["model"], "response": "", "done": True, "done_reason": "load"}
        raise Refused(404, "404 page not found")

    def _shown(self, model: Model) -> Json:
        reported: Json = {"parameters": "temperature 1", "model_info": {"qwen3.context_length": model.trained}}
        if model.num_ctx:
            reported["parameters"] = f"num_ctx                        {model.num_ctx}\ntemperature 1"
        if model.remote_window is not None:
            reported |= {"remote_host": "https://ollama.com:443", "remote_model": "m"}
            reported["model_info"] = {"qwen3.context_length": model.remote_window}
        before = {"system": model.system, "messages": [*model.messages]}
        return reported | before | {"capabilities": [*model.capabilities]}

    @property
    def cuts(self) -> int:
        """How many chats were cut without a word."""
        return sum(chat.was_cut for chat in self.chats)


@dataclass
class OllamaOverChat(ScriptedModel):
    """Ollama behind chat completions: it tells what it allocated in its own API only, and leaves out whole messages,
    the oldest first, never system or last, as `chatPrompt` does."""

    allocates: int = 4_096
    """OLLAMA_CONTEXT_LENGTH, or what the VRAM is good for."""
    num_ctx: int | None = None
    """Of the model's Modelfile."""
    has_own_api: bool = True
    can_load: bool = True
    fails_from: int | None = None
    """The number of the chat request from which on it fails."""
    counted: int | None = None
    """What it says of each prompt, in the place of what it counted."""
    loaded: int | None = None
    """The window that the model is loaded with."""
    models: tuple[str, ...] = ("gemma3:12b", "llama3.2:latest")
    read: list[list[Json]] = field(default_factory=list)
    """The messages that the model saw, for each chat."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rules, self.beside = [*self.rules, self._cut], self._around
        self.lists = [{"id": name, "object": "model", "owned_by": "library"} for name in self.models]

    @property
    def chats(self) -> list[Json]:
        return [sent.json for sent in self.sent]

    def _cut(self, sent: Sent) -> Answer | None:
        if self.fails_from is not None and len(self.read) + 1 >= self.fails_from:
            return sent.face.error("llama runner process no longer running", 500)
        self.loaded = self.loaded or self.num_ctx or self.allocates
        kept = list(sent.messages)
        while _as_written(kept) > self.loaded and (old := oldest(kept)) is not None:
            del kept[old]
        self.read.append(kept)
        sent.tokens = self.counted or min(_as_written(kept), self.loaded - 1)
        return None

    def _around(self, _: str, path: str, body: bytes) -> Answer | None:
        if path == "/v1/models":
            return None
        if not self.has_own_api:
            return as_json({"error": "404 page not found"}, 404)
        match path:
            case "/api/version":
                return as_json({"version": "0.15.5"})
            case "/api/ps":
                name = self.models[0]
                loaded = [{"name": name, "model": name, "context_length": self.loaded}] if self.loaded else []
                return as_json({"models": loaded})
            case "/api/show":
                stated = f"num_ctx                        {self.num_ctx}\n" if self.num_ctx else ""
                return as_json(
                    {"parameters": f"{stated}temperature 1", "model_info": {"gemma3.context_length": 131072}}
                )
            case "/api/generate":
                return self._load(json.loads(body))
        return as_json({"error": "404 page not found"}, 404)

    def _load(self, sent: Json) -> Answer:
        assert sent == {"model": self.models[0]}, "with anything more it would be loaded otherwise"
        if not self.can_load:
            return as_json({"error": "model requires more system memory than is available"}, 500)
        self.loaded = self.num_ctx or self.allocates
        return as_json({"model": self.models[0], "response": "", "done": True, "done_reason": "load"})


def _as_written(messages: Sequence[Json]) -> int:
    return sum(4 + COUNTER.count(json.dumps(message)) for message in messages)
