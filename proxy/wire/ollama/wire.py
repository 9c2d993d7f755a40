"""Ollama's own API as two wires, `/api/chat`, `/api/generate`.

Rule: an unchanged request keeps its own bytes; in a changed one, every member and message that was not touched keeps
its bytes. A request without messages or without a prompt loads or unloads a model, and passes unchanged.

https://docs.ollama.com/api/chat, https://docs.ollama.com/api/generate, and
https://github.com/ollama/ollama/blob/main/server/routes.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

from msgspec.structs import replace

from proxy.core.conversation import Conversation, Message, ToolCall
from proxy.core.overflow import Counted, Sent, Verdict, VerdictKind
from proxy.core.retrieval_tool import SPEC, RetrievalPolicy
from proxy.core.text import Raw, jsontext
from proxy.errors import ProxyError
from proxy.wire.error_bodies import judge_answer
from proxy.wire.json_messages import OwnTool, names_in
from proxy.wire.ollama.message import OllamaMessage, id_of, may_hold_images, paired
from proxy.wire.ollama.replies import LINES, AnswerBody, AnswerStream, object_of, result_of, says_something
from proxy.wire.protocol import SAYS_NO, Wire, patterns_of
from proxy.wire.request import Request, RequestShape
from proxy.wire.streams import TAIL_BYTES

_MAX_WORDS_CHARACTERS: Final = 2_000
_REPLY: Final = re.compile(rb'"message"\s*:\s*\{')
_END: Final = re.compile(
    rb'"done"\s*:\s*true\s*(?:,\s*"(?:done_reason|context|total_duration)"|\}\s*\Z)|^\{"error"\s*:', re.MULTILINE
)
"""Quotes in a model's text are escaped; the arguments of a call may contain a member of that name, too."""
_LOADED: Final = ("load", "unload")
"""Reasons for which a reply is empty."""


def _read(items: Sequence[Raw]) -> list[tuple[Message, int]]:
    messages = paired([OllamaMessage.read(raw) for raw in items])
    return [(message, count) for count, message in enumerate(messages, start=1)]


def _name(tool: Any) -> str:
    return jsontext.string_in(jsontext.object_in(tool, "function"), "name")


_FUNCTION: Final = {"name": SPEC.name, "description": SPEC.description, "parameters": SPEC.schema}
_DEFINITION: Final = jsontext.dump({"type": "function", "function": _FUNCTION})
SHAPE: Final = RequestShape(
    "messages",
    (("options", "num_predict"),),
    _read,
    may_hold_images,
    joined=paired,
    may_be_plain=True,
    window=("options", "num_ctx"),
    streams=True,
)


class Ollama(Wire):
    """`/api/chat`; the base class describes each member."""

    shape = SHAPE
    read_message = staticmethod(OllamaMessage.read)
    own_tool = OwnTool(_DEFINITION, partial(names_in, name_of=_name))
    forms = MappingProxyType({"format": ()})
    result_of = staticmethod(result_of)
    framing = LINES
    name = "ollama"
    api = "ollama"
    path = "/api/chat"
    end = b"/api/chat"
    is_on_host = True
    greeting = b"Ollama is running"
    content_type = b"application/json; charset=utf-8"
    results_hold_media = False
    counts: ClassVar[Sequence[re.Pattern[bytes]]] = patterns_of("prompt_eval_count", "eval_count", "cached_count")
    """The count includes cached tokens of the prompt."""

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """One message, not streamed."""
        return {"messages": [{"role": "user", "content": words}], "stream": False}, "message"

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """`messages` that is not a list, such as null, stays as it is."""
        if bytes(request.members.get(SHAPE.messages, b""))[:1] == b"[":
            return super().render(request, messages, members)
        return jsontext.join_object({**request.members, **members})

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """None for a request without messages."""
        return super().with_tool(request, policy) if len(request.conversation) else None

    def forces_a_call(self, _: Mapping[str, Raw]) -> bool:
        """This API has no way to."""
        return False

    def forbidding_cuts(self, request: Request) -> Mapping[str, Raw]:
        """`truncate`, unless the client says it itself."""
        return {} if "truncate" in request.members else {"truncate": b"false"}

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        """It names the tool, and the call if that has an id."""
        return result_of(id_of(call.id), text, call.name)

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a message has begun, and there is no word of a refusal."""
        return _REPLY.search(evidence) is not None and evidence.find(b'"error"') < 0 and evidence.find(b'"length"') < 0

    def says_something(self, data: bytes) -> bool:
        """A line with only a role says nothing."""
        return bool(data) and says_something(object_of(data))

    def counted(self, end: bytes) -> Counted | None:
        """The counts stand behind `done`; arguments of a call, which are no text here, stand before it."""
        return super().counted(end[max(0, end.rfind(b'"done"')) :])

    def is_complete(self, ending: bytes) -> bool:
        """A stream ends with the line that says so, or with an error; neither may be cut off."""
        tail = ending[-TAIL_BYTES:].rstrip()
        return tail.endswith(b"}") and _END.search(tail) is not None

    def reply(self, *, stream: bool) -> AnswerBody | AnswerStream:
        return AnswerStream() if stream else AnswerBody()

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """A success is judged by the line that says something, in the words of chat completions."""
        if status < 400:
            lines = [object_of(body)] if object_of(body) else [*map(object_of, body.splitlines())]
            line = next(filter(says_something, lines), {})
            if line.get("done_reason") in _LOADED:
                return Verdict(kind=VerdictKind.ACCEPTED)
            counts = (line.get(name) for name in ("prompt_eval_count", "eval_count"))  # absent: none
            counted = Counted(*(one if type(one) is int else 0 for one in counts)) if line.get("done") else None
            body = _as_completion(line) if line else body
            return judge_answer(status, headers, body, sent=sent, request=request, counted=counted)
        return super().judged(status, headers, body, sent=sent, request=request)

    def error(self, error: ProxyError, _: str = "") -> bytes:
        """A text."""
        return jsontext.dump({"error": error.message})

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """A text. An error of another shape, as of a gateway, becomes one."""
        found = object_of(body)
        if isinstance(found.get("error"), str) or (status == 200 and found):
            return body
        words = jsontext.string_in(found.get("error"), "message") or body.decode("utf-8", "replace")
        words = words[:_MAX_WORDS_CHARACTERS]
        return jsontext.dump({"error": words or f"HTTP {status}"})

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """A line."""
        return self.error_in_body(status, body).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def _as_completion(line: Mapping[str, Any]) -> bytes:
    """A line as a chat completion would say it: only its errors and its end are read."""
    if "error" in line:
        return jsontext.dump({"error": line["error"]})
    message = line.get("message", {"content": line.get("response", "")})
    choice = {"message": message, "finish_reason": line.get("done_reason")}
    return jsontext.dump({"choices": [choice]})


OLLAMA: Final = Ollama()

# Prompts

_PROMPT_SHAPE: Final = SHAPE._replace(messages="")
"""A prompt has no list of messages."""
_UNREAD_SHAPE: Final = _PROMPT_SHAPE._replace(is_whole=False)
"""Shape of a request whose prompt is not read; the server's count says nothing about it."""
_NOT_PLAIN: Final = frozenset(("raw", "suffix", "context", "template"))
"""Members with which a prompt is a part of a longer text, or continues what only the server can read."""
_RESPONSE: Final = re.compile(rb'"response"\s*:\s*"')


class OllamaPrompts(Ollama):
    """`/api/generate`: a prompt is a conversation of one message. One that is not plain passes unchanged."""

    shape = _PROMPT_SHAPE
    name = ""
    api = "ollama_generate"
    path = "/api/generate"
    end = b"/api/generate"
    greeting = b""
    read_members: ClassVar[frozenset[str]] = frozenset({"tools", "prompt", "images", "system"})

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """A prompt, and no stream."""
        return {"prompt": words, "stream": False}, "response"

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """The prompt, and the images beside it, as a message of a user."""
        request = super().parse(body, known, shared, will_be_known=will_be_known)
        members, nothing = request.members, Conversation()
        if any(bytes(members[name]) not in SAYS_NO for name in _NOT_PLAIN & members.keys()):
            return replace(request, conversation=nothing, shape=_UNREAD_SHAPE)
        prompt = members.get("prompt", b"null")
        if bytes(memoryview(prompt)[:1]) != b'"' or bytes(prompt) in SAYS_NO:
            return replace(request, conversation=nothing)
        images = {name: members[name] for name in ("images",) if name in members}
        raw = jsontext.join_object({"role": b'"user"', "content": prompt, **images})
        return replace(request, conversation=Conversation((OllamaMessage.read(raw),)))

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """The message as a prompt, and images beside it."""
        made = {**request.members, **members}
        for message in messages:
            found = dict(cast(OllamaMessage, message).members())
            made["prompt"] = found["content"]
            made = made | {"images": found["images"]} if "images" in found else _without_images(made)
        return jsontext.join_object(made)

    def instructions(self, members: Mapping[str, Raw]) -> bytes:
        """`system`, instead of the Modelfile's."""
        return bytes(members.get("system", b""))

    def long_members(self, request: Request) -> Mapping[str, bytes]:
        """None if the prompt is not read."""
        return super().long_members(request) if len(request.conversation) else {}

    def with_tool(self, _: Request, __: RetrievalPolicy) -> None:
        """A prompt has no tools."""

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a response has begun, and there is no word of a refusal."""
        return (
            _RESPONSE.search(evidence) is not None and evidence.find(b'"error"') < 0 and evidence.find(b'"length"') < 0
        )


def _without_images(members: Mapping[str, Raw]) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name != "images"}


OLLAMA_PROMPTS: Final = OllamaPrompts()
