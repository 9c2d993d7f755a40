"""A model's message in a reply of chat completions, whole or assembled from a stream.

Rule: a call with anything odd about it is the client's; every call keeps its bytes. A delta belongs to the call at its
index; another id at the same index is another call, because Ollama used to number every parallel call 0
(https://github.com/ollama/ollama/issues/15457), or none (…/7881).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.replies import (
    MAX_KEPT_BYTES,
    Changes,
    MessageReply,
    Reply,
    RoundsUsage,
    StreamedReply,
    calls_apart,
    content_of,
)
from proxy.wire.streams import data_of

# Counts


class AnswerUsage(RoundsUsage):
    """The usage of one response, round by round. The record has the names of this API."""

    totals_of: ClassVar[Mapping[str, str]] = {
        name: name for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(r"(?:prompt|input|cached?)_\w*tokens(?:_details)?")
    """`prompt_tokens` and `prompt_tokens_details` of OpenAI, `prompt_cache_hit_tokens` of DeepSeek, `cached_tokens` of
    Kimi, `cache_read_input_tokens` of Anthropic behind LiteLLM.
    https://api-docs.deepseek.com/api/create-chat-completion"""


# The model's message

_SENT_BACK: Final = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")
"""The members of a model's message that are sent back upstream: those that a client sends, and reasoning, which
DeepSeek, Kimi and OpenRouter want back inside a turn. https://api-docs.deepseek.com/guides/thinking_mode"""


def reply_in(message: Mapping[str, Raw]) -> AssistantMessage:
    """Read the members of an assistant message; a call with anything odd about it is the client's."""
    own, others = calls_apart(jsontext.items_if_any(message.get("tool_calls")), _own_in)
    sent_back = {"role": b'"assistant"', "content": b"null"}
    sent_back |= {name: raw for name in _SENT_BACK if (raw := bytes(message.get(name, b"null"))) != b"null"}
    texts = {name: text for name in TEXT_MEMBERS if isinstance(text := jsontext.opened(message.get(name)), str)}
    return AssistantMessage(jsontext.join_object(sent_back), own, others, texts)


def _own_in(call: Any) -> tuple[object, object] | None:
    return (call.get("id"), call["function"].get("arguments")) if called(call) == RETRIEVAL_TOOL else None


TEXT_MEMBERS: Final = ("content", "reasoning_content", "reasoning")
"""Text members of a message or a delta."""


def called(call: Any) -> str:
    """The name of the function in a call; empty if there is none.

    >>> called({"function": {"name": "ls"}}), called({"type": "custom"}), called(None)
    ('ls', '', '')
    """
    return jsontext.string_in(jsontext.object_in(call, "function"), "name")


def result_of(call_id: str, text: str) -> bytes:
    """The message that answers a call."""
    return jsontext.dump({"role": "tool", "tool_call_id": call_id, "content": text})


# Deltas

_FIRST_STANDS: Final = frozenset({"id", "type", "index", "role", "name"})
"""Strings that servers repeat whole; other strings arrive in pieces."""


class CallOrder:
    """Numbers the calls of one response in the order in which they begin."""

    def __init__(self) -> None:
        self._standing: dict[int, tuple[int, str]] = {}
        """Index in the stream → number and id of the newest call there."""
        self.count = 0

    def number_of(self, item: Mapping[str, Any], index: int) -> int:
        """The number of the call that an item of `tool_calls` belongs to; a new one if the item begins a call."""
        name, call_id = called(item), item.get("id")
        standing = self._standing.get(index)
        begins = standing is None or (name and isinstance(call_id, str) and call_id and call_id != standing[1])
        if standing is None or begins:
            standing = (self.count, call_id if isinstance(call_id, str) else "")
            self._standing[index] = standing
            self.count += 1
        return standing[0]


def index_of(item: Mapping[str, Any], position: int) -> int:
    """The index of a call according to its delta; an item without an index counts by its position."""
    index = item.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else position


def choice_of(chunk: Any) -> Mapping[str, Any] | None:
    """The one choice of a chunk; None if it has none or several, or is something else."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    found = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return found if isinstance(found, dict) else None


def assembled(chunks: Iterable[Any]) -> dict[str, Raw]:
    """The members of the message that these chunks' deltas form, as a response without streaming contains them."""
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    order = CallOrder()
    for chunk in chunks:
        delta = jsontext.object_in(choice_of(chunk), "delta")
        _merge(message, {name: found for name, found in delta.items() if name != "tool_calls"})
        for position, item in enumerate(jsontext.listed(delta.get("tool_calls"))):
            if isinstance(item, dict):
                number = order.number_of(item, index_of(item, position))
                if number == len(calls):
                    calls.append({})
                _merge(calls[number], {name: found for name, found in item.items() if name != "index"})
    if calls:
        message["tool_calls"] = calls
    return {name: jsontext.dump(found) for name, found in message.items()}


def _merge(whole: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, found in delta.items():
        before = whole.get(name)
        if before is None:
            whole[name] = dict(found) if isinstance(found, dict) else found
        elif isinstance(before, str) and isinstance(found, str):
            whole[name] = (before or found) if name in _FIRST_STANDS else before + found
        elif isinstance(before, dict) and isinstance(found, dict):
            _merge(before, found)
        elif isinstance(before, list) and isinstance(found, list):
            whole[name] = before + found
        elif found is not None and not isinstance(before, (str, dict)):  # those are merged, never replaced
            whole[name] = found


# A reply that is no stream

BROKEN_OFF: Final = ("length", "content_filter")
"""Finish reasons that leave a call incomplete, or unwanted: the response as received is final."""

_MESSAGE: Final[Path] = ("choices", 0, "message")
_DELTA: Final[Path] = ("choices", 0, "delta")
_FINISH: Final[Path] = ("choices", 0, "finish_reason")
_PLAIN_END: Final = b'"stop"'


class _Answer(Reply):
    counts = AnswerUsage
    texts = TEXT_MEMBERS


class AnswerBody(_Answer, MessageReply):
    """A chat completion."""

    place = _MESSAGE
    finish: ClassVar[Changes] = {_FINISH: _PLAIN_END}

    def _read(self, reply: Mapping[str, Any]) -> AssistantMessage | None:
        if not isinstance((choice_of(reply) or {}).get("message"), dict):
            return None
        (choice,) = jsontext.items(jsontext.members(self._body)["choices"])
        return reply_in(jsontext.members(jsontext.members(choice)["message"]))

    def _is_final(self, reply: Mapping[str, Any]) -> bool:
        return (choice_of(reply) or {}).get("finish_reason") in BROKEN_OFF


# A stream

MAX_EVENT_BYTES: Final = 1024 * 1024
"""Limit of an event that has not named a call so far. A longer one is an image or a whole response, not a call of our
tool, and is not changed."""
_CALLS: Final = b'"tool_calls"'
"""Part of every event that contains a piece of a call."""
_TAKEN_OVER: Final = ("id", "created")


class AnswerStream(_Answer, StreamedReply):
    """Chunks. One that is too long to wait for passes as it arrives."""

    def __init__(self) -> None:
        super().__init__()
        self._first: Mapping[str, Any] = {}
        """The first chunk of the response."""

    def _begin(self) -> None:
        super()._begin()
        self._is_long = False
        """Whether a part of an incomplete event has been passed on."""
        self._awaits_call = False
        """Whether a long incomplete event names a call, and has to be collected."""
        self._order = CallOrder()
        self._indexes: dict[int, int] = {}
        """Indexes of the client's calls: in this round's stream → for the client."""
        self._finish: object = None

    def _is_plain(self, piece: bytes) -> bool:
        # A third line feed would begin the next event, and be hidden with it.
        return _CALLS not in piece and piece.endswith(b"\n\n") and not piece.endswith(b"\n\n\n")

    def _passed(self, event: bytes) -> bytes:
        self._keep(event)
        if self._is_long:
            self._is_long = False
            self._failed |= event.find(_CALLS) >= 0  # the client has seen its calls
            return event
        self._awaits_call = False
        if not data_of(event) or not (self._is_changed or event.find(_CALLS) >= 0):
            return event
        chunk = content_of(event)
        forwarded = self._for_client(event, chunk) if chunk else event
        if self._own and forwarded and (self._held or not chunk or _finishes(forwarded)):
            ahead, forwarded = _parted(forwarded)
            return ahead + self._hold(forwarded)
        return forwarded

    def _too_long(self) -> bytes:
        if not self._is_long and self._events.held_bytes <= MAX_EVENT_BYTES:
            return b""
        self._awaits_call |= self._events.holds(_CALLS)
        if not self._is_long and self._awaits_call and self._events.held_bytes <= MAX_KEPT_BYTES:
            return b""
        self._is_long = True
        self._failed |= self._awaits_call or bool(self._held)
        ahead = self.last_words()
        self._held.clear()
        piece = self._events.release()
        self._keep(piece)
        return ahead + piece

    def end(self) -> AssistantMessage | None:
        """A long event that broke off makes no message."""
        self._failed |= self._is_long
        return super().end()

    def _message(self) -> AssistantMessage | None:
        return None if self._finish in BROKEN_OFF else reply_in(assembled(map(content_of, self._kept_events())))

    def stopped(self, sentence: str) -> bytes:
        """The last chunk contains the sentence."""
        changes = {_FINISH: _PLAIN_END, _DELTA: jsontext.dump({self.texts[0]: self._paragraph(sentence)})}
        ended = [_rewritten(event, changes) if _finishes(event) else event for event in self._held]
        return b"".join([*ended, self._rest])

    def next_round(self) -> None:
        """The chunks that follow continue under the name of the first."""
        self._first = self._first or next(filter(None, map(content_of, self._kept_events())), {})
        super().next_round()

    def _for_client(self, event: bytes, chunk: Mapping[str, Any]) -> bytes:
        """An event without our calls, under the name of the first round."""
        choice = choice_of(chunk)
        delta = jsontext.object_in(choice, "delta")
        self._failed |= "error" in chunk and choice is None
        self._finish = (choice.get("finish_reason") if choice else None) or self._finish
        changes: dict[Path, bytes | None] = self._call_changes(delta)
        if isinstance(usage := chunk.get("usage"), dict):
            self._round_usage = usage
            if self._rounds:
                changes["usage",] = jsontext.dump(self._usage.for_client(usage))
        if self._rounds and "choices" in chunk:
            changes |= self._continuing(chunk, delta)
        if not changes:
            return event
        forwarded = _rewritten(event, changes)
        return b"" if _says_nothing(content_of(forwarded)) else forwarded

    def _call_changes(self, delta: Mapping[str, Any]) -> dict[Path, bytes | None]:
        """Removes our calls; the client's are numbered from 0 without gaps."""
        items = jsontext.listed(delta.get("tool_calls"))
        kept = []
        for position, item in enumerate(items):
            if not isinstance(item, dict):
                kept.append(item)
                continue
            index = index_of(item, position)
            number = self._order.number_of(item, index)
            if called(item) == RETRIEVAL_TOOL:  # some name a call only after its first piece
                self._own.add(number)
            if number not in self._own:
                place = self._indexes.setdefault(index, len(self._indexes))
                kept.append(item if place == index else item | {"index": place})
        if kept == items:
            return {}
        return {(*_DELTA, "tool_calls"): jsontext.dump(kept) if kept else None}

    def _continuing(self, chunk: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[Path, bytes | None]:
        """The changes that make a later round's event one of the first round: name, no second role, a new paragraph."""
        changes: dict[Path, bytes | None] = {
            (name,): jsontext.dump(self._first[name])
            for name in _TAKEN_OVER
            if name in self._first and chunk.get(name) != self._first[name]
        }
        if "role" in delta:
            changes[(*_DELTA, "role")] = None
        return changes | self._paragraphs(delta, _DELTA)


def _rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    return b"data: " + jsontext.spliced(data_of(event), changes) + b"\n\n"


def _finishes(event: bytes) -> bool:
    choice = choice_of(content_of(event))
    return choice is not None and choice.get("finish_reason") is not None


def _parted(event: bytes) -> tuple[bytes, bytes]:
    """An event of the end as (the model's words in it, the end alone)."""
    delta = jsontext.object_in(choice_of(content_of(event)), "delta")
    if all(not found for found in delta.values()) or not _finishes(event):
        return b"", event
    return _rewritten(event, {_FINISH: b"null", ("usage",): None}), _rewritten(event, {_DELTA: b"{}"})


def _says_nothing(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk contains nothing that a client could want after it was changed."""
    choice = choice_of(chunk)
    if choice is None or choice.get("finish_reason") is not None or chunk.get("usage"):
        return False
    return all(not found for found in jsontext.object_in(choice, "delta").values())
