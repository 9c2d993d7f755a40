"""Chat completions as a wire: OpenAI's API, and all compatible ones.

Rule: an unchanged request keeps its own bytes; in a changed one, every member and message that was not touched keeps
its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.core.conversation.message import Message, ToolCall
from proxy.core.overflow import Counted
from proxy.core.retrieval_tool.hidden_calls import OwnCall
from proxy.core.retrieval_tool.tool import RetrievalPolicy
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.wire.chat_completions import answer_end, errors, tools
from proxy.wire.chat_completions.answer_body import AnswerBody
from proxy.wire.chat_completions.answer_stream import AnswerStream
from proxy.wire.chat_completions.assistant import result_of
from proxy.wire.chat_completions.counted import counted_in
from proxy.wire.chat_completions.message import ChatMessage
from proxy.wire.error_bodies import holds_nothing
from proxy.wire.json_wire import JsonWire
from proxy.wire.request import Request, RequestShape, read_request

_FILE: Final = re.compile(rb'"(?:file_data|file_id|input_audio|video_url)"')
"""Names of parts and their members; inside a text, their quotes are escaped."""
_CHOICE: Final = re.compile(rb'"choices"\s*:\s*\[\s*\{')


def _read(items: Sequence[Raw]) -> list[tuple[Message, int]]:
    """Each item is a message."""
    return [(ChatMessage.read(raw), count) for count, raw in enumerate(items, start=1)]


def _may_hold_images(raw: bytes) -> bool:
    return b'"image_url"' in raw


def _may_hold_files(raw: bytes) -> bool:
    return _FILE.search(raw) is not None


SHAPE: Final = RequestShape(
    "messages", ("max_completion_tokens", "max_tokens"), _read, _may_hold_images, _may_hold_files
)
"""Of the two limits, the newer name takes precedence."""


class ChatCompletions(JsonWire):
    """`/chat/completions`; the protocol describes each member."""

    path: Final = "/chat/completions"
    results_hold_media: Final = False
    results_may_repeat: Final = False

    def parse(
        self, body: bytes, known: Request | None = None, shared: int = 0, *, will_be_known: bool = True
    ) -> Request:
        """Raises MalformedRequest."""
        return read_request(SHAPE, body, known, shared, will_be_known=will_be_known)

    def render(self, request: Request, messages: Sequence[Message], members: Mapping[str, Raw]) -> bytes:
        """Each message is an item of the list."""
        listed = jsontext.join_array([message.raw for message in messages])
        return jsontext.join_object({**request.members, **members, SHAPE.messages: listed})

    def message(self, raw: bytes) -> Message:
        """A message from its bytes."""
        return ChatMessage.read(raw)

    def instructions(self, _: Mapping[str, Raw]) -> bytes:
        """They are messages."""
        return b""

    def may_hold_images(self, raw: bytes) -> bool:
        """By the name of the part that holds one."""
        return _may_hold_images(raw)

    def may_name_images(self, raw: bytes) -> bool:
        """By the same name; the quotes around it are escaped inside a text."""
        return b"image_url" in raw

    def tool_names(self, found: bytes) -> Sequence[str]:
        """The names in a tool list."""
        return tools.tool_names(found or None)

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """The list with `read_artifact` at its end."""
        return tools.with_tool(request.members, policy)

    def forces_a_call(self, members: Mapping[str, Raw]) -> bool:
        """By `tool_choice`."""
        return tools.forces_a_call(members)

    def missing_result(self, _: Message, call: ToolCall, text: str) -> bytes:
        """A message of the role `tool`."""
        return result_of(call.id, text)

    def result(self, call: OwnCall, text: str) -> bytes:
        """A message of the role `tool`."""
        return result_of(call.id, text)

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a choice has begun, and there is no word of a refusal."""
        return (
            _CHOICE.search(evidence) is not None
            and b"error" not in evidence
            and b"context" not in evidence
            and b'"length"' not in evidence
        )

    def says_something(self, data: bytes) -> bool:
        """An event without a choice, as Azure sends first, says nothing, nor does one with only a role."""
        return bool(data) and not holds_nothing(data)

    def counted(self, end: bytes) -> Counted | None:
        """By `usage`."""
        return counted_in(end)

    def is_complete(self, told: bytes) -> bool:
        """By `[DONE]`, or its substitute."""
        return answer_end.is_whole(told)

    def whole_reply(self) -> AnswerBody:
        """One that is no stream."""
        return AnswerBody()

    def streamed_reply(self) -> AnswerStream:
        """Chunks."""
        return AnswerStream()

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """An event with it, and `[DONE]`."""
        return errors.error_in_stream(status, body)


CHAT_COMPLETIONS: Final = ChatCompletions()
