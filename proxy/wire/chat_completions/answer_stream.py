"""Merges the streams of one response's rounds into one for the client, without the calls of the proxy's own tool.

Rule: events that have nothing to do with those calls pass at once, byte for byte; an event that is too long to wait for
passes as it arrives. From the first of those calls on, the end of a stream is held until it is known whether another
round follows; later rounds continue under the name of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path, spliced
from proxy.wire.chat_completions.replies import (
    BETWEEN_TEXTS,
    BROKEN_OFF,
    TEXT_MEMBERS,
    AnswerUsage,
    CallOrder,
    assembled,
    called,
    choice_of,
    delta_of,
    index_of,
    listed_calls,
    said_in,
)
from proxy.wire.streams import EventSplitter, data_of

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Of one round's events, from which its message is assembled: 128 000 tokens, one per event, take about this much. A
longer stream is the final response."""
MAX_EVENT_BYTES: Final = 1024 * 1024
"""Of an event that has not named a call so far. A longer one is an image or a whole response, not a call of our tool,
and is neither collected nor changed."""
_CALLS: Final = b'"tool_calls"'
"""Part of every event that contains a piece of a call."""
_DELTA: Final[Path] = ("choices", 0, "delta")
_FINISH: Final[Path] = ("choices", 0, "finish_reason")
_TAKEN_OVER: Final = ("id", "created")


class AnswerStream:
    """Takes the pieces of each round's stream in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._first: Mapping[str, Any] = {}
        """The first chunk of the response."""
        self._usage = AnswerUsage()
        self._spoken: set[str] = set()
        """The members that contained text in the finished rounds."""
        self._begin()

    def _begin(self) -> None:
        self._events = EventSplitter()
        self._kept: list[bytes] = []
        """Single events, or several together."""
        self._kept_bytes = 0
        self._long: bytearray | None = None
        """The part of an incomplete event that has been passed on."""
        self._awaits_call = False
        """Whether a long incomplete event names a call, and has to be collected."""
        self._order = CallOrder()
        self._own: set[int] = set()
        """Numbers of our calls."""
        self._indexes: dict[int, int] = {}
        """Of the client's calls: index in this round's stream → index for the client."""
        self._held: list[bytes] = []
        """The end of the stream, as the client would get it."""
        self._said: AssistantMessage | None = None
        self._finish: object = None
        self._failed = False
        self._speaking: set[str] = set()
        """The members that have contained text in this round, if it is not the first."""
        self._round_usage: Mapping[str, Any] = {}

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's stream → what the client gets now."""
        is_plain = not (self._own or self._rounds or self._events.held_bytes) and _CALLS not in piece
        # A third line feed would begin the next event, and be hidden with it.
        if is_plain and piece.endswith(b"\n\n") and not piece.endswith(b"\n\n\n"):
            self._keep(piece)  # whole events, like nearly all pieces: parsing them can wait, usually for ever
            return piece
        told = [self._passed(event) for event in self._events.feed(piece)]
        if self._events.held_bytes > MAX_EVENT_BYTES or self._long is not None:
            told.append(self._begun())
        return b"".join(told)

    def end(self) -> AssistantMessage | None:
        """The round's stream has ended: returns the model's message if it called us and needs a result."""
        self._failed |= self._long is not None
        if rest := self._events.rest:
            self._held.append(self._passed(rest))
        if self._own and not self._failed and self._finish not in BROKEN_OFF:
            self._said = said_in(assembled(self._chunks()))
        return self._said

    def last_words(self) -> bytes:
        """The end of the stream for the client, if no round follows."""
        return b"".join(self._held)

    def stopped(self, sentence: str) -> bytes:
        """The end of the stream if the model would call us again: a normal end, preceded by `sentence` if the model has
        not said a word to the client."""
        changes = {_FINISH: b'"stop"'}
        if not (self._said and self._said.texts.get("content")) and "content" not in self._spoken:
            changes[_DELTA] = jsontext.dump({"content": sentence})
        return b"".join(_rewritten(event, changes) if _finishes(event) else event for event in self._held)

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far, with OpenAI's names; empty if this is the first round and none of its calls
        is ours."""
        return self._usage.totals(self._round_usage)

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""
        if not self._rounds:
            self._first = next(self._chunks(), {})
        self._rounds += 1
        self._usage.add(self._round_usage)
        self._spoken |= {name for name, text in self._said.texts.items() if text} if self._said else set()
        self._begin()

    def _passed(self, event: bytes) -> bytes:
        """The part of an event that the client gets now."""
        if self._long is not None:
            return self._end_of_long(event)
        self._awaits_call = False
        self._keep(event)
        if not (self._own or self._rounds) and _CALLS not in event:
            return event
        if not data_of(event):
            return event  # a comment, which keeps the connection alive
        chunk = _chunk_of(event)
        told = self._told(event, chunk) if chunk else event
        if self._own and told and (self._held or not chunk or _finishes(told)):
            ahead, told = _parted(told)
            self._held.append(told)
            return ahead
        return told

    def _begun(self) -> bytes:
        """The part that the client gets now of a long event that is incomplete."""
        ahead = b""
        if self._long is None:
            self._awaits_call = self._awaits_call or self._events.holds(_CALLS)
            if self._awaits_call and self._events.held_bytes <= MAX_KEPT_BYTES:
                return b""
            self._long = bytearray()
            self._failed |= bool(self._held)
            ahead = self.last_words()
            self._held.clear()
        piece = self._events.release()
        self._keep_long(piece)
        return ahead + piece

    def _end_of_long(self, event: bytes) -> bytes:
        """The part that the client gets of the last bytes of a long event."""
        self._keep_long(event)
        if self._long and _CALLS not in self._long:
            self._keep(bytes(self._long))
        else:
            self._failed = True  # the client has seen its calls
        self._long = None
        return event

    def _keep_long(self, piece: bytes) -> None:
        if self._long is not None and not self._failed:
            self._long += piece
            self._failed = self._kept_bytes + len(self._long) > MAX_KEPT_BYTES
        if self._failed:
            self._long = bytearray()

    def _keep(self, events: bytes) -> None:
        self._kept_bytes += len(events)
        if self._kept_bytes <= MAX_KEPT_BYTES:
            self._kept.append(events)
        else:
            self._failed = True

    def _told(self, event: bytes, chunk: Mapping[str, Any]) -> bytes:
        """An event without our calls, under the name of the first round."""
        choice = choice_of(chunk)
        delta = delta_of(choice)
        self._failed |= "error" in chunk and choice is None
        self._finish = (choice.get("finish_reason") if choice else None) or self._finish
        changes: dict[Path, bytes | None] = self._call_changes(delta)
        if isinstance(usage := chunk.get("usage"), dict):
            self._round_usage = usage
            if self._rounds:
                changes[("usage",)] = jsontext.dump(self._usage.told(usage))
        if self._rounds and "choices" in chunk:
            changes |= self._continuing(chunk, delta)
        if not changes:
            return event
        told = _rewritten(event, changes)
        return b"" if _says_nothing(_chunk_of(told)) else told

    def _call_changes(self, delta: Mapping[str, Any]) -> dict[Path, bytes | None]:
        """Removes our calls; the client's are numbered from 0 without gaps."""
        items = listed_calls(delta)
        kept = []
        for position, item in enumerate(items):
            if not isinstance(item, dict):
                kept.append(item)
                continue
            index, begun = index_of(item, position), self._order.count
            number = self._order.number_of(item, index)
            if number == begun and called(item) == RETRIEVAL_TOOL:
                self._own.add(number)
            if number not in self._own:
                told = self._indexes.setdefault(index, len(self._indexes))
                kept.append(item if told == index else item | {"index": told})
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
        for name in TEXT_MEMBERS:
            text = delta.get(name)
            if isinstance(text, str) and text:
                if name in self._spoken and name not in self._speaking:
                    changes[(*_DELTA, name)] = jsontext.dump(BETWEEN_TEXTS + text)
                self._speaking.add(name)
        return changes

    def _chunks(self) -> Iterator[Mapping[str, Any]]:
        """The chunks of this round."""
        events = (event for kept in self._kept for event in EventSplitter().feed(kept) or [kept])
        return (chunk for event in events if (chunk := _chunk_of(event)))


def _chunk_of(event: bytes) -> Mapping[str, Any]:
    """The content of an event; empty if it is no JSON object, such as `[DONE]`."""
    try:
        found = jsontext.value(data_of(event))
    except jsontext.NotJson:
        return {}
    return found if isinstance(found, dict) else {}


def _rewritten(event: bytes, changes: Mapping[Path, bytes | None]) -> bytes:
    return b"data: " + spliced(data_of(event), changes) + b"\n\n"


def _finishes(event: bytes) -> bool:
    choice = choice_of(_chunk_of(event))
    return choice is not None and choice.get("finish_reason") is not None


def _parted(event: bytes) -> tuple[bytes, bytes]:
    """An event of the end as (the model's words in it, the end alone)."""
    delta = delta_of(choice_of(_chunk_of(event)))
    if all(not found for found in delta.values()) or not _finishes(event):
        return b"", event
    return _rewritten(event, {_FINISH: b"null", ("usage",): None}), _rewritten(event, {_DELTA: b"{}"})


def _says_nothing(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk contains nothing that a client could want after it was changed."""
    choice = choice_of(chunk)
    if choice is None or choice.get("finish_reason") is not None or chunk.get("usage"):
        return False
    return all(not found for found in delta_of(choice).values())
