"""Streams, broken connections and clients that leave: what is retried unseen, what passes, and who stops working."""

from __future__ import annotations

import asyncio

import pytest
from support.overflow_stage import Stage
from support.overflow_words import conversation, estimate, too_long, window
from support.upstream import Scene
from support.upstream.scenes import DELTA, EVENTS, STREAM, Thinking, accepting, saying, streaming
from support.upstream.sockets import CHUNKED, Connection, Request, chunk, soon
from support.waiting import PATIENCE_SECONDS

SETTINGS = window(12_000)

REFUSAL = b"data: " + too_long(8_000, 9_500) + b"\n\n"


@pytest.mark.parametrize("status", [200, 400])
async def test_a_refusal_in_pieces_is_judged_when_its_event_is_whole(stage: Stage, status: int) -> None:
    held_open = asyncio.Event()
    pieces = [REFUSAL[i : i + 7] for i in range(0, len(REFUSAL), 7)]
    scene = streaming(*pieces, held_open)

    async def with_status(connection: Connection, request: Request) -> None:
        connection.writer.write(CHUNKED.replace(b"200 OK", b"%d X" % status))
        for piece in pieces:
            await connection.send(chunk(piece))
        await connection.until_closed()

    stage.model.plays(scene if status == 200 else with_status, accepting)
    answer = await stage.ask(conversation(9_500, stream=True))
    assert (answer.body, len(stage.model.bodies)) == (STREAM, 2)


async def test_a_stream_that_does_not_say_so_is_held_no_longer_than_one_that_does(stage: Stage) -> None:
    seen = asyncio.Event()
    stage.model.plays(streaming(DELTA, seen, DELTA, content_type=b"text/plain"))
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        stage.client.post(stage.url, data=conversation(3_000, stream=True)) as answer,
    ):
        assert await answer.content.readexactly(len(DELTA)) == DELTA
        seen.set()
        assert await answer.content.read() == DELTA


async def test_an_error_after_content_passes_byte_for_byte_and_is_not_retried(stage: Stage) -> None:
    seen = asyncio.Event()
    stage.model.plays(streaming(DELTA, seen, REFUSAL))
    async with stage.client.post(stage.url, data=conversation(9_500, stream=True)) as answer:
        assert await answer.content.readexactly(len(DELTA)) == DELTA
        seen.set()
        assert await answer.content.read() == REFUSAL
    assert len(stage.model.bodies) == 1


async def test_each_event_reaches_the_client_before_the_next_one_is_sent(stage: Stage) -> None:
    receipts = [asyncio.Event() for _ in range(3)]
    stage.model.plays(streaming(DELTA, receipts[0], DELTA, receipts[1], DELTA, receipts[2]))
    async with stage.client.post(stage.url, data=conversation(3_000, stream=True)) as answer:
        for receipt in receipts:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await answer.content.readexactly(len(DELTA)) == DELTA
            receipt.set()
        assert await answer.content.read() == b""


@pytest.mark.parametrize(
    "nothing",
    [b"", b": nothing to say\n\n", b"data: [DONE]\n\n", b'data: {"choices":[]}\n\ndata: [DONE]\n\n'],
    ids=["nothing", "a comment", "only its end", "no choice"],
)
async def test_two_streams_without_an_event_near_the_window_are_a_refusal(stage: Stage, nothing: bytes) -> None:
    """llama-cpp-python: https://github.com/abetlen/llama-cpp-python/issues/1498; LM Studio does the same."""
    stage.model.plays(saying(200, nothing, EVENTS), saying(200, nothing, EVENTS), accepting)
    answer = await stage.ask(conversation(10_300, stream=True))
    # A comment has gone out by then, and with it the headers.
    assert (answer.status, answer.body.replace(nothing, b""), len(stage.model.bodies)) == (
        200,
        STREAM.replace(nothing, b""),
        3,
    )
    assert estimate(stage.model.bodies[2]) <= 0.6 * estimate(stage.model.bodies[0])


@pytest.mark.parametrize("earlier", [(), (saying(400, too_long(8_000, 9_500)),)], ids=["first send", "second send"])
async def test_a_client_that_leaves_stops_the_upstream_at_once(stage: Stage, earlier: tuple[Scene, ...]) -> None:
    thinking = Thinking()
    stage.model.plays(*earlier, thinking)
    asking = asyncio.create_task(stage.ask(conversation(9_500, stream=True)))
    await soon(thinking.began.wait())
    asking.cancel()
    await soon(thinking.left.wait())
    assert len(stage.model.bodies) == len(earlier) + 1
