"""Bodies: read, unpacked and streamed within a bound."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.http.bodies import BodyStream, can_unpack, read_body, unpack
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


@given(st.binary(max_size=300), st.sampled_from([b"gzip", b"x-gzip", b"deflate"]))
def test_a_packed_body_unpacks_to_itself(body: bytes, encoding: bytes) -> None:
    packed = zlib.compress(body) if encoding == b"deflate" else gzip.compress(body)
    assert can_unpack(encoding)
    assert unpack(packed, encoding, len(body)) == body


@given(st.binary(max_size=300))
def test_deflate_without_its_frame_is_read_as_some_clients_send_it(body: bytes) -> None:
    assert unpack(zlib.compress(body, wbits=-15), b"deflate", len(body)) == body


@given(st.binary(min_size=1, max_size=300))
def test_one_byte_over_the_limit_is_too_much_once_unpacked(body: bytes) -> None:
    with pytest.raises(BodyTooLarge, match="once unpacked"):
        unpack(gzip.compress(body), b"gzip", len(body) - 1)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(0, 3))
def test_a_gzip_body_of_several_members_is_all_of_them(bodies: list[bytes], zeros: int) -> None:
    packed = b"".join(map(gzip.compress, bodies)) + bytes(zeros)
    assert unpack(packed, b"gzip", 1_500) == b"".join(bodies)
    if whole := b"".join(bodies):
        with pytest.raises(BodyTooLarge, match="once unpacked"):
            unpack(packed, b"gzip", len(whole) - 1)


def test_a_long_second_member_comes_whole() -> None:
    body = random.Random(1).randbytes(500_000)
    assert unpack(gzip.compress(b"{") + gzip.compress(body), b"gzip", 600_000) == b"{" + body


@pytest.mark.parametrize(
    "rest",
    [b"more", gzip.compress(b"body")[:-1], b"\0more", gzip.compress(b"") * 10_001],
    ids=["text", "broken off", "after padding", "too many"],
)
def test_what_follows_a_gzip_member_and_is_none_is_malformed(rest: bytes) -> None:
    with pytest.raises(MalformedRequest):
        unpack(gzip.compress(b"body") + rest, b"gzip", 100)


def test_a_bomb_in_a_second_member_is_stopped_while_it_unpacks() -> None:
    bomb = gzip.compress(b"{") + gzip.compress(bytes(200_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            unpack(bomb, b"gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


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
        with pytest.raises(RequestTimeout, match=r"nothing of the request's body came for 0\.01 s"):
            await read_body(silent, 0, 100, 0.01)
        with pytest.raises(RequestTimeout):
            _ = [piece async for piece in BodyStream(silent, 0.01)]

    asyncio.run(read())


def test_a_bomb_is_stopped_while_it_unpacks() -> None:
    bomb = gzip.compress(bytes(200_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            unpack(bomb, b"gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=100))
def test_what_is_not_packed_or_breaks_off_is_malformed(body: bytes) -> None:
    for broken in (body, gzip.compress(body)[:-1]):
        with pytest.raises(MalformedRequest):
            unpack(broken, b"gzip", 1_000)


def test_encodings_of_others_are_not_unpacked() -> None:
    assert [can_unpack(encoding) for encoding in (b"zstd", b"br", b"identity", b"")] == [False] * 4
