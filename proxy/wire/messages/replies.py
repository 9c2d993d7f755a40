"""A model's message in a reply of this API, whole or assembled from the events of a stream.

Rule: a call with anything odd about it is the client's; every block keeps its bytes, because thinking and its
signatures go back upstream unchanged. Nothing is guessed: a block that contains a delta of an unknown kind is not
assembled. https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proxy.core.overflow import Counted
from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import Path, jsontext
from proxy.wire.messages.blocks import CALL, RESULT, kind_of, text_in
from proxy.wire.replies import (
    Changes,
    Reply,
    RoundsUsage,
    StreamedReply,
    WholeReply,
    added,
    calls_apart,
    content_of,
)
from proxy.wire.streams import data_of

# Counts

_USAGE: Final = re.compile(r'"usage"\s*:\s*(?=\{)')
"""A usage object of the API; quotes in the model's own text are escaped."""
_DECODER: Final = json.JSONDecoder()
_READ: Final = "cache_read_input_tokens"
_PROMPT: Final = ("input_tokens", "cache_creation_input_tokens", _READ)
"""`input_tokens` alone counts the tokens that were neither read from a cache nor written to one.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance"""
_REPLY: Final = "output_tokens"


def counted_in(ending: bytes) -> Counted | None:
    """The counts in these parts of a response; None if they do not count the prompt.

    >>> counted_in(b'{"usage":{"input_tokens":20,"cache_read_input_tokens":4056}} ... "usage":{"output_tokens":7}')
    Counted(prompt=4076, reply=7, cached=4056)
    """
    usage: dict[str, int] = {}
    for found in _usages(ending):
        usage |= {name: number for name, number in numbers_in(found).items() if number or name not in usage}
    prompt = prompt_in(usage)
    return None if prompt is None else Counted(prompt, usage.get(_REPLY, 0), usage.get(_READ))


def prompt_in(usage: Mapping[str, int]) -> int | None:
    """Tokens of the whole prompt; None without a count."""
    return sum(usage.get(name, 0) for name in _PROMPT) if _PROMPT[0] in usage else None


def numbers_in(usage: Any) -> dict[str, int]:
    """The counts in a `usage`."""
    found = usage if isinstance(usage, Mapping) else {}
    return {name: number for name, number in found.items() if type(number) is int}


def _usages(ending: bytes) -> Iterator[Any]:
    text = ending.decode("utf-8", "replace")
    for match in _USAGE.finditer(text):
        try:
            yield _DECODER.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue


class AnswerUsage(RoundsUsage):
    """The usage of one response, round by round. An event may state a part of it."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """The first round is the first one even without counts."""
        first, counted = self._first, numbers_in(usage)
        super().add(counted)
        self._first = counted if first is None else first

    def for_client(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Only this round's own usage, with the first round's counts except for the reply."""
        forwarded = {
            name: numbers_in(self._first).get(name, found) if type(found) is int else found
            for name, found in usage.items()
        }
        if _REPLY in usage:
            forwarded[_REPLY] = added(self._whole, numbers_in(usage)).get(_REPLY, 0)
        return forwarded

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """The prompt with all that a cache had of it."""
        counted = added(self._whole, numbers_in(usage))
        prompt, reply = prompt_in(counted) or 0, counted.get(_REPLY, 0)
        if not prompt and not reply:
            return {}
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


# The model's message


TEXT: Final = "text"
"""The name of the text for people, among the texts of a message."""


def is_own(block: Any) -> bool:
    """Whether a block calls the proxy's own tool."""
    return kind_of(block) == CALL and block.get("name") == RETRIEVAL_TOOL


def reply_in(blocks: Sequence[bytes]) -> AssistantMessage:
    """Read the blocks of a response."""
    opened = [(raw, jsontext.opened(raw)) for raw in blocks]
    own, others = calls_apart([raw for raw, block in opened if kind_of(block) == CALL], _own_in)
    # Some models begin with an empty text, which no client sends back: "text content blocks must be non-empty".
    sent_back = [raw for raw, block in opened if text_in(block) != ""]
    message = jsontext.join_object({"role": b'"assistant"', "content": jsontext.join_array(sent_back)})
    words = "\n".join(filter(None, (text_in(block) for _, block in opened)))
    return AssistantMessage(message, own, others, {TEXT: words})


def _own_in(block: Any) -> tuple[object, object] | None:
    return (block.get("id"), block.get("input")) if is_own(block) else None


def result_of(call_id: str, text: str) -> bytes:
    """The message that answers a call."""
    result = {"type": RESULT, "tool_use_id": call_id, "content": text}
    return jsontext.dump({"role": "user", "content": [result]})


# Events

_APPENDED: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}
"""Kinds of deltas that are appended to a block's text, with the member that contains the text in both."""


def event_of(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """An event with changes in its data."""
    return event_of(str(content_of(event).get("type")), jsontext.spliced(data_of(event), changes))


def blocks_of(events: Iterable[Mapping[str, Any]]) -> list[bytes] | None:
    """The blocks that a round's events form; None if one of them cannot be assembled."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    for event in events:
        index = event.get("index")
        match event.get("type"):
            case "content_block_start" if isinstance(block := event.get("content_block"), dict):
                if not isinstance(index, int):
                    return None
                blocks[index] = dict(block)
            case "content_block_delta":
                delta = event.get("delta")
                if not isinstance(index, int) or index not in blocks or not isinstance(delta, dict):
                    return None
                if not _add(blocks[index], delta, index, inputs):
                    return None
    for index, parts in inputs.items():
        raw = "".join(parts).encode("utf-8", "surrogatepass")
        blocks[index]["input"] = msgspec.Raw(raw) if isinstance(jsontext.opened(raw), dict) else {}
    return [jsontext.dump(block) for block in blocks.values()]


def _add(block: dict[str, Any], delta: Mapping[str, Any], index: int, inputs: dict[int, list[str]]) -> bool:
    """Add a delta to a block. Returns whether its kind is known."""
    kind = delta.get("type")
    if kind == "input_json_delta" and isinstance(part := delta.get("partial_json"), str):
        inputs.setdefault(index, []).append(part)
    elif kind == "citations_delta" and isinstance(cited := block.get("citations") or [], list):
        block["citations"] = [*cited, delta.get("citation")]
    elif isinstance(kind, str) and (name := _APPENDED.get(kind)) and isinstance(part := delta.get(name), str):
        block[name] = jsontext.string_in(block, name) + part
    else:
        return False
    return True


# Replies

BROKEN_OFF: Final = ("max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "compaction")
"""Stop reasons that leave a call incomplete, or unwanted: the response as received is final.
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
_PLAIN_END: Final = b'"end_turn"'
_STARTS: Final = (b'"content_block_start"', b'"message_start"')
"""Signs of the events that say whose the others are, and what the prompt cost."""


class _Answer(Reply):
    counts = AnswerUsage
    texts = (TEXT,)


class AnswerBody(_Answer, WholeReply):
    """A message, with the id of the first round's."""

    def __init__(self) -> None:
        super().__init__()
        self._id: bytes | None = None

    def _begin(self) -> None:
        super()._begin()
        self._blocks: Sequence[bytes] = ()

    def _read(self, reply: Mapping[str, Any]) -> AssistantMessage | None:
        if not isinstance(reply.get("content"), list):
            return None
        self._blocks = list(map(bytes, jsontext.items(jsontext.members(self._body)["content"])))
        return reply_in(self._blocks)

    def _is_final(self, reply: Mapping[str, Any]) -> bool:
        return reply.get("stop_reason") in BROKEN_OFF

    def _shown(self) -> Sequence[bytes]:
        return [raw for raw in self._blocks if not is_own(jsontext.opened(raw))]

    def _merged(self, stopped_with: str | None = None) -> Changes:
        words = [jsontext.dump({"type": "text", "text": stopped_with})] if stopped_with else []
        visible = [*self._before, *self._shown(), *words]
        changes: dict[Path, bytes | None] = {}
        if visible != self._blocks:
            changes["content",] = jsontext.join_array(visible)
        if self._rounds:
            changes["id",] = self._id
        if stopped_with is not None:
            changes["stop_reason",] = _PLAIN_END
        return changes

    def next_round(self) -> None:
        """The next body is that of another message."""
        self._id = self._id or jsontext.dump(self._reply.get("id"))
        super().next_round()


class AnswerStream(_Answer, StreamedReply):
    """Events, whose blocks are renumbered from the first call of ours on."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = 0
        """The client's next block has this index, once blocks are renumbered."""

    def _begin(self) -> None:
        super()._begin()
        self._indexes: dict[int, int] = {}
        """Indexes of the client's blocks that are renumbered: in this round's stream → for the client."""

    def _is_plain(self, piece: bytes) -> bool:
        return piece.endswith(b"\n\n") and not any(sign in piece for sign in _STARTS)

    def _passed(self, event: bytes) -> bytes:
        self._keep(event)
        found = content_of(event)
        match found.get("type"):
            case "message_start":
                self._round_usage = {**self._round_usage, **jsontext.object_in(found.get("message"), "usage")}
                return b"" if self._rounds else event
            case "content_block_start" if isinstance(index := found.get("index"), int):
                self._begin_block(index, found.get("content_block"))
                return self._renumbered(event, index)
            case "content_block_delta" | "content_block_stop" if isinstance(index := found.get("index"), int):
                return self._renumbered(event, index)
            case "message_delta":
                self._failed |= jsontext.object_in(found, "delta").get("stop_reason") in BROKEN_OFF
                self._round_usage = {**self._round_usage, **jsontext.object_in(found, "usage")}
                if self._rounds and isinstance(usage := found.get("usage"), dict):
                    event = rewritten(event, {("usage",): jsontext.dump(self._usage.for_client(usage))})
                return self._hold(event) if self._own else event
            case "message_stop" if self._own:
                return self._hold(event)
            case "error":
                self._failed = True
        return event

    def _begin_block(self, index: int, block: Any) -> None:
        if is_own(block):
            self._own.add(index)
            return
        if self._is_changed:
            self._indexes[index] = self._blocks
        self._blocks = max(self._blocks, self._indexes.get(index, index) + 1)

    def _renumbered(self, event: bytes, index: int) -> bytes:
        """An event of a block, with the index that the block has for the client."""
        place = self._indexes.get(index, index)
        if index in self._own:
            return b""
        return event if place == index else rewritten(event, {("index",): jsontext.dump(place)})

    def _message(self) -> AssistantMessage | None:
        blocks = blocks_of(map(content_of, self._kept_events()))
        return None if blocks is None else reply_in(blocks)

    def stopped(self, sentence: str) -> bytes:
        """A text block before the end."""
        changes: Changes = {("delta", "stop_reason"): _PLAIN_END}
        ended = [
            rewritten(event, changes) if isinstance(content_of(event).get("delta"), dict) else event
            for event in self._held
        ]
        return b"".join([_text_block(self._blocks, sentence), *ended, self._rest])


def _text_block(index: int, text: str) -> bytes:
    """The events of a whole text block."""
    place = {"index": index}
    return b"".join(
        event_of(kind, jsontext.dump({"type": kind, **place, **inside}))
        for kind, inside in (
            ("content_block_start", {"content_block": {"type": "text", "text": ""}}),
            ("content_block_delta", {"delta": {"type": "text_delta", "text": text}}),
            ("content_block_stop", {}),
        )
    )
