"""Chat completions as a wire.

Rule: an unchanged request keeps its own bytes; in a changed one, every member and message that was not touched keeps
its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final

from proxy.core.conversation import Message
from proxy.core.retrieval_tool import SPEC, RetrievalPolicy
from proxy.core.text import Raw, jsontext
from proxy.wire.chat_completions.message import ChatMessage, name_of
from proxy.wire.chat_completions.replies import AnswerBody, AnswerStream, result_of
from proxy.wire.error_bodies import holds_nothing
from proxy.wire.json_messages import OwnTool, names_in
from proxy.wire.protocol import Wire, error_in_body, patterns_of
from proxy.wire.request import REASONING, THINKING, Request, RequestShape
from proxy.wire.streams import TAIL_BYTES, EventSplitter

# Tools


_FUNCTION: Final = {"name": SPEC.name, "description": SPEC.description, "parameters": SPEC.schema}
OWN_TOOL: Final = jsontext.dump({"type": "function", "function": _FUNCTION})


# The end of a stream

_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
"""The final event on its own line; line ends in a model's text are escaped."""
_FINISHED: Final = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')


# Errors

_DONE_EVENT: Final = b"data: [DONE]\n\n"


# The wire

_FILES: Final = re.compile(rb'"(?:file_data|file_id|input_audio|video_url)"')
"""Names of parts and their members; inside a text, their quotes are escaped."""
_CHOICE: Final = re.compile(rb'"choices"\s*:\s*\[\s*\{')


def _read(items: Sequence[Raw]) -> list[tuple[Message, int]]:
    return list(zip(map(ChatMessage.read, items), range(1, len(items) + 1), strict=True))


def _may_hold_images(raw: bytes) -> bool:
    return raw.find(b'"image_url"') >= 0


def _may_hold_files(raw: bytes) -> bool:
    return _FILES.search(raw) is not None


SHAPE: Final = RequestShape(
    "messages",
    (("max_completion_tokens",), ("max_tokens",)),
    _read,
    _may_hold_images,
    _may_hold_files,
    reasoning_limits=(THINKING, REASONING),
)
"""The newer of the two limits takes precedence."""


class ChatCompletions(Wire):
    """`/chat/completions`; the base class describes each member."""

    shape = SHAPE
    read_message = staticmethod(ChatMessage.read)
    own_tool = OwnTool(OWN_TOOL, partial(names_in, name_of=name_of))
    result_of = staticmethod(result_of)
    name = "chat_completions"
    api = "chat"
    path = "/chat/completions"
    end = b"/chat/completions"
    results_hold_media = False
    forms = MappingProxyType({"response_format": ()})
    counts: ClassVar[Sequence[re.Pattern[bytes]]] = patterns_of(
        "prompt_tokens", "completion_tokens", "cached_tokens|cache_read_input_tokens|prompt_cache_hit_tokens"
    )
    """The cached ones of OpenAI, under `prompt_tokens_details`; of Anthropic, behind gateways; of DeepSeek."""

    def trial(self, words: str) -> tuple[Mapping[str, Any], str]:
        return {"messages": [{"role": "user", "content": words}]}, "choices"

    def with_tool(self, request: Request, policy: RetrievalPolicy) -> bytes | None:
        """None if several replies are requested: a call in one of them could not be answered."""
        found = super().with_tool(request, policy)
        members = request.members
        if found is None or "functions" in members:
            return None
        replies = jsontext.opened(members["n"]) if "n" in members else 1
        return None if isinstance(replies, int) and replies > 1 else found

    def is_plainly_a_reply(self, evidence: bytes) -> bool:
        """Whether a choice has begun, and there is no word of a refusal."""
        return (
            _CHOICE.search(evidence) is not None
            and evidence.find(b"error") < 0
            and evidence.find(b"context") < 0
            and evidence.find(b'"length"') < 0
        )

    def says_something(self, data: bytes) -> bool:
        """An event without a choice, as Azure sends first, says nothing, nor does one with only a role."""
        return bool(data) and not holds_nothing(data)

    def is_complete(self, ending: bytes) -> bool:
        """A stream ends with `[DONE]`, or with a final chunk and usage from servers that send nothing after these. How
        the connection ends does not matter: clients hang up once they have read `[DONE]`
        (https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py), and gateways end their body only
        after they have recorded its cost."""
        tail = ending[-TAIL_BYTES:]
        if _DONE.search(tail):
            return True
        is_finished = False
        for event in EventSplitter().feed(tail):
            is_finished |= _FINISHED.search(event) is not None
            if is_finished and _USAGE.search(event):
                return True
        return False

    def reply(self, *, stream: bool) -> AnswerBody | AnswerStream:
        """A completion, or its chunks."""
        return AnswerStream() if stream else AnswerBody()

    def error_in_stream(self, status: int, body: bytes) -> bytes:
        """An event with it, and `[DONE]`."""
        # Line ends in JSON are white space, and most clients do not read data of several lines.
        return b"data: " + error_in_body(status, body).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n" + _DONE_EVENT


CHAT_COMPLETIONS: Final = ChatCompletions()
