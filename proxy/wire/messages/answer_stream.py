"""Merges the streams of one response's rounds into one for the client, without the calls of the proxy's own tool.

Rule: events that have nothing to do with those calls pass at once, byte for byte. From the first of those calls on, the
end of a stream is held until it is known whether another round follows; later rounds continue the message of the first,
and so do the numbers of their blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL, AssistantMessage
from proxy.core.text import jsontext
from proxy.core.text.jsontext import Path
from proxy.wire.messages.blocks import kind_of
from proxy.wire.messages.replies import (
    BROKEN_OFF,
    PLAIN_END,
    RoundsUsage,
    blocks_of,
    event_of,
    is_own,
    rewritten,
    said,
    said_in,
)
from proxy.wire.streams import EventSplitter

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Of one round's events, from which its message is assembled, and of one event. A longer stream is the final response,
and passes as it arrives."""
_OWN: Final = RETRIEVAL_TOOL.encode()
_STARTS: Final = (b'"content_block_start"', b'"message_start"')
"""Signs of the events that say whose the others are, and what the prompt cost."""


class AnswerStream:
    """Takes the pieces of each round's stream in turn, and returns what the client gets of them."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._usage = RoundsUsage()
        self._blocks = 0
        """The client's next block has this index, once blocks are renumbered."""
        self._spoken = False
        """Whether a block of text is among them."""
        self._begin()

    def _begin(self) -> None:
        self._events = EventSplitter()
        self._kept: list[bytes] = []
        """Single events, or several together."""
        self._kept_bytes = 0
        self._own: set[int] = set()
        """Indexes of the blocks that call us."""
        self._indexes: dict[int, int] = {}
        """Of the client's blocks that are renumbered: index in this round's stream → index for the client."""
        self._held: list[bytes] = []
        """The end of the stream, as the client would get it."""
        self._stop_reason: object = None
        self._failed = False
        self._is_passing = False
        """Whether the rest passes as it arrives."""
        self._round_usage: dict[str, Any] = {}

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's stream → what the client gets now."""
        if self._is_passing:
            return piece
        is_plain = not (self._own or self._rounds or self._events.held_bytes)
        if is_plain and piece.endswith(b"\n\n") and not any(sign in piece for sign in _STARTS):
            self._keep(piece)  # whole events that begin nothing, like nearly all: nothing in them is ours
            return piece
        told = [self._passed(event) for event in self._events.feed(piece)]
        if self._events.held_bytes > MAX_KEPT_BYTES:
            self._is_passing = self._failed = True
            told += [*self._held, self._events.rest]
            self._held.clear()
        return b"".join(told)

    def end(self) -> AssistantMessage | None:
        """The round's stream has ended: returns the model's message if it called us and needs a result."""
        if not self._is_passing and (rest := self._events.rest):
            self._held.append(self._passed(rest))
        if not self._own or self._failed or self._stop_reason in BROKEN_OFF:
            return None
        events = (event for kept in self._kept for event in EventSplitter().feed(kept) or [kept])
        blocks = blocks_of(map(said, events))
        return None if blocks is None else said_in(blocks)

    def last_words(self) -> bytes:
        """The end of the stream for the client, if no round follows."""
        return b"".join(self._held)

    def stopped(self, sentence: str) -> bytes:
        """The end of the stream if the model would call us again: a normal end, preceded by `sentence` if the model has
        not said a word."""
        changes: dict[Path, bytes | None] = {("delta", "stop_reason"): PLAIN_END}
        ended = [
            rewritten(event, changes) if said(event).get("type") == "message_delta" else event for event in self._held
        ]
        return b"".join([*([] if self._spoken else [_text_block(self._blocks, sentence)]), *ended])

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(self._round_usage) if self._rounds or self._own else {}

    def next_round(self) -> None:
        """The pieces that follow are those of another round."""
        self._rounds += 1
        self._usage.add(self._round_usage)
        self._begin()

    def _keep(self, events: bytes) -> None:
        self._kept_bytes += len(events)
        if self._kept_bytes <= MAX_KEPT_BYTES:
            self._kept.append(events)
        else:
            self._failed = True

    def _passed(self, event: bytes) -> bytes:
        """The part of an event that the client gets now."""
        self._keep(event)
        found = said(event)
        match found.get("type"):
            case "message_start":
                return self._started(event, found)
            case "content_block_start":
                return self._block_begins(event, found)
            case "content_block_delta" | "content_block_stop":
                return self._of_block(event, found)
            case "message_delta":
                return self._ended(event, found)
            case "message_stop" if self._own:
                self._held.append(event)
                return b""
            case "error":
                self._failed = True
        return event

    def _started(self, event: bytes, found: Mapping[str, Any]) -> bytes:
        message = found.get("message")
        self._count(message.get("usage") if isinstance(message, dict) else None)
        return b"" if self._rounds else event

    def _block_begins(self, event: bytes, found: Mapping[str, Any]) -> bytes:
        block, index = found.get("content_block"), found.get("index")
        if not isinstance(index, int):
            return event
        if is_own(block):
            self._own.add(index)
            return b""
        if self._own or self._rounds:
            self._indexes[index] = self._blocks
        self._blocks = max(self._blocks, self._indexes.get(index, index) + 1)
        self._spoken |= kind_of(block) == "text"
        return self._of_block(event, found)

    def _of_block(self, event: bytes, found: Mapping[str, Any]) -> bytes:
        """An event of a block, with the index that the block has for the client."""
        index = found.get("index")
        if not isinstance(index, int):
            return event
        if index in self._own:
            return b""
        told = self._indexes.get(index, index)
        return event if told == index else rewritten(event, {("index",): jsontext.dump(told)})

    def _ended(self, event: bytes, found: Mapping[str, Any]) -> bytes:
        delta = found.get("delta")
        self._stop_reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        usage = found.get("usage")
        self._count(usage)
        if self._rounds and isinstance(usage, dict):
            event = rewritten(event, {("usage",): jsontext.dump(self._usage.told(usage))})
        if not self._own:
            return event
        self._held.append(event)
        return b""

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._round_usage |= usage


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
