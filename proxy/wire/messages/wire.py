"""The Messages API as a wire.

Rule: an unchanged request keeps its own bytes; in a changed one, every member, message and block that was not touched
keeps its bytes. `system` and all other members are never touched, except for the reply limit, thinking that must stay
below it, and the tool list, which gets one more tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from proxy.core.conversation import Conversation, Message
from proxy.core.overflow import Counted
from proxy.core.retrieval_tool import SPEC, RetrievalPolicy
from proxy.core.text import Raw, jsontext
from proxy.errors import ContextOverflow, ProxyError
from proxy.wire.json_messages import OwnTool, names_in
from proxy.wire.messages.blocks import IMAGE, kind_of, texts_of
from proxy.wire.messages.message import ApiMessage
from proxy.wire.messages.reading import (
    begins_with_thinking,
    changes_what_was_read,
    count_of_items,
    ignored,
    joined,
    loop_start,
    may_continue,
    read,
)
from proxy.wire.messages.replies import AnswerBody, AnswerStream, counted_in, result_of
from proxy.wire.protocol import Wire
from proxy.wire.request import THINKING, Request, RequestShape
from proxy.wire.streams import TAIL_BYTES

# Tools

_FORCES: Final = frozenset({"any", "tool"})
_DEFINITION: Final = jsontext.dump({"name": SPEC.name, "description": SPEC.description, "input_schema": SPEC.schema})


# The end of a stream

_END: Final = re.compile(rb'[\r\n]data: ?\{[^\r\n]*"type"\s*:\s*"(?:message_stop|error)"')
"""The final event on its own line; quotes in the model's own text are escaped."""


# Errors

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_SERVER_ERROR: Final = "api_error"
_CLIENT_ERRORS: Final = range(400, 500)
_ERROR: Final = re.compile(rb'^\s*\{\s*"type"\s*:\s*"error"')
_MAX_MESSAGE_CHARS: Final = 2_000


def type_of(status: int) -> str:
    """The error type that belongs to a status.

    >>> type_of(404), type_of(422), type_of(502)
    ('not_found_error', 'invalid_request_error', 'api_error')
    """
    return _TYPES.get(status, _TYPES[400] if status in _CLIENT_ERRORS else _SERVER_ERROR)


def _message_in(body: bytes) -> str:
    """The message of another API's error, or the whole body."""
    found = jsontext.opened(body)
    inner = found.get("error", found) if isinstance(found, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return (message if isinstance(message, str) else body.decode("utf-8", "replace"))[:_MAX_MESSAGE_CHARS]


def _body(kind: str, message: str, request_id: str = "") -> bytes:
    named = {"request_id": request_id} if request_id else {}
    return jsontext.dump({"type": "error", "error": {"type": kind, "message": message}, **named})


# The wire

_BLOCK: Final = re.compile(rb'"content"\s*:\s*\[\s*\{|"content_block_start"')
_IMAGE: Final = f'"{IMAGE}"'.encode()
_EDITS: Final = re.compile(rb"clear_tool_uses|compact")
"""Edits in `context_management`, which Claude Code always sends, to keep the reasoning."""
_TRIAL_TOKENS: Final = 256
"""Limit of a reply to three words; the API requires one."""
_THREAD: Final = "thread"
_THINKING: Final = "thinking"
_PLACE: Final = re.compile(r"messages\.(\d{1,6})\.")
"""Matches "messages.1.content.0: Invalid `signature` in `thinking` block"."""
_SAYS_NOTHING: Final = frozenset({"message_start", "ping"})
"""Some gateways begin a stream before they know whether the upstream accepts the request (CLIProxyAPI)."""
_BILLING: Final = "x-anthropic-billing-header"
"""Claude Code's first block of `system`, different in every request; Anthropic removes it before it counts.
https://code.claude.com/docs/en/llm-gateway"""


def _thinks(request: Request) -> bool:
    """Whether thinking is enabled in the way that demands it in a running tool loop; adaptive thinking does not."""
    return kind_of(jsontext.opened(request.members.get(_THINKING))) == "enabled"


def _lacks_thinking(request: Request, messages: Sequence[Message]) -> bool:
    return _thinks(request) and not begins_with_thinking(messages)


def _may_hold_images(raw: bytes) -> bool:
    return raw.find(_IMAGE) >= 0


def _may_hold_files(raw: bytes) -> bool:
    return raw.find(b'"document"') >= 0


SHAPE: Final = RequestShape(
    "messages",
    (("max_tokens",),),
    read,
    _may_hold_images,
    _may_hold_files,
    may_continue=may_continue,
    reads_anew=changes_what_was_read,
    reasoning_limits=(THINKING,),
)
_HELD: Final = SHAPE._replace(is_whole=False)
"""Shape of a request that continues a conversation that the upstream holds."""


class Messages(Wire):
    """`/messages`; the base class describes each member."""

    shape = SHAPE
    read_message = staticmethod(ApiMessage.read)
    own_tool = OwnTool(_DEFINITION, partial(names_in, name_of=partial(jsontext.string_in, name="name")))
    forms = MappingProxyType({"output_format": (), "output_config": ("format",)})
    result_of = staticmethod(result_of)
    name = "messages"
    api = "messages"
    path = "/messages"
    end = b"/v1/messages"
    client_tools = re.compile("(?:custom|(?:bash|computer|memory|text_editor)_.*)?")
    read_members = frozenset({"tools", "system"})
    results_hold_media = True
    id_header = b"request-id"

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        return {"messages": [{"role": "user", "content": words}], "max_tokens": _TRIAL_TOKENS}, "content"

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Raises MalformedRequest. If the upstream holds the conversation, the new messages are not parsed."""
        request = super().parse(body, known, shared, will_be_known=will_be_known)
        if kind_of(jsontext.opened(request.members.get(_THREAD))) != "continue":
            return request
        items = [bytes(item) for item in jsontext.items(dict(jsontext.members(body))[SHAPE.messages])]
        new = Conversation((ignored(items),))
        return replace(request, conversation=new, shape=_HELD, reply_tokens=None, ends=(), has_images=False)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """The views of one API message are joined again. Thinking is disabled where a running tool loop has none,
        because a repair has left it out or a round had no room for it: "When `thinking` is enabled, a final `assistant`
        message must start with a thinking block". If the client sent it so, its upstream may not ask for one.
        """
        listed = joined(messages, request.conversation.messages)
        is_as_sent = not (request.healed or request.put_in) and self.lacks_reasoning(request)
        if _lacks_thinking(request, messages) and not is_as_sent:
            members = {**members, _THINKING: THINKING.disabled}
        return jsontext.join_object({**request.members, **members, SHAPE.messages: listed})

    def unsealed(self, request: Request, sent: Sequence[Message], refusal: str, language: str) -> Request:
        """Remove the thinking of finished turns. That of a running tool loop goes if the refusal names a place in it,
        or none is elsewhere; or if it may go although thinking stays enabled."""
        if not _thinks(request):
            return request.unsealed(None, language)
        named = _PLACE.search(refusal)
        is_in_loop = named is not None and int(named[1]) >= count_of_items(sent[: loop_start(sent)])
        left = request if is_in_loop else request.unsealed(loop_start(request.conversation.messages))
        return request.unsealed(None, language) if left is request else left

    def lacks_reasoning(self, request: Request) -> bool:
        """True after, for example, a round whose reply limit left no room for thinking."""
        return _lacks_thinking(request, request.conversation.messages)

    def instructions(self, members: Mapping[str, Raw]) -> bytes:
        """The texts of `system`, without Claude Code's first block."""
        system = jsontext.opened(members.get("system"))
        texts = [text for text in texts_of(system) if not text.startswith(_BILLING)]
        return "\n".join(texts).encode("utf-8", "replace")

    def adds_to_prompt(self, request: Request, *, by_tools: bool = True) -> bool:
        """The server may also leave out old tool results, or summarise them."""
        edits = _EDITS.search(request.members.get("context_management", b""))
        return edits is not None or super().adds_to_prompt(request, by_tools=by_tools)

    def may_name_images(self, raw: bytes) -> bool:
        """Images are named by the same type, whose quotes are escaped inside a text; tool results may use the names of
        other APIs."""
        return raw.find(b"image") >= 0

    def asks_for_a_longer_window(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Stated in `anthropic-beta`, which Claude Code sends for `claude-…[1m]`; its value ends in the date of the
        beta. https://platform.claude.com/docs/en/build-with-claude/context-windows"""
        return any(name == b"anthropic-beta" and b"context-1m-" in value for name, value in headers)

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """The key in both headers, as Claude Code's `apiKeyHelper` sends a key: Anthropic reads the first, self-hosted
        servers the second. https://code.claude.com/docs/en/iam"""
        return [(b"x-api-key", key.encode()), (b"authorization", b"Bearer " + key.encode())]

    def list_headers(self, key: str) -> Mapping[bytes, bytes]:
        """The headers of a model list, with a version: https://platform.claude.com/docs/en/api/models/list"""
        return {**super().list_headers(key), b"anthropic-version": b"2023-06-01"}

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The list with `read_artifact` at its end; None if the upstream holds the conversation."""
        return super().with_tool(request, policy) if request.shape.is_whole else None

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """`tool_choice` is an object here."""
        return kind_of(jsontext.opened(members.get("tool_choice"))) in _FORCES

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a block has begun, and there is no word of a refusal."""
        return (
            _BLOCK.search(evidence) is not None
            and evidence.find(b"error") < 0
            and evidence.find(b"context") < 0
            and evidence.find(b'"max_tokens"') < 0
        )

    def says_something(self, data: bytes) -> bool:
        """The beginning of a message says nothing yet."""
        return bool(data) and kind_of(jsontext.opened(data)) not in _SAYS_NOTHING

    def counted(self, end: bytes) -> Counted | None:
        return counted_in(end)

    def is_complete(self, ending: bytes) -> bool:
        """A stream ends with `message_stop`, or an error.
        https://platform.claude.com/docs/en/build-with-claude/streaming"""
        return _END.search(ending[-TAIL_BYTES:]) is not None

    def reply(self, *, stream: bool) -> AnswerBody | AnswerStream:
        """A message, or its events."""
        return AnswerStream() if stream else AnswerBody()

    def error(self, error: ProxyError, request_id: str = "") -> bytes:
        """Anthropic's error shape, https://platform.claude.com/docs/en/api/errors. A prompt that does not fit is always
        reported in the one sentence that every client of this API knows, whatever the upstream's words. Clients parse
        its numbers and calculate with them."""
        message = error.message
        if isinstance(error, ContextOverflow) and error.sizes is not None:
            prompt, most = error.sizes
            message = f"prompt is too long: {prompt} tokens > {most} maximum. {error.advice}"
        return _body(type_of(error.status), message, request_id)

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """Anything that is no error of this API becomes one."""
        if status == 200 or _ERROR.match(body):
            return body
        return _body(type_of(status), _message_in(body) or f"HTTP {status}")

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """An `error` event."""
        # Line ends in JSON are white space, and most clients do not read data of several lines.
        line = self.error_in_body(status, body).replace(b"\r", b" ").replace(b"\n", b" ")
        return b"event: error\ndata: " + line + b"\n\n"


MESSAGES: Final = Messages()
