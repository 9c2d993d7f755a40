"""Bodies: read and streamed within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BodyTooLarge, ClientLeft, RequestTimeout
from proxy.shell.http.bodies import BodyStream, read_body
from proxy.shell.resources.workload import Workload

PAUSE_SECONDS = 10.0
"""Nothing here takes so long."""

LEFT: dict[str, Any] = {"type": "http.disconnect"}


def receiving(*pieces: bytes | dict[str, Any], last: bool = True) -> Callable[[], Awaitable[Any]]:
    """An ASGI `receive` that hands out these pieces, then the client's leaving for ever."""
    messages = [
        piece
        if isinstance(piece, dict)
        else {"type": "http.request", "body": piece, "more_body": not last or number + 1 < len(pieces)}
        for number, piece in enumerate(pieces)
    ]

    async def receive() -> Any:
        return messages.pop(0) if messages else LEFT

    return receive


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6))
async def test_a_body_is_its_pieces_joined(pieces: list[bytes]) -> None:
    assert await read_body(receiving(*pieces), 0, 200, PAUSE_SECONDS) == b"".join(pieces)


async def test_a_body_as_long_as_the_limit_is_read() -> None:
    assert await read_body(receiving(b"12345"), 5, 5, PAUSE_SECONDS) == b"12345"


async def test_an_announced_length_over_the_limit_is_refused_before_reading() -> None:
    async def receive() -> Any:
        raise AssertionError("read")

    with pytest.raises(BodyTooLarge, match=r"has 1,000,001 bytes; at most 1,000,000"):
        await read_body(receive, 1_000_001, 1_000_000, PAUSE_SECONDS)


async def test_reading_stops_at_the_piece_that_passes_the_limit() -> None:
    receive = receiving(b"123", b"456", b"never read")
    with pytest.raises(BodyTooLarge, match="more than 5 bytes"):
        await read_body(receive, 0, 5, PAUSE_SECONDS)
    assert (await receive())["body"] == b"never read"


@pytest.mark.parametrize("pieces", [(), (b"half",)])
async def test_a_client_that_leaves_before_its_body_is_complete_is_told_apart(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ClientLeft):
        await read_body(receiving(*pieces, last=False), 0, 100, PAUSE_SECONDS)


async def test_a_stream_says_when_it_has_been_taken() -> None:
    stream = BodyStream(receiving(b"a", b"b"), PAUSE_SECONDS)
    states = [(piece, stream.finished.is_set()) async for piece in stream]
    assert states == [(b"a", False), (b"b", True)]
    assert [piece async for piece in stream] == []


async def test_a_stream_that_breaks_off_is_never_finished() -> None:
    stream = BodyStream(receiving(b"a", LEFT, last=False), PAUSE_SECONDS)
    with pytest.raises(ClientLeft):
        _ = [piece async for piece in stream]
    assert not stream.finished.is_set()


async def test_what_nobody_reads_of_a_body_is_thrown_away_as_far_as_it_is_little() -> None:
    for pieces, left in (([b"a" * 1000] * 3, 0), ([b"a" * 400_000] * 5, 2), ([b"a", LEFT], 0)):
        receive = receiving(*pieces)
        stream = BodyStream(receive, PAUSE_SECONDS)
        await stream.discard()
        assert [await receive() for _ in range(left + 1)][-1] == LEFT
        assert stream.finished.is_set() == (left == 0 and LEFT not in pieces)


async def test_a_client_that_is_held_up_does_not_pause() -> None:
    workload = Workload(100, small_bytes=0)
    others = [workload.share(), workload.share()]
    for share in others:
        await workload.take(share, 100)
    reading = asyncio.create_task(read_body(receiving(b"12", b"34"), 4, 10, 0.01, workload.share()))
    await asyncio.sleep(0.1)  # many times the pause
    for share in others:
        share.release()
    async with asyncio.timeout(10):
        assert await reading == b"1234"


def test_a_client_that_pauses_for_too_long_is_told_apart() -> None:
    async def silent() -> Any:
        await asyncio.Event().wait()

    async def read() -> None:
        with pytest.raises(RequestTimeout, match=r"nothing of the request's body arrived for 0\.01 s"):
            await read_body(silent, 0, 100, 0.01)
        with pytest.raises(RequestTimeout):
            _ = [piece async for piece in BodyStream(silent, 0.01)]

    asyncio.run(read())
