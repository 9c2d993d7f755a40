"""Streams of answers: cut into any pieces, what the client gets is the same.

Rule: bytes of which nothing is taken out come through as they are, with our tool offered and without; a call of ours is
never told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from fuzz.mutations import damaged, mutated
from hypothesis import strategies as st
from support.answer_shapes import messages, streams

from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL, AssistantMessage
from proxy.shell.relay.peeking import PeekedResponse
from proxy.wire.chat_completions.answer_end import is_whole
from proxy.wire.chat_completions.answer_stream import AnswerStream
from proxy.wire.chat_completions.assistant import called
from proxy.wire.chat_completions.counted import counted_in
from proxy.wire.chat_completions.deltas import choice_of, delta_of, listed_calls
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.sse import EventSplitter, data_of

_ODD_EVENTS: Final = (
    b": comment\n\n",
    b"\n\n",
    b"event: ping\ndata: {}\n\n",
    b"id: 1\nretry: 5\n\n",
    b'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
    b'data: {"error": {"message": "overloaded", "code": 503}}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}\n\n',
    b'data: {"id": "1",\ndata: "choices": []}\n\n',
    b"data: [DONE]\n\n",
    b"data\n\n",
    b"data: not json\n\n",
    b"\xef\xbb\xbf",
)
_LINE_ENDS: Final = (b"\n", b"\n", b"\n", b"\r\n", b"\r")


@st.composite
def _cases(draw: Any) -> bytes:
    events: list[bytes] = list(draw(streams(draw(messages()), usage={"prompt_tokens": 7, "completion_tokens": 2})))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(events) - 1))
        match draw(st.sampled_from(["insert", "remove", "again", "change", "change", "end"])):
            case "insert":
                events.insert(at, draw(st.sampled_from(_ODD_EVENTS)))
            case "remove" if len(events) > 1:
                del events[at]
            case "again":
                events.insert(at, draw(st.sampled_from(events)))
            case "change" if events[at].startswith(b"data: {"):
                events[at] = b"data: " + draw(_changed(data_of(events[at]))) + b"\n\n"
            case "end":
                events[at] = events[at][: draw(st.integers(0, len(events[at])))]
            case _:
                pass
    end = draw(st.sampled_from(_LINE_ENDS))
    return b"".join(event.replace(b"\n", end) for event in events)


def _changed(data: bytes) -> st.SearchStrategy[bytes]:
    try:
        value = json.loads(data)
    except ValueError:
        return st.just(data)
    return mutated(st.just(value)).map(lambda found: json.dumps(found).encode())


CASES: Final = damaged(_cases())


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
    whole, events = _answered([case], 2), _split([case])
    assert b"".join(events) == case
    _check_told(case, whole)
    is_whole(case)
    counted_in(case)
    for pieces in _cut(case):
        assert _answered(pieces, 2) == whole
        assert _split(pieces) == events
        assert asyncio.run(_held(pieces)) == case


def _cut(case: bytes) -> Iterable[list[bytes]]:
    """In small pieces, in ones of odd lengths, and in two at the places where a line or an event may be torn."""
    for size in (1, 2, 3, 17, 1_000):
        if len(case) <= 2_000 * size:
            yield [case[at : at + size] for at in range(0, len(case), size)]
    ends = [at for at, byte in enumerate(case) if byte in b"\r\n"][:40]
    yield from ([case[:at], case[at:]] for at in {place for end in ends for place in (end, end + 1)})


def _answered(pieces: Iterable[bytes], rounds: int) -> list[tuple[bytes, AssistantMessage | None, bytes, bytes]]:
    """What becomes of a stream, and of the same as a later round: (told, what the model said, its end, another end)."""
    stream, found = AnswerStream(), []
    for _ in range(rounds):
        told = b"".join([stream.feed(piece) for piece in pieces])
        said = stream.end()
        found.append((told, said, stream.last_words(), stream.stopped("Stopped.")))
        if said is None:
            break
        stream.next_round()
    return found


def _check_told(case: bytes, rounds: list[tuple[bytes, AssistantMessage | None, bytes, bytes]]) -> None:
    told, said, last_words, _ = rounds[0]
    if b'"tool_calls"' not in case:
        assert told + last_words == case
    for told, said, last_words, _ in rounds:
        if said is None:
            continue
        assert said.own
        for event in EventSplitter().feed(told + last_words):
            assert RETRIEVAL_TOOL not in map(called, _calls(event))


def _calls(event: bytes) -> list[Any]:
    try:
        return listed_calls(delta_of(choice_of(json.loads(data_of(event)))))
    except (ValueError, RecursionError):
        return []


def _split(pieces: Iterable[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    found = [event for piece in pieces for event in splitter.feed(piece)]
    return [*found, splitter.rest]


class _Upstream:
    """An answer in pieces, as much of one as a HeldAnswer asks for."""

    status = 200
    headers = ((b"content-type", b"text/event-stream"),)

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def _held(pieces: list[bytes]) -> bytes:
    """What a client without our tool gets of a stream whose beginning was held until it could be judged."""
    told: list[bytes] = []

    async def early(_: object, piece: bytes) -> None:
        told.append(piece)

    answer = PeekedResponse(_Upstream(pieces), CHAT_COMPLETIONS)  # type: ignore[arg-type] # it has all that is used
    await answer.look(early)
    told += [piece async for piece in answer.chunks()]
    return b"".join(told)
