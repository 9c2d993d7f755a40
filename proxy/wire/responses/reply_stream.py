"""Merges the streams of one response's rounds into one for the client, without the calls of the proxy's own tool.

Rule: events that have nothing to do with those calls pass byte for byte. From the first of those calls on, events are
renumbered, and the end of the stream is held until it is known whether another round follows. The end has the id of the
first round, as the beginning has: openai-python accepts no other (src/openai/lib/streaming/responses/_responses.py).
Reasoning that its server links to what follows it waits until that is known to be the client's: it may not come back
without it.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from proxy.core.retrieval_tool.hidden_calls import AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.responses.items import Kind, head_of
from proxy.wire.responses.replies import (
    ResponseUsage,
    is_linked,
    is_own_call,
    messages_before_calls,
    said_by_us,
    said_in,
)
from proxy.wire.responses.replies import event as written
from proxy.wire.streams import EventSplitter, data_of

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Of one event, and of the items of one round. A longer stream passes as it arrives, and is the final response."""

_ITEM: Final = b"response.output_item."
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_BEGINNINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_COMPLETED: Final = "response.completed"


class ReplyStream:
    """Takes the pieces of each round's stream in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._number = 0
        """The number of the next event, once events are renumbered."""
        self._before: list[bytes] = []
        """Items of the finished rounds, as the client has them."""
        self._has_spoken = False
        self._usage = ResponseUsage()
        self._is_passing = False
        """Whether the rest passes as it arrives."""
        self._id = ""
        """Of the first round's response."""
        self._is_linked: bool | None = None
        """Whether reasoning is linked to what follows it; None before the first event."""
        self._begin()

    def _begin(self) -> None:
        self._events = EventSplitter()
        self._items: dict[int, bytes] = {}
        """The complete items of this round, by their index in its stream."""
        self._kept_bytes = 0
        self._own: set[int] = set()
        """Indexes of the calls that are ours."""
        self._shown_indexes: set[int] = set()
        """Of the items whose beginning the client has."""
        self._thoughts: set[int] = set()
        """Indexes of the reasoning that waits."""
        self._waiting: list[tuple[bytes, Mapping[str, Any]]] = []
        """From the first event of that reasoning on: each event, and its content, opened."""
        self._held: list[tuple[bytes, Mapping[str, Any]]] = []
        """From the event on that ends this round, if events are renumbered: each event, and its content, opened."""
        self._rest = b""
        self._final: Mapping[str, Any] = {}
        """The content of the last event that ends this round."""

    @property
    def _is_changed(self) -> bool:
        return bool(self._own or self._rounds)

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's stream → what the client gets now."""
        if self._is_passing:
            return piece
        is_busy = self._is_changed or self._events.held_bytes or self._waiting or self._is_linked is None
        if not is_busy and _ITEM not in piece and piece.endswith(b"\n\n"):
            return piece  # whole events that begin or end no item, like nearly all: nothing in them is ours
        told = [self._passed(event) for event in self._events.feed(piece)]
        if self._events.held_bytes > MAX_KEPT_BYTES or self._kept_bytes > MAX_KEPT_BYTES:
            self._is_passing = True
            told += [*(event for event, _ in (*self._waiting, *self._held)), self._events.rest]
            self._waiting, self._held, self._final = [], [], {}
        return b"".join(told)

    def _passed(self, event: bytes) -> bytes:
        """The part of an event that the client gets now."""
        data = data_of(event)
        if not data:
            return event  # a comment, which keeps the connection alive
        found = jsontext.opened(data)
        if not isinstance(found, dict):
            return event
        name = jsontext.string_in(found, "type")
        if self._is_linked is None:
            response = found.get("response")
            response = response if isinstance(response, dict) else {}
            self._id, self._is_linked = jsontext.string_in(response, "id"), is_linked(response)
        if name in _BEGINNINGS and self._rounds:
            return b""
        if isinstance(index := found.get("output_index"), int):
            self._read_item(name, index, data, found)
            if index in self._own:
                return b""
        if name in _ENDS:
            self._final = found
        if self._is_changed and (name in _ENDS or self._held):
            self._held.append((event, found))
            return b""
        if self._must_wait(name, found):
            self._waiting.append((event, found))
            self._kept_bytes += len(event)
            return b""
        return self._released() + (self._renumbered(event, found) if self._is_changed else event)

    def _must_wait(self, name: str, found: Mapping[str, Any]) -> bool:
        """Whether an event belongs to reasoning that waits, or comes after it and is not the beginning of another
        item."""
        if name != _ADDED:
            return bool(self._waiting) and name not in _ENDS
        item, index = found.get("item"), found.get("output_index")
        is_thought = isinstance(item, dict) and item.get("type") == "reasoning"
        if not (is_thought and self._is_linked and isinstance(index, int)):
            return False
        self._thoughts.add(index)
        return True

    def _released(self) -> bytes:
        """What waited, because what follows it is the client's, or nothing is."""
        waiting, self._waiting, self._thoughts = self._waiting, [], set()
        return b"".join([self._renumbered(*one) if self._is_changed else one[0] for one in waiting])

    def _read_item(self, name: str, index: int, data: bytes, found: Mapping[str, Any]) -> None:
        """Note whose item this is, and what it is once it is complete."""
        if "item" in found:  # whatever its event is called: a call of ours is never passed on
            if is_own_call(found.get("item")) and index not in self._shown_indexes:
                if not self._is_changed:
                    self._number = _number_of(self._waiting[0][1] if self._waiting else found)
                self._own.add(index)
            self._shown_indexes.add(index)
        if name == _DONE and isinstance(found.get("item"), dict):
            self._items[index] = bytes(jsontext.members(data)["item"])
            self._kept_bytes += len(self._items[index])

    def _renumbered(self, event: bytes, found: Mapping[str, Any], output: bytes | None = None) -> bytes:
        """An event with the number and the index that it has for the client, and with all rounds in its response if it
        lists an output."""
        made: dict[Path, bytes | None] = {}
        if "sequence_number" in found:
            made[("sequence_number",)] = jsontext.dump(self._number)
        self._number += 1
        index = found.get("output_index")
        if isinstance(index, int):
            hidden = sum(own < index for own in self._own)
            made[("output_index",)] = jsontext.dump(len(self._before) + index - hidden)
        if isinstance(response := found.get("response"), dict):
            if output is not None and isinstance(response.get("output"), list):  # what the client has seen
                made["response", "output"] = output
            if self._rounds and self._id and "id" in response:
                made["response", "id"] = jsontext.dump(self._id)
            if isinstance(usage := response.get("usage"), dict) and self._rounds:
                made["response", "usage"] = jsontext.dump(self._usage.told(usage))
        return _rewritten(event, made)

    def end(self) -> AssistantMessage | None:
        """The round's stream has ended: returns the model's message if it called us and needs a result."""
        self._rest = b"" if self._is_passing else self._events.rest
        if not self._own or self._final.get("type") != _COMPLETED:
            return None
        items = [self._items[index] for index in sorted(self._items)]
        response = self._final.get("response")
        is_stored = not (isinstance(response, dict) and response.get("store") is False)
        said = said_in(items, is_stored=is_stored)
        if len(said.own) != len(self._own):
            return None
        if not said.is_mixed:
            return said
        shown = [raw for index, raw in sorted(self._items.items()) if index not in self._own]
        return replace(said, before=messages_before_calls([*self._before, *shown]))

    def last_words(self) -> bytes:
        """The end of the stream for the client, if no round follows."""
        return self._released() + self._ended()

    def stopped(self, sentence: str) -> bytes:
        """The end of the stream if the model would call us again: a normal end, preceded by `sentence` if the model has
        not said a word to the client. Reasoning that still waits belongs to our call."""
        told, said = b"", []
        if not self._has_spoken and not self._speaks:
            told, item = self._sentence(sentence)
            said.append(item)
        return told + self._ended(said)

    def _ended(self, said: Sequence[bytes] = ()) -> bytes:
        """What was held, with all rounds in its response."""
        output = jsontext.join_array([*self._before, *self._shown, *said])
        return b"".join([self._renumbered(event, found, output) for event, found in self._held]) + self._rest

    def _sentence(self, sentence: str) -> tuple[bytes, bytes]:
        """The events for a message of ours, and that message."""
        message = said_by_us(sentence, self._rounds)
        part = message["content"][0]
        index = len(self._before) + len(self._shown)
        here = {"output_index": index, "item_id": message["id"], "content_index": 0}
        events = (
            {"type": _ADDED, "output_index": index, "item": {**message, "status": "in_progress", "content": []}},
            {"type": "response.content_part.added", **here, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **here, "delta": sentence, "logprobs": []},
            {"type": "response.output_text.done", **here, "text": sentence, "logprobs": []},
            {"type": "response.content_part.done", **here, "part": part},
            {"type": _DONE, "output_index": index, "item": message},
        )
        told = b""
        for one in events:
            told += written({**one, "sequence_number": self._number})
            self._number += 1
        return told, jsontext.dump(message)

    @property
    def _shown(self) -> list[bytes]:
        """Items of this round that the client gets."""
        return [self._items[index] for index in sorted(self._items) if index not in self._own | self._thoughts]

    @property
    def _speaks(self) -> bool:
        """Whether the model has said a word in this round."""
        return any(head_of(raw).kind is Kind.MESSAGE for raw in self._shown)

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(self._round_usage) if self._is_changed else {}

    @property
    def _round_usage(self) -> Mapping[str, Any]:
        response = self._final.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        return usage if isinstance(usage, dict) else {}

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""
        self._rounds += 1
        self._usage.add(self._round_usage)
        self._has_spoken = self._has_spoken or self._speaks
        self._before += self._shown
        self._begin()


def _number_of(found: Mapping[str, Any]) -> int:
    number = found.get("sequence_number")
    return number if isinstance(number, int) else 0


def _rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    """An event with changes in its data, under the same name."""
    named = [line for line in event.splitlines() if line.startswith((b"event:", b"id:"))]
    return b"\n".join([*named, b"data: " + spliced(data_of(event), changes), b"", b""])
