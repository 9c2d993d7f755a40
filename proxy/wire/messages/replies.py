"""A model's message in a reply of this API, whole or assembled from the events of a stream, and what it counted.

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
from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.messages.blocks import CALL, RESULT, kind_of, meant_by, text_in
from proxy.wire.streams import data_of

# Counts

_USAGE: Final = re.compile(r'"usage"\s*:\s*(?=\{)')
"""In the model's own text, quotes are escaped."""
_DECODER: Final = json.JSONDecoder()
_READ: Final = "cache_read_input_tokens"
_PROMPT: Final = ("input_tokens", "cache_creation_input_tokens", _READ)
"""`input_tokens` alone counts the tokens that were neither read from a cache nor written to one.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance"""
_REPLY: Final = "output_tokens"


def counted_in(told: bytes) -> Counted | None:
    """The counts in these parts of a response; None if they do not count the prompt.

    >>> counted_in(b'{"usage":{"input_tokens":20,"cache_read_input_tokens":4056}} ... "usage":{"output_tokens":7}')
    Counted(prompt=4076, reply=7, cached=4056)
    """
    usage: dict[str, int] = {}
    for found in _usages(told):
        usage |= {name: number for name, number in numbers_in(found).items() if number or name not in usage}
    prompt = prompt_in(usage)
    return None if prompt is None else Counted(prompt, usage.get(_REPLY, 0), usage.get(_READ, 0))


def prompt_in(usage: Mapping[str, int]) -> int | None:
    """Tokens of the whole prompt; None if nobody counted."""
    return sum(usage.get(name, 0) for name in _PROMPT) if _PROMPT[0] in usage else None


def numbers_in(usage: Any) -> dict[str, int]:
    """The counts in a `usage`."""
    found = usage if isinstance(usage, Mapping) else {}
    return {name: number for name, number in found.items() if type(number) is int}


def _usages(told: bytes) -> Iterator[Any]:
    text = told.decode("utf-8", "replace")
    for match in _USAGE.finditer(text):
        try:
            yield _DECODER.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue


# Counts of several rounds


class RoundsUsage:
    """The usage of one response, round by round."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._prompt = self._reply = 0
        """Of the finished rounds."""
        self._is_over = False
        """Whether any round is finished."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; `usage` is all that it reported."""
        counted = numbers_in(usage)
        if not self._is_over:
            self._first, self._is_over = counted, True
        self._prompt += prompt_in(counted) or 0
        self._reply += counted.get(_REPLY, 0)

    def told(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The usage of a later round, or a part of that usage, as the client gets it."""
        told = {name: self._first.get(name, found) if type(found) is int else found for name, found in usage.items()}
        if _REPLY in usage:
            told[_REPLY] = self._reply + numbers_in(usage).get(_REPLY, 0)
        return told

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, including this one, under the names of all wires; empty if nobody counted."""
        counted = numbers_in(usage)
        prompt, reply = self._prompt + (prompt_in(counted) or 0), self._reply + counted.get(_REPLY, 0)
        if not prompt and not reply:
            return {}
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


# The model's message


def is_own(block: Any) -> bool:
    """Whether a block calls the proxy's own tool."""
    return kind_of(block) == CALL and block.get("name") == RETRIEVAL_TOOL


def said_in(blocks: Sequence[bytes]) -> AssistantMessage:
    """Read the blocks of a response."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    meant: list[Any] = []
    texts: list[str] = []
    calls = 0
    for raw in blocks:
        block = jsontext.opened(raw)
        if (text := text_in(block)) is not None:
            texts.append(text)
        if kind_of(block) != CALL:
            continue
        if is_own(block):
            arguments = jsontext.dump(block.get("input")).decode("utf-8", "replace")
            own.append(OwnCall(calls, str(block.get("id") or ""), arguments, raw))
        else:
            others.append(raw)
            meant.append(block)
        calls += 1
    message = jsontext.join_object({"role": b'"assistant"', "content": jsontext.join_array(_sent_back(blocks))})
    return AssistantMessage(message, tuple(own), tuple(others), meant_by(meant), {"text": "\n".join(texts)})


def _sent_back(blocks: Sequence[bytes]) -> list[bytes]:
    """The blocks that a client would send back: without empty texts, with which some models begin, because the API
    refuses them: "messages: text content blocks must be non-empty"."""
    return [raw for raw in blocks if text_in(jsontext.opened(raw)) != ""]


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


def said(event: bytes) -> Mapping[str, Any]:
    """The content of an event; empty if it is no JSON object."""
    found = jsontext.opened(data_of(event))
    return found if isinstance(found, dict) else {}


def kind_of_event(data: bytes) -> str:
    """The `type` in an event's data; empty if there is none."""
    found = jsontext.opened(data)
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else ""


def event_of(name: str, data: bytes) -> bytes:
    """An event of this name."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """An event with changes in its data."""
    return event_of(str(said(event).get("type")), spliced(data_of(event), changes))


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


# A reply that is no stream

BROKEN_OFF: Final = ("max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "compaction")
"""Stop reasons that leave a call incomplete, or unwanted: the response as received is final.
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
PLAIN_END: Final = b'"end_turn"'
_TAKEN_OVER: Final = "id"


class AnswerBody:
    """Takes the body of each round's response in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._visible: list[bytes] = []
        """The client's blocks of the finished rounds."""
        self._id: bytes | None = None
        """The id of the first round's message."""
        self._usage = RoundsUsage()
        self._body = b""
        self._answer: Mapping[str, Any] = {}
        self._blocks: list[bytes] | None = None
        """The blocks of this round; None if its response is no message, or if the blocks are not needed."""

    def read(self, body: bytes) -> AssistantMessage | None:
        """The response of a round: returns the model's message if it called us and needs a result."""
        self._body, self._answer, self._blocks = body, {}, None
        if not self._rounds and RETRIEVAL_TOOL.encode() not in body:
            return None
        found = jsontext.opened(body)
        if not isinstance(found, dict) or not isinstance(found.get("content"), list):
            return None
        self._answer = found
        self._blocks = list(map(bytes, jsontext.items(jsontext.members(body)["content"])))
        said = said_in(self._blocks)
        return said if said.own and found.get("stop_reason") not in BROKEN_OFF else None

    def told(self) -> bytes:
        """The last round's response as the client gets it, if no round follows."""
        changes = self._changes([])
        return spliced(self._body, changes) if changes else self._body

    def stopped(self, sentence: str) -> bytes:
        """The last round's response if the model would call us again: a normal end, with `sentence` if the model has
        not said a word."""
        said = any(text_in(jsontext.opened(raw)) for raw in (*self._visible, *(self._blocks or ())))
        words = [] if said else [jsontext.dump({"type": "text", "text": sentence})]
        return spliced(self._body, {**self._changes(words), ("stop_reason",): PLAIN_END})

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(self._own_usage)

    def next_round(self) -> None:
        """The next response is that of another round."""
        self._rounds += 1
        self._visible += self._visible_blocks()
        self._id = self._id or jsontext.dump(self._answer.get(_TAKEN_OVER))
        self._usage.add(self._own_usage)

    @property
    def _own_usage(self) -> Mapping[str, Any]:
        found = self._answer.get("usage")
        return found if isinstance(found, dict) else {}

    def _visible_blocks(self) -> list[bytes]:
        return [raw for raw in self._blocks or () if not is_own(jsontext.opened(raw))]

    def _changes(self, words: list[bytes]) -> dict[Path, bytes | None]:
        if self._blocks is None:
            return {}
        changes: dict[Path, bytes | None] = {}
        visible = [*self._visible, *self._visible_blocks(), *words]
        if visible != self._blocks:
            changes[("content",)] = jsontext.join_array(visible)
        if self._rounds:
            changes[(_TAKEN_OVER,)] = self._id
            if self._own_usage:
                changes[("usage",)] = jsontext.dump(self._usage.told(self._own_usage))
        return changes
