"""The rounds of one reply, merged into one for the client: whole or streamed, on any wire.

A wire's subclass knows the members of its API: which calls are ours, what an event says, how one is written. What is
kept, hidden, held and counted is decided here.

Rule: a reply, or the events of a stream, that have nothing to do with calls of the proxy's own tool pass byte for byte.
From the first of those calls on, the end of a stream is held until it is known whether another round follows; later
rounds continue the first. The client gets the size of its own prompt, because agents decide by it when to compact: the
prompt's counts are those of the first round, whose prompt was the client's. The counts of the model's output are added
up, and so is the cost. The sum of all rounds is for the record.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage, OwnCall
from proxy.core.text import Path, Raw, jsontext
from proxy.wire.streams import SSE, Framing

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Limit of one round's stream, from which its message is assembled, and of one event: 128 000 tokens, one per event,
take about this much. A longer stream is the final reply; from a longer event on it passes as it arrives."""
BETWEEN_TEXTS: Final = "\n\n"
"""The model's texts in one round and the next are two paragraphs."""
Changes: TypeAlias = Mapping[Path, bytes | None]
_OWN: Final = RETRIEVAL_TOOL.encode()

# Counts


class RoundsUsage:
    """The usage of one response, round by round; an API says what its members are called."""

    totals_of: ClassVar[Mapping[str, str]]
    """The API's names of the prompt's, the reply's and all tokens, in this order → those in the record."""
    of_the_prompt: ClassVar[re.Pattern[str]]
    """Matches the names of everything that counts the prompt."""

    def __init__(self) -> None:
        self._first: Mapping[str, Any] | None = None
        self._whole: Mapping[str, Any] = {}
        """Merged usage of the finished rounds."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """A round is over; `usage` is its last one, empty if there was none."""
        self._first = self._first or usage
        self._whole = added(self._whole, usage)

    def for_client(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """The usage of a later round as the client gets it."""
        first, whole = self._first or usage, added(self._whole, usage)
        forwarded = {**whole, **{name: found for name, found in first.items() if self.of_the_prompt.fullmatch(name)}}
        *parts, total = self.totals_of
        counted: list[Any] = [forwarded[name] for name in parts if _is_number(forwarded.get(name))]
        if len(counted) == len(parts) and _is_number(forwarded.get(total)):
            forwarded[total] = sum(counted)
        return forwarded

    def totals(self, usage: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of all rounds together, including this one; empty without counts."""
        whole = added(self._whole, usage)
        return {name: found for own, name in self.totals_of.items() if type(found := whole.get(own)) is int}


def added(before: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of two rounds together: numbers are added, anything else is taken from the last one.

    >>> added({"total_tokens": 3, "details": {"cached": 1}}, {"total_tokens": 4, "details": {"cached": 2}, "x": None})
    {'total_tokens': 7, 'details': {'cached': 3}, 'x': None}
    """
    return {**before, **{name: _together(before.get(name), found) for name, found in usage.items()}}


def _together(before: Any, found: Any) -> Any:
    if isinstance(before, dict) and isinstance(found, dict):
        return added(before, found)
    if _is_number(before) and _is_number(found):
        return before + found
    return before if found is None else found


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


# Replies


class Reply(ABC):
    """One reply over several rounds."""

    counts: ClassVar[type[RoundsUsage]]
    texts: ClassVar[Sequence[str]]
    """The names of a message's texts; the first is the one for people."""

    def __init__(self) -> None:
        self._rounds = 0
        """Number of finished rounds."""
        self._usage = self.counts()
        self._spoken: set[str] = set()
        """The names of the texts in the finished rounds."""
        self._before: list[bytes] = []
        """Items of the finished rounds, as the client has them."""
        self._begin()

    def _begin(self) -> None:
        self._parsed: AssistantMessage | None = None
        self._round_usage: Mapping[str, Any] = {}

    @property
    @abstractmethod
    def _calls_us(self) -> bool:
        """Whether the model has called us in this round."""

    @property
    def _is_changed(self) -> bool:
        return bool(self._rounds or self._calls_us)

    @property
    def usage(self) -> dict[str, int]:
        """The counts of all rounds so far; empty if this is the first round and none of its calls is ours."""
        return self._usage.totals(self._round_usage) if self._is_changed else {}

    def _paragraph(self, sentence: str) -> str:
        """A sentence after what the model has written for people, if it has."""
        has_spoken = self.texts[0] in self._spoken or bool(self._parsed and self._parsed.texts.get(self.texts[0]))
        return BETWEEN_TEXTS + sentence if has_spoken else sentence

    def _counts_in(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """The counts at the end of a round."""
        return jsontext.object_in(reply, "usage")

    def _counted(self) -> Changes:
        """Changes that turn the counts of a later round into those of all rounds."""
        return {("usage",): jsontext.dump(self._usage.for_client(self._round_usage))}

    def _shown(self) -> Sequence[bytes]:
        """The items of this round that the client gets if another one follows, where the end of a reply lists them."""
        return ()

    def next_round(self) -> None:
        self._usage.add(self._round_usage)
        self._spoken |= {name for name, text in self._parsed.texts.items() if text} if self._parsed else set()
        self._before += self._shown()
        self._rounds += 1
        self._begin()


class WholeReply(Reply):
    """A reply that is not a stream: each round has one body."""

    def _begin(self) -> None:
        super()._begin()
        self._body = b""
        self._reply: Mapping[str, Any] = {}

    @abstractmethod
    def _read(self, reply: Mapping[str, Any]) -> AssistantMessage | None:
        """The model's message in this round's body; None if the body is something else."""

    @abstractmethod
    def _is_final(self, reply: Mapping[str, Any]) -> bool:
        """Whether the reply broke off, so that no round may follow."""

    @abstractmethod
    def _merged(self, stopped_with: str | None = None) -> Changes:
        """Changes that turn this round's body into that of all rounds. `stopped_with`: the model would call us again; a
        sentence in its place."""

    @property
    def _calls_us(self) -> bool:
        return bool(self._parsed and self._parsed.own)

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's body; the client gets nothing of it before the end."""
        self._body += piece
        return b""

    def end(self) -> AssistantMessage | None:
        """The round's body has ended: returns the model's message if it called us and needs a result."""
        if not self._rounds and _OWN not in self._body:
            return None
        found = jsontext.opened(self._body)
        self._parsed = self._read(found) if isinstance(found, dict) else None
        if self._parsed is None:
            return None
        self._reply, self._round_usage = found, self._counts_in(found)
        return None if not self._parsed.own or self._is_final(found) else self._parsed

    def last_words(self) -> bytes:
        """The body as the client gets it, if no round follows."""
        return self._for_client(self._merged() if self._parsed is not None else {})

    def stopped(self, sentence: str) -> bytes:
        """The body if the model would call us again: a normal end, with `sentence` after what it wrote."""
        return self._for_client(self._merged(sentence))

    def _for_client(self, changes: Changes) -> bytes:
        if self._rounds and self._round_usage:
            changes = {**changes, **self._counted()}
        return jsontext.spliced(self._body, changes)


class MessageReply(WholeReply):
    """A whole reply whose message has its calls and its texts in members of its own."""

    place: ClassVar[Path]
    """Path of the message in the body."""
    finish: ClassVar[Changes] = {}
    """Changes that turn the end of a call into a normal one."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {name: [] for name in self.texts}
        """The model's texts in the finished rounds, by the member that contains them."""

    def _merged(self, stopped_with: str | None = None) -> Changes:
        changes: dict[Path, bytes | None] = {}
        if self._parsed and self._parsed.own:
            others = self._parsed.others
            changes[*self.place, "tool_calls"] = jsontext.join_array(others) if others else None
        for name, texts in self._texts.items():
            words = [stopped_with] if stopped_with and name == self.texts[0] else []
            if texts or words:
                changes[*self.place, name] = jsontext.dump(BETWEEN_TEXTS.join([*texts, *self._text(name), *words]))
        if stopped_with is not None:
            changes |= self.finish
        return changes

    def _text(self, name: str) -> list[str]:
        text = self._parsed.texts.get(name) if self._parsed else None
        return [text] if text else []

    def next_round(self) -> None:
        """The next body is that of another round."""
        for name, texts in self._texts.items():
            texts.extend(self._text(name))
        super().next_round()


class StreamedReply(Reply):
    """A reply that is a stream of events."""

    framing: ClassVar[Framing] = SSE
    keeps_plain: ClassVar[bool] = True
    """Whether the model's message is assembled from plain pieces, too."""

    def _begin(self) -> None:
        super()._begin()
        self._events = self.framing.splitter()
        self._kept: list[bytes] = []
        """Events, or pieces of them."""
        self._kept_bytes = 0
        self._own: set[int] = set()
        """The numbers of our calls in this round's stream."""
        self._speaking: set[str] = set()
        """The names of the texts that have begun in this round, if it is not the first."""
        self._held: list[bytes] = []
        """Events that end the stream, held once we were called."""
        self._rest = b""
        """An event at the end of the stream that is incomplete."""
        self._failed = False
        """Whether no round may follow."""
        self._is_idle = not self._rounds
        """Whether nothing is changed so far, and no event is incomplete."""
        self._is_passing = False
        """Whether the rest passes as it arrives."""

    @abstractmethod
    def _is_plain(self, piece: bytes) -> bool:
        """Whether a piece is whole events in which no call begins, like nearly all."""

    @abstractmethod
    def _passed(self, event: bytes) -> bytes:
        """The part of an event that the client gets now."""

    @abstractmethod
    def _message(self) -> AssistantMessage | None:
        """The model's message, from the events that were kept; None if it is incomplete, or cannot be assembled."""

    @property
    def _calls_us(self) -> bool:
        return bool(self._own)

    def feed(self, piece: bytes) -> bytes:
        """A piece of the round's stream → what the client gets now."""
        if self._is_passing:
            return piece
        if self._is_idle and self._is_plain(piece):
            if self.keeps_plain:
                self._keep(piece)  # reading it can wait, usually for ever
            return piece
        forwarded = b"".join([*map(self._passed, self._events.feed(piece)), self._too_long()])
        self._is_idle = not (self._is_changed or self._events.held_bytes)
        return forwarded

    def end(self) -> AssistantMessage | None:
        """The round's stream has ended: returns the model's message if it called us and needs a result."""
        if not self._is_passing and (rest := self._events.rest):
            self._rest = self._passed(rest)
        if self._own and not self._failed:
            self._parsed = self._message()
        return self._parsed

    def last_words(self) -> bytes:
        """The end of the stream for the client, if no round follows."""
        return b"".join(self._held) + self._rest

    @abstractmethod
    def stopped(self, sentence: str) -> bytes:
        """The end of the stream if the model would call us again: a normal end, preceded by `sentence`."""

    def _keep(self, came: bytes) -> None:
        """Keep what the message is assembled from."""
        self._kept_bytes += len(came)
        if self._kept_bytes <= MAX_KEPT_BYTES:
            self._kept.append(came)
        else:
            self._failed = True

    def _kept_events(self) -> Iterable[bytes]:
        splitter = self.framing.splitter()
        return [*splitter.feed(b"".join(self._kept)), splitter.rest]

    def _paragraphs(self, message: Mapping[str, Any], at: Path) -> dict[Path, bytes | None]:
        """Changes that start new paragraphs with the texts of a later round. `at`: the place of `message`."""
        begun = {name: text for name in self.texts if (text := jsontext.string_in(message, name))}
        new = self._spoken & begun.keys() - self._speaking
        self._speaking |= begun.keys()
        return {(*at, name): jsontext.dump(BETWEEN_TEXTS + begun[name]) for name in begun if name in new}

    def _hold(self, event: bytes) -> bytes:
        self._held.append(event)
        return b""

    def _too_long(self) -> bytes:
        """The part of an incomplete event that is forwarded because it is too long to wait for."""
        if self._events.held_bytes <= MAX_KEPT_BYTES:
            return b""
        self._is_passing = self._failed = True
        forwarded = b"".join([*self._held, self._events.rest])
        self._held.clear()
        return forwarded


def content_of(event: bytes) -> Mapping[str, Any]:
    """The content of an event; empty if it is no JSON object, such as `[DONE]`."""
    return jsontext.opened_object(SSE.data_of(event))


def calls_apart(
    calls: Iterable[Raw], own_in: Callable[[Any], tuple[object, object] | None]
) -> tuple[tuple[OwnCall, ...], tuple[bytes, ...]]:
    """The calls of the proxy's own tool, and the others. `own_in`: a call, opened → its id and its arguments, which a
    few servers send as an object; None for a call of another tool."""
    own: list[OwnCall] = []
    others: list[bytes] = []
    for raw in map(bytes, calls):
        if (found := own_in(jsontext.opened(raw))) is None:
            others.append(raw)
        else:
            call_id, given = found
            arguments = given if isinstance(given, str) else jsontext.dump(given).decode("utf-8", "replace")
            own.append(OwnCall(str(call_id or ""), arguments))
    return tuple(own), tuple(others)
