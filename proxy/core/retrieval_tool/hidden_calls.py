"""Calls of the proxy's own tool, which the client never sees: a model's message with them, what is remembered of them,
how they return to the conversation, and what a request needs that continues, by its name, from a response that its
upstream keeps.

Rule: a call belongs to the proxy if it names the proxy's tool, which is offered only where no tool of the client has
that name; every call keeps its bytes, because they may carry what an upstream wants back (Gemini's thought signatures).
The client sends back its own calls; these calls, and everything that it sent before them, identify the hidden ones. The
same bytes are put back in every later turn, on every replica and after a restart, and never another tenant's. An
upstream waits for a result of each call that it keeps, so every response in which such calls have none leaves a record.
A response of several rounds ends under another name than it began with; clients continue from either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proxy.core.artifact import Artifact
from proxy.core.conversation import SYSTEM_ROLES, Message
from proxy.core.text import Discreet, jsontext

RETRIEVAL_TOOL: Final = "read_artifact"
"""The proxy's own tool."""


class OwnCall(Discreet, frozen=True):
    """A call of the proxy's own tool."""

    position: int
    """Its index among all calls of its message."""
    id: str
    arguments: str
    """The model's text: JSON, or an attempt at it."""
    raw: bytes
    """The whole call."""


class AssistantMessage(Discreet, frozen=True):
    """A model's message in one round."""

    message: bytes
    """The message sent back upstream, with all calls."""
    own: tuple[OwnCall, ...]
    others: tuple[bytes, ...]
    """The client's calls, in order."""
    others_meant: Any
    """The other calls by meaning: ids, names, arguments."""
    texts: Mapping[str, str]
    """The parts that a person may read, by the wire's name for each: text and reasoning."""

    before: tuple[bytes, ...] = ()
    """Messages of the same response that the client sends back before this one."""

    @property
    def is_mixed(self) -> bool:
        """Whether the client also has calls to answer."""
        return bool(self.own and self.others)


HISTORY_BYTES: Final = 16
"""Size of the hash of a conversation up to one message: 128 bits, because only its tenant can create another one."""


class _Hidden(msgspec.Struct, frozen=True):
    """A record in the store."""

    visible: str
    """The mark of the client's calls that it belongs to."""
    positions: list[int]
    """The indexes of the hidden calls among all of them."""
    calls: list[msgspec.Raw]
    """Each as its wire wrote it; a JSON string if that is not JSON."""
    results: list[msgspec.Raw]
    """The messages that answer the hidden calls."""


class HiddenToolCalls(Discreet, frozen=True):
    """Our calls in one response, with their results."""

    mark: str
    """Mark of the client's calls in that response."""
    positions: tuple[int, ...]
    """The indexes of our calls among all of them."""
    calls: tuple[bytes, ...]
    results: tuple[bytes, ...]
    """Tool messages, one for each call."""

    @classmethod
    def of(cls, history: bytes, reply: AssistantMessage, results: Sequence[bytes]) -> HiddenToolCalls:
        """The hidden calls of a mixed response to a conversation with this history."""
        positions = tuple(call.position for call in reply.own)
        return cls(
            mark_of(history, reply.others_meant), positions, tuple(call.raw for call in reply.own), tuple(results)
        )

    @classmethod
    def read(cls, content: bytes, mark: str) -> HiddenToolCalls | None:
        """The record under a mark; None if the content is something else."""
        try:
            record = msgspec.json.decode(content, type=_Hidden)
            calls, results = (tuple(map(jsontext.taken_out, found)) for found in (record.calls, record.results))
        except (msgspec.DecodeError, UnicodeError, jsontext.NotJson):
            return None
        if record.visible != mark or not len(record.positions) == len(record.calls) == len(record.results):
            return None
        return cls(mark, tuple(record.positions), calls, results)

    @staticmethod
    def name_of(mark: str) -> str:
        """The artifact that may hold the hidden calls under a mark."""
        return Artifact(b"", RETRIEVAL_TOOL, "json", named_by=mark).id

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self.calls + self.results))

    def artifact(self) -> Artifact:
        """The artifact that stores it for its owner, named by the mark."""
        raw = [jsontext.join_array([*map(jsontext.embedded, found)]) for found in (self.calls, self.results)]
        members = {"visible": jsontext.dump(self.mark), "positions": jsontext.dump(self.positions)}
        content = jsontext.join_object(members | {"calls": raw[0], "results": raw[1]})
        return Artifact(content, RETRIEVAL_TOOL, "json", named_by=self.mark)

    def put_back(self, message: Message) -> tuple[Message, ...]:
        """The assistant message as the model wrote it, followed by the results of the hidden calls."""
        whole = message.with_calls(dict(zip(self.positions, self.calls, strict=True)))
        return whole, *(message.again(result) for result in self.results)


def beginning(tenant: str, held: str = "") -> bytes:
    """The history of a conversation that has no messages yet. `held`: the name of what the upstream holds of it."""
    return hashlib.blake2b(f"{tenant}{held}".encode("utf-8", "backslashreplace"), digest_size=HISTORY_BYTES).digest()


def extended(history: bytes, message: Message) -> bytes:
    """The history after one more message of the client.

    It covers what a client repeats from turn to turn: what users and tools said, what the assistant called, and what it
    said without calling anything. It leaves out system texts, where clients put the time of day, and reasoning, media
    and cache markers, which clients drop or move.
    """
    if message.role in SYSTEM_ROLES:
        return history
    meaning = _canonical([message.role, message.answers, message.conversational()])
    return hashlib.blake2b(history + meaning, digest_size=HISTORY_BYTES).digest()


def mark_of(history: bytes, calls: Any) -> str:
    """Key of a client's calls, from the conversation before them and their ids, names and arguments, however they are
    written. `calls`: as `conversational` returns them.

    Ids alone are not enough: Kimi restarts them in every conversation, other servers in every response.
    https://huggingface.co/moonshotai/Kimi-K2-Instruct-0905/blob/main/docs/tool_call_guidance.md
    """
    return hashlib.sha256(history + _canonical(calls)).hexdigest()


def mark_in(history: bytes, message: Message) -> str | None:
    """The mark of the calls in a message that a client sends back, after the history before it; None if there is
    nothing to look up."""
    if message.role != "assistant" or not message.calls:
        return None
    return mark_of(history, message.conversational())


def _canonical(found: Any) -> bytes:
    try:
        return msgspec.json.encode(found, order="sorted")
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair has no UTF-8
        return repr(found).encode("utf-8", "backslashreplace")


class _Continued(msgspec.Struct, frozen=True):
    """A record in the store."""

    visible: str
    """The mark of the name that the client knows."""
    name: str
    results: list[msgspec.Raw]
    """Each as its wire wrote it; a JSON string if that is not JSON."""


class Continuation(Discreet, frozen=True):
    """How to continue from one response."""

    mark: str
    """Mark of the name that the client knows."""
    name: str
    """The response to continue from."""
    results: tuple[bytes, ...]
    """Results of its hidden calls; these messages come before those of the request."""

    @classmethod
    def of(cls, tenant: str, known_as: str, name: str, results: Sequence[bytes]) -> Continuation:
        """Remember a response that the client knows as `known_as`."""
        return cls(mark_of_name(tenant, known_as), name, tuple(results))

    @classmethod
    def read(cls, content: bytes, mark: str) -> Continuation | None:
        """The record under a mark; None if the content is something else."""
        try:
            record = msgspec.json.decode(content, type=_Continued)
            results = tuple(map(jsontext.taken_out, record.results))
        except (msgspec.DecodeError, UnicodeError, jsontext.NotJson):
            return None
        return cls(mark, record.name, results) if record.visible == mark else None

    @property
    def held_bytes(self) -> int:
        return len(self.name) + sum(map(len, self.results))

    def artifact(self) -> Artifact:
        """The artifact that stores it for its owner, named by the mark."""
        members = {"visible": jsontext.dump(self.mark), "name": jsontext.dump(self.name)}
        results = jsontext.join_array([*map(jsontext.embedded, self.results)])
        content = jsontext.join_object(members | {"results": results})
        return Artifact(content, RETRIEVAL_TOOL, "json", named_by=self.mark)


def mark_of_name(tenant: str, name: str) -> str:
    """Key of a tenant's response, distinct from those of calls."""
    return mark_of(beginning(tenant), name)
