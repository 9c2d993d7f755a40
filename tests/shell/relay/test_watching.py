"""Which parts of a stream are forwarded in the callback in which they arrive, if it may contain calls of our tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.shell.relay import StreamedResponse
from proxy.shell.relay.peeking import NotingConsumer
from proxy.wire import Tail
from proxy.wire.chat_completions import CHAT_COMPLETIONS


class Arriving:
    """A response that hands its pieces to a consumer."""

    status, headers, counted = 200, (), None

    def __init__(self) -> None:
        self.last = Tail(1_000, 100)
        self.consumer: NotingConsumer
        self.handed, self.over = asyncio.Event(), asyncio.Event()

    def hand_to(self, consumer: NotingConsumer) -> None:
        self.consumer = consumer
        self.handed.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        await self.over.wait()
        for piece in ():
            yield piece


class Client:
    """Takes pieces, and chunks with their framing."""

    is_ready = True

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.noted: list[bytes] = []
        self.takes_chunks = True

    def take(self, piece: bytes) -> None:
        self.got.append(piece)

    def chunk_writer(self, _: Callable[[], None]) -> Callable[[bytes], None] | None:
        return self.got.append if self.takes_chunks else None

    def note_written(self, pieces: Sequence[bytes]) -> None:
        self.noted += pieces


def event(delta: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def called(name: str, index: int) -> dict[str, Any]:
    return {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": "{}"}}


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


WORDS, OURS = event({"content": "words"}), event({"tool_calls": [called(RETRIEVAL_TOOL, 0)]})
BOTH = event({"tool_calls": [called(RETRIEVAL_TOOL, 1), called("weather", 2)]})
NO_ROUNDS: Any = SimpleNamespace(
    planned=SimpleNamespace(wire=CHAT_COMPLETIONS), record=SimpleNamespace(note_usage=lambda _: None)
)


async def test_events_are_forwarded_unchanged_except_calls_of_our_tool() -> None:
    answer, client = Arriving(), Client()
    response = StreamedResponse(answer, NO_ROUNDS)  # type: ignore[arg-type] # it has all that is used
    response.hand_to(client)
    reading = asyncio.ensure_future(anext(aiter(response.chunks())))
    await answer.handed.wait()
    consumer = answer.consumer
    assert consumer.is_ready
    write = consumer.chunk_writer(lambda: None)
    assert write is not None
    write(chunk(WORDS))
    consumer.take(WORDS)
    assert (client.got, client.noted) == ([chunk(WORDS), WORDS], [WORDS])
    for piece in (OURS, BOTH):
        write(chunk(piece))
    consumer.take(OURS)
    (reported,) = client.got[2:]
    assert reported.startswith(b"data: ")
    assert json.loads(reported[6:])["choices"][0]["delta"]["tool_calls"] == [called("weather", 2) | {"index": 0}]
    assert client.noted == [WORDS], "what is taken is noted by its consumer"
    assert answer.last.joined == WORDS + OURS, "what was written is noted later"
    consumer.note_written([WORDS, OURS, BOTH])
    assert answer.last.joined == WORDS + OURS + WORDS + OURS + BOTH
    client.takes_chunks = False
    assert consumer.chunk_writer(lambda: None) is None
    reading.cancel()


async def test_without_a_consumer_nothing_is_handed_on() -> None:
    answer = Arriving()
    answer.over.set()
    response = StreamedResponse(answer, NO_ROUNDS)  # type: ignore[arg-type] # as above
    assert [piece async for piece in response.chunks()] == [b""]
    assert not answer.handed.is_set()
