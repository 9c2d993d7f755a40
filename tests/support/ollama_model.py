"""Ollama as its source has it (0.33): decodes as Go does, renders and counts with one fixed counter, drops and cuts
without a word, loads and unloads models, answers in lines.

https://github.com/ollama/ollama/blob/main/server/prompt.go, …/server/routes.go, …/llm/llama_server.go
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import Receive, Scope, Send

from proxy.core.tokens import ByteClassCounter
from support.journey import Received

Json = dict[str, Any]
COUNTER = ByteClassCounter()
CHAT = "/api/chat"
GENERATE = "/api/generate"
IMAGE_TOKENS = 768
CREATED_AT = "2026-11-23T10:00:00.123456789Z"
KEPT_TOKENS = 4
"""`num_keep`."""
_REQUEST_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "model": str,
    "messages": list,
    "prompt": str,
    "suffix": str,
    "system": str,
    "template": str,
    "context": list,
    "raw": bool,
    "images": list,
    "tools": list,
    "stream": bool,
    "keep_alive": (str, int, float),
    "format": (str, dict),
    "options": dict,
    "think": (bool, str),
    "truncate": bool,
    "shift": bool,
    "logprobs": bool,
    "top_logprobs": int,
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "role": str,
    "content": str,
    "thinking": str,
    "images": list,
    "tool_calls": list,
    "tool_name": str,
    "tool_call_id": str,
}
NO_SHIFT = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


class Refused(Exception):
    """An error before the first byte."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Completion:
    """One reply of the model."""

    content: str = "Done."
    thinking: str = ""
    calls: Sequence[tuple[str, Json]] = ()
    reason: str = "stop"
    error: str = ""
    """Breaks the reply off in the middle, where it is a stream."""


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
class OllamaModel:
    """An `Answer` of a journey's upstream: chats are journeys' requests, everything else is answered beside them."""

    models: dict[str, Model] = field(default_factory=lambda: {"m": Model()})
    says: list[Completion] = field(default_factory=lambda: [Completion()])
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
    requests: list[str] = field(default_factory=list)
    """Method and path of everything else."""
    uploads: list[bytes] = field(default_factory=list)
    count: Callable[[str], int] = COUNTER.count
    """Of a text, in the model's tokens."""

    async def __call__(self, received: Received, send: Send) -> bool:
        await self._answered(self.chat, received.body, send)
        return True

    async def _answered(self, answer: Callable[[Json], list[Json]], sent: bytes, send: Send) -> None:
        try:
            request = decoded(sent)
            lines = answer(request)
        except Refused as refused:
            await _send(send, json.dumps({"error": str(refused)}).encode(), b"application/json", refused.status)
            return
        body = as_lines(lines)
        if request.get("stream", True):
            await self._stream(send, body)
        else:
            await _send(send, body[0].rstrip(b"\n"), b"application/json; charset=utf-8")

    async def _stream(self, send: Send, pieces: Sequence[bytes]) -> None:
        if self.piece_bytes is not None:
            whole, count = b"".join(pieces), self.piece_bytes
            pieces = [whole[start : start + count] for start in range(0, len(whole), count)]
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/x-ndjson")]}
        )
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

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
        reply = self.says.pop(0) if len(self.says) > 1 else self.says[0]
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
        reply = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        lines = answered(head, replace(reply, calls=()), count, None, is_stream=sent.get("stream", True))
        return [_as_response(line) for line in lines]

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
            while tokens() > window and (old := _oldest(kept)) is not None:
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

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All of it as an application."""
        if scope["type"] != "http" or scope["path"] != CHAT:
            await self.beside(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await self(Received(body, dict(scope["headers"]), {}), send)

    # Everything else

    async def beside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any other path."""
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.requests.append(f"{scope['method']} {scope['path']}")
        if scope["path"] == "/":
            await _send(send, b"Ollama is running", b"text/plain; charset=utf-8")
            return
        if scope["path"].startswith(("/api/blobs/", "/api/pull")):
            self.uploads.append(body)
            await self._stream(send, [b'{"status":"pulling"}\n', b'{"status":"success"}\n'])
            return
        if scope["path"] == GENERATE and json.loads(body).keys() - {"model"}:
            await self._answered(self.prompt, body, send)
            return
        try:
            answer = self._beside(scope["path"], json.loads(body) if body else {})
        except Refused as refused:
            await _send(send, json.dumps({"error": str(refused)}).encode(), b"application/json", refused.status)
            return
        await _send(send, json.dumps(answer).encode(), b"application/json; charset=utf-8")

    def _beside(self, path: str, sent: Json) -> Json:
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


def answered(head: Json, reply: Completion, prompt_tokens: int, number: int | None, *, is_stream: bool) -> list[Json]:
    """The lines of a reply, or the only object. `number`: of the reply, in the ids of its calls; None: they have none.
    Raises Refused."""
    calls = [
        {
            **({} if number is None else {"id": f"call_{number:04d}{index:04d}"}),
            "function": {"index": index, "name": name, "arguments": arguments},
        }
        for index, (name, arguments) in enumerate(reply.calls)
    ]
    count = len(reply.content) + len(reply.thinking) + 9 * len(calls)
    counts = {"total_duration": 900, "load_duration": 100, "prompt_eval_count": prompt_tokens}
    counts |= {"prompt_eval_duration": 300, "eval_count": count, "eval_duration": 500}
    if reply.error and not is_stream:
        raise Refused(500, reply.error)
    if not is_stream:
        message = _message(reply.content, reply.thinking, calls)
        return [{**head, "message": message, "done": True, "done_reason": reply.reason, **counts}]
    lines = [_message("", piece) for piece in _pieces(reply.thinking)]
    lines += [_message(piece) for piece in _pieces(reply.content)] + [_message("", "", [call]) for call in calls]
    reported: list[Json] = [{**head, "message": message, "done": False} for message in lines]
    if reply.error:
        return [*reported, {"error": reply.error}]
    return [*reported, {**head, "message": _message(""), "done": True, "done_reason": reply.reason, **counts}]


def as_lines(lines: Sequence[Json]) -> list[bytes]:
    """As they go over the wire, each with its end."""
    return [json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines]


def tokens_of(messages: Sequence[Json], tools: str = "", count: Callable[[str], int] = COUNTER.count) -> int:
    """Of a rendered prompt."""
    texts = sum(4 + count(_rendered(message)) for message in messages)
    return 3 + count(tools) + texts + IMAGE_TOKENS * sum(len(one.get("images") or ()) for one in messages)


def without_thoughts(messages: Sequence[Json]) -> list[Json]:
    """Remove thinking from assistant texts before the last question."""
    last = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=0)
    return [
        {**one, "content": re.sub(r"(?s)<think>.*?</think>", "", one.get("content", ""))}
        if at < last and one["role"] == "assistant"
        else one
        for at, one in enumerate(messages)
    ]


def _as_response(line: Json) -> Json:
    message = line.pop("message", {})
    thought = {"thinking": message["thinking"]} if "thinking" in message else {}
    return line if "error" in line else {**line, "response": message["content"], **thought}


def _rendered(message: Json) -> str:
    texts = [message.get("content", ""), message.get("thinking", "")]
    for call in message.get("tool_calls") or ():
        texts += [call["function"]["name"], _marshalled(call["function"]["arguments"])]
    return "\n".join(filter(None, texts))


def _marshalled(found: Any) -> str:
    """JSON as Go's `json.Marshal` writes it, which templates use."""
    written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda one: f"\\u{ord(one[0]):04x}", written)


def decoded(body: bytes) -> Json:
    """The request in a body. Raises Refused."""
    try:
        sent: Json = json.loads(body)
    except ValueError:
        raise Refused(400, "invalid character looking for beginning of value") from None
    check(sent)
    return sent


def check(sent: Json) -> None:
    """Raises Refused for what Go's decoder does not take."""
    _check(sent, _REQUEST_TYPES, "Request")
    for name, found in (sent.get("options") or {}).items():
        if name in ("num_ctx", "num_predict") and type(found) is not int and found is not None:
            raise Refused(400, f'option "{name}" must be of type integer')
    _check_images(sent)
    for message in sent.get("messages") or ():
        _check(message, _TYPES, "Message")
        _check_images(message)
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                raise Refused(400, "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments")


def _check(found: Any, types: Mapping[str, type | tuple[type, ...]], kind: str) -> None:
    if not isinstance(found, dict):
        raise Refused(400, f"json: cannot unmarshal {type(found)} into Go value of type api.{kind}")
    for name, wanted in types.items():
        if found.get(name) is not None and not isinstance(found[name], wanted):
            raise Refused(400, f"json: cannot unmarshal {type(found[name])} into Go struct field {kind}.{name}")


def _check_images(found: Json) -> None:
    for image in found.get("images") or ():
        try:
            base64.b64decode(image, validate=True)
        except ValueError:
            raise Refused(400, "illegal base64 data at input byte 4") from None


def _oldest(messages: Sequence[Json]) -> int | None:
    return next((at for at, one in enumerate(messages[:-1]) if one["role"] != "system"), None)


def native_refusal(count: int, window: int) -> Json:
    """The error in llama-server's words, which Ollama forwards as a string in its own."""
    message = f"request ({count} tokens) exceeds the available context size ({window} tokens), try increasing it"
    reported = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return {"error": {**reported, "n_prompt_tokens": count, "n_ctx": window}}


def _message(content: str, thinking: str = "", calls: Sequence[Json] = ()) -> Json:
    reported: Json = {"role": "assistant", "content": content}
    return reported | ({"thinking": thinking} if thinking else {}) | ({"tool_calls": [*calls]} if calls else {})


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


async def _send(send: Send, body: bytes, content_type: bytes, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]})
    await send({"type": "http.response.body", "body": body})
