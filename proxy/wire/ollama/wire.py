"""Ollama's own API as a wire: `/api/chat`.

Rule: an unchanged request keeps its own bytes; in a changed one, every member and message that was not touched keeps
its bytes. A request without messages loads or unloads a model, and passes unchanged.

https://docs.ollama.com/api/chat, and https://github.com/ollama/ollama/blob/main/server/routes.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from proxy.core.conversation.message import Message, ToolCall
from proxy.core.overflow import Sent, Verdict, VerdictKind
from proxy.core.retrieval_tool.tool import SPEC, RetrievalPolicy
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.errors import ProxyError
from proxy.wire.json_wire import OwnTool, names_in
from proxy.wire.ollama.message import OllamaMessage, id_of, may_hold_images, paired
from proxy.wire.ollama.replies import LINES, AnswerBody, AnswerStream, object_of, result_of, says_something
from proxy.wire.protocol import Wire, patterns_of
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
    """Each item is a message."""
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
    result_of = staticmethod(result_of)
    framing = LINES
    name = "ollama"
    path = "/api/chat"
    end = b"/api/chat"
    is_on_host = True
    greeting = b"Ollama is running"
    content_type = b"application/json; charset=utf-8"
    results_hold_media = False
    counts: ClassVar[Sequence[re.Pattern[bytes]]] = patterns_of("prompt_eval_count", "eval_count", "cached_count")
    """It counts what a cache had of the prompt as well."""

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        """One message, and no stream."""
        return {"messages": [{"role": "user", "content": words}], "stream": False}, "message"

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """What is no list of messages, such as null, stays."""
        if bytes(request.members.get(SHAPE.messages, b""))[:1] == b"[":
            return super().render(request, messages, members)
        return jsontext.join_object({**request.members, **members})

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """None if nothing is asked."""
        return super().with_tool(request, policy) if len(request.conversation) else None

    def forces_a_call(self, _: Mapping[str, Raw]) -> bool:
        """This API has no way to."""
        return False

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        """It names the tool, and the call if that has an id."""
        return result_of(id_of(call.id), text, call.name)

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a message has begun, and there is no word of a refusal."""
        return _REPLY.search(evidence) is not None and b'"error"' not in evidence and b'"length"' not in evidence

    def says_something(self, data: bytes) -> bool:
        """A line with only a role says nothing."""
        return bool(data) and says_something(object_of(data))

    def is_complete(self, told: bytes) -> bool:
        """By the line that says so, or by an error."""
        return _END.search(told[-TAIL_BYTES:]) is not None

    def reply(self, *, stream: bool) -> AnswerBody | AnswerStream:
        """One object, or lines."""
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
            body = _as_completion(line) if line else body
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
    """A line as a chat completion would say it: only its errors, its end and its counts are read."""
    if "error" in line:
        return jsontext.dump({"error": line["error"]})
    choice = {"message": line.get("message"), "finish_reason": line.get("done_reason")}
    usage = {"prompt_tokens": line.get("prompt_eval_count", 0), "completion_tokens": line.get("eval_count", 0)}
    return jsontext.dump({"choices": [choice], **({"usage": usage} if line.get("done") else {})})


OLLAMA: Final = Ollama()
