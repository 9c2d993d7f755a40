"""The words of a script: what arrived, the limits that a server checks, and what its model says.

Rule: a rule sees the request that arrived and nothing of the proxy.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from support.upstream import measures
from support.upstream.replies import Answer, Call, Json, Refusal, Reply, Usage
from support.upstream.sockets import Connection, Request


class Face(Protocol):
    """One API, as its server speaks it."""

    name: str
    path: str
    also: Sequence[str]
    """More paths that are answered alike."""
    member: str
    """With the conversation."""
    refusals: Mapping[str, Refusal]
    """By who says it, or how."""
    in_streams: Sequence[str]
    """The refusal of a whole answer, and after it those that occur in a stream only."""
    counted_at: str
    """The path of its token counting; empty: it has none."""
    held_by: str
    """The member that names a conversation which the server holds; empty: it holds none."""

    def parse(self, body: bytes, /) -> Json: ...
    def items(self, body: Mapping[str, Any], /) -> list[Any]: ...
    def count(self, body: Mapping[str, Any], /) -> int: ...
    def tools(self, body: Mapping[str, Any], /) -> list[tuple[str, str | None]]: ...
    def reply_limit(self, body: Mapping[str, Any], /) -> int: ...
    def last_user(self, body: Mapping[str, Any], /) -> str: ...
    def is_stream(self, body: Mapping[str, Any], /) -> bool: ...
    def complaints(self, body: Json, issued: Sequence[Sequence[Json]] = ()) -> Sequence[str]: ...
    def error(self, message: str, status: int = 400, **members: Any) -> Answer: ...
    def error_event(self, message: str, **members: Any) -> bytes: ...
    def counted(self, tokens: int, /) -> Answer: ...
    def answered(self, body: Json, reply: Reply, usage: Usage | None, number: int, /) -> tuple[Answer, list[Json]]: ...


@dataclass(eq=False)
class Sent:
    """A request for an answer, as it arrived, and what became of it."""

    face: Face
    path: str
    pairs: Sequence[tuple[bytes, bytes]]
    """Its headers, their names in lower case."""
    body: bytes
    json: Json
    """The body, with what the server holds of the conversation."""
    tokens: int
    """Of all that the model would read."""
    number: int
    """From 1, of all that this server was sent."""
    issued: Sequence[Sequence[Json]] = ()
    """The contents that this server has answered with."""
    is_held: bool = False
    """Whether the server holds what leads to it."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What was on disk at that moment, where a model watches a folder."""
    answer: Answer | None = None
    """None: not yet, or a scene was played."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return dict(self.pairs)

    @property
    def refused(self) -> bool:
        return self.answer is not None and (self.answer.refuses or self.answer.status >= 400)

    @property
    def text(self) -> str:
        """All of it; a rule looks for a mark in here."""
        return json.dumps(self.json)

    @property
    def messages(self) -> list[Any]:
        """Its items, whatever the API calls them."""
        return self.face.items(self.json)

    @property
    def is_stream(self) -> bool:
        return self.face.is_stream(self.json)

    @functools.cached_property
    def complaints(self) -> Sequence[str]:
        """What the API finds wrong with it."""
        return self.face.complaints(self.json, () if self.is_held else self.issued)

    def values(self, name: bytes) -> list[bytes]:
        """Of a header, whose name is in lower case."""
        return [value for found, value in self.pairs if found == name]

    def measured(self, what: str) -> float:
        """A size of it, by its name in `measures`."""
        match what:
            case "prompt":
                return self.tokens
            case "reply":
                return self.face.reply_limit(self.json)
            case "total":
                return self.tokens + self.face.reply_limit(self.json)
            case "bytes":
                return len(self.body)
        return measures.MEASURES[what](self.json, self.messages)


Scene: TypeAlias = Callable[[Connection, Request], Awaitable[None]]
"""What happens on the connection, byte for byte."""
Rule: TypeAlias = Callable[[Sent], "Answer | Scene | None"]
Says: TypeAlias = Callable[[Sent], Reply]


@dataclass
class Over:
    """Refuse what is larger than a limit."""

    what: str
    """`prompt`, `reply`, `total`, `bytes`, or a name in `measures`."""
    limit: float
    words: str = ""
    """A refusal of the face by its name; else a sentence with `{limit}`, `{seen}`, `{prompt}`, `{reply}`, `{total}`,
    `{excess}`; nothing: the face's first refusal."""
    status: int = 400
    arrives: str = "body"
    """`body`, `first event`, or `after content`: only a stream can refuse otherwise than in its body."""
    times: int = 10**9
    """How often at most."""
    members: Mapping[str, Any] = field(default_factory=dict)
    """More members of the error."""
    refused: int = 0

    def __call__(self, sent: Sent) -> Answer | None:
        seen = sent.measured(self.what)
        if seen <= self.limit or self.refused >= self.times:
            return None
        self.refused += 1
        return replace(self.refusal(sent, seen), refuses=True)

    def refusal(self, sent: Sent, seen: float) -> Answer:
        """What is said to it."""
        face = sent.face
        if not self.words or self.words in face.refusals:
            own, *in_streams = face.in_streams
            words = own if not self.words or (self.words in in_streams and not sent.is_stream) else self.words
            counted = sent.tokens if self.what == "total" else int(seen)
            return face.refusals[words](sent.json, counted, int(self.limit))
        message = self.words.format(
            limit=int(self.limit),
            seen=int(seen),
            prompt=sent.tokens,
            reply=int(sent.measured("reply")),
            total=int(sent.measured("total")),
            excess=int(seen - self.limit),
        )
        if self.arrives == "body" or not sent.is_stream:
            return face.error(message, self.status, **self.members)
        begun = face.answered(sent.json, Reply("So far."), None, sent.number)[0]
        before = begun.pieces()[:-2] if self.arrives == "after content" else []
        return Answer(200, b"".join([*before, face.error_event(message, **self.members)]), begun.content_type)


@dataclass
class Has:
    """Refuse a request that has one of these marks in its JSON."""

    marks: Sequence[str]
    words: str
    status: int = 400
    times: int = 10**9
    refused: int = 0

    def __call__(self, sent: Sent) -> Answer | None:
        text = sent.text
        if self.refused >= self.times or not any(mark in text for mark in self.marks):
            return None
        self.refused += 1
        return sent.face.error(self.words, self.status)


def valid(sent: Sent) -> Answer | None:
    """Demand pairs, orders and shapes as the API does, in its words; and its own thinking as it was said."""
    return sent.face.error(sent.complaints[0]) if sent.complaints else None


def well_formed(sent: Sent) -> Answer | None:
    """The same, but whoever has thought what comes back."""
    found = sent.face.complaints(sent.json)
    return sent.face.error(found[0]) if found else None


def once(rule: Rule) -> Rule:
    """The rule for the first request that it has an answer for."""
    left = [rule]

    def first(sent: Sent) -> Answer | Scene | None:
        found = left[0](sent) if left else None
        if found is not None:
            left.clear()
        return found

    return first


class Replies(list[Reply]):
    """One reply after the other; then each says its number."""

    def __call__(self, sent: Sent) -> Reply:
        return self.pop(0) if self else Reply(f"Reply {len(sent.issued) + 1}.")


def words(*texts: str) -> Says:
    """One text after the other, and the last one for ever."""
    return in_turn(*(Reply(text) for text in texts))


def thinking(thought: Callable[[list[Any]], Reply]) -> Says:
    """A model whose reply follows from the messages that reach it."""
    return lambda sent: thought(sent.messages)


def reads(name: str, text: str = "", **parameters: Any) -> Reply:
    """The model reads an artifact."""
    return Reply(text, (Call("read_artifact", {"id": name, **parameters}),))


def in_turn(*replies: Reply) -> Says:
    """One reply after the other, and the last one for ever."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
