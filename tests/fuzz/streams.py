"""Streams of answers of any wire: cut into any pieces, what the client gets is the same.

Rule: bytes of which nothing is taken out come through as they are, with our tool offered and without; a call of ours
never reaches the client.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fuzz.mutations import damaged, mutated
from hypothesis import strategies as st

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, AssistantMessage
from proxy.shell.relay import PeekedResponse
from proxy.wire import SSE, Framing, Wire

_LINE_ENDS_IN: Final = re.compile(rb"[\r\n]+")
_LINE_ENDS: Final = (b"\n", b"\n", b"\n", b"\r\n", b"\r")
ODD_EVENTS: Final = (
    b": comment\n\n",
    b"\n\n",
    b"event: ping\ndata: {}\n\n",
    b"id: 1\nretry: 5\n\n",
    b"data\n\n",
    b"data: not json\n\n",
    b"data: [DONE]\n\n",
    b'data: {"error": {"message": "overloaded", "code": 503}}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
    b'data: {"type": []}\n\n',
    b"\xef\xbb\xbf",
)
"""Events of servers of all APIs."""


@dataclass(frozen=True)
class StreamRules:
    """Properties of every stream of one wire."""

    wire: Wire
    calls: Callable[[Any], Iterable[str]]
    """The data of an event → the names of the tools that it calls."""
    may_call: bytes
    """Stands in every stream with a call."""

    def check(self, case: bytes) -> None:
        """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
        framing = self.wire.framing
        whole, events = self._answered([case], 2), _split([case], framing)
        assert b"".join(events) == case
        self._check_sent(case, whole)
        self.wire.is_complete(case)
        self.wire.counted(case)
        self.wire.is_plainly_a_reply(case)
        for event in events:
            self.wire.says_something(framing.data_of(event))
        for pieces in _cut(case):
            assert _as_sent(self._answered(pieces, 2), framing) == _as_sent(whole, framing)
            assert b"".join(found := _split(pieces, framing)) == case
            # Lines that say nothing belong to one event or another, as the pieces have them.
            assert list(filter(None, map(framing.data_of, found))) == list(filter(None, map(framing.data_of, events)))
            assert asyncio.run(self._held(pieces)) == case

    def _answered(self, pieces: Iterable[bytes], rounds: int) -> list[Round]:
        stream, found = self.wire.reply(stream=True), []
        for _ in range(rounds):
            reported = b"".join([stream.feed(piece) for piece in pieces])
            reply = stream.end()
            found.append((reported, reply, stream.last_words(), stream.stopped("Stopped.")))
            if reply is None:
                break
            stream.next_round()
        return found

    def _check_sent(self, case: bytes, rounds: Sequence[Round]) -> None:
        reported, reply, last_words, _ = rounds[0]
        if self.may_call not in case:
            assert reported + last_words == case
        for reported, reply, last_words, _ in rounds:
            if reply is not None:
                assert reply.own
                for event in self.wire.framing.splitter().feed(reported + last_words):
                    assert RETRIEVAL_TOOL not in self._calls(event)

    def _calls(self, event: bytes) -> list[str]:
        try:
            return list(self.calls(json.loads(self.wire.framing.data_of(event))))
        except (ValueError, RecursionError):
            return []

    async def _held(self, pieces: Sequence[bytes]) -> bytes:
        """Bytes for a client without our tool, if the beginning of the stream was held until it could be judged."""
        reported: list[bytes] = []

        async def early(_: object, piece: bytes) -> None:
            reported.append(piece)

        answer = PeekedResponse.of(_Upstream(pieces, self.wire), self.wire)  # type: ignore[arg-type] # it has all that is used
        await answer.look(early)
        reported += [piece async for piece in answer.chunks()]
        return b"".join(reported)


Round = tuple[bytes, AssistantMessage | None, bytes, bytes]
"""A processed stream: bytes for the client, the model's message, its end, and its end if no round follows."""


def _as_sent(rounds: Sequence[Round], framing: Framing) -> list[tuple[object, AssistantMessage | None, object]]:
    """All that is sent of each round. A blank line may be sent at once or with the end, as the pieces have it; where
    another end takes the place of that one, without it; and where events are made, before or after these. So may a
    comment after the last event."""
    return [
        (
            reported + last_words if reply is None else _seen(reported + last_words, framing),
            reply,
            _seen(reported + stopped, framing),
        )
        for reported, reply, last_words, stopped in rounds
    ]


def _seen(stream: bytes, framing: Framing) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """A stream as a client parses it, however its blank lines are spread: comments, lines, and the data of events."""
    lines = [line for line in _LINE_ENDS_IN.split(stream) if line]
    comments = [line for line in lines if line.startswith(b":")]
    lines = [line for line in lines if not line.startswith(b":")]
    return comments, lines, list(filter(None, map(framing.data_of, _split([stream], framing))))


@st.composite
def cases(
    draw: Any, streams: st.SearchStrategy[list[bytes]], odd: Sequence[bytes] = (), framing: Framing = SSE
) -> bytes:
    """A stream with some of its events lost, said again, changed, or with odd ones between them."""
    data_of = framing.data_of
    events = list(draw(streams))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(events) - 1))
        match draw(st.sampled_from(["insert", "remove", "again", "change", "change", "end"])):
            case "insert":
                events.insert(at, draw(st.sampled_from((*ODD_EVENTS, *odd))))
            case "remove" if len(events) > 1:
                del events[at]
            case "again":
                events.insert(at, draw(st.sampled_from(events)))
            case "change" if data_of(events[at]).startswith(b"{"):
                data = data_of(events[at])
                events[at] = events[at].replace(data, draw(_changed(data)))
            case "end":
                events[at] = events[at][: draw(st.integers(0, len(events[at])))]
            case _:
                pass
    end = draw(st.sampled_from(_LINE_ENDS))
    return b"".join(event.replace(b"\n", end) for event in events)


def damaged_cases(
    streams: st.SearchStrategy[list[bytes]], odd: Sequence[bytes] = (), framing: Framing = SSE
) -> st.SearchStrategy[bytes]:
    """The same, and now and then damaged as bytes."""
    return damaged(cases(streams, odd, framing))


def events_of(body: bytes) -> list[bytes]:
    """A stream as its events."""
    return [event + b"\n\n" for event in body.split(b"\n\n") if event]


def _changed(data: bytes) -> st.SearchStrategy[bytes]:
    try:
        value = json.loads(data)
    except ValueError:
        return st.just(data)
    return mutated(st.just(value)).map(lambda found: json.dumps(found).encode())


def _cut(case: bytes) -> Iterable[list[bytes]]:
    """In small pieces, in ones of odd lengths, and in two at the places where a line or an event may be torn."""
    for size in (1, 2, 3, 17, 1_000):
        if len(case) <= 2_000 * size:
            yield [case[at : at + size] for at in range(0, len(case), size)]
    ends = [at for at, byte in enumerate(case) if byte in b"\r\n"][:40]
    yield from ([case[:at], case[at:]] for at in {place for end in ends for place in (end, end + 1)})


def _split(pieces: Iterable[bytes], framing: Framing) -> list[bytes]:
    splitter = framing.splitter()
    found = [event for piece in pieces for event in splitter.feed(piece)]
    return [*found, splitter.rest]


class _Upstream:
    """An answer in pieces, as much of one as a PeekedResponse asks for."""

    status = 200

    def __init__(self, pieces: Sequence[bytes], wire: Wire) -> None:
        self.headers = ((b"content-type", wire.framing.content_type),)
        self._pieces = pieces

    def arrived(self) -> bytes | None:
        return None

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
