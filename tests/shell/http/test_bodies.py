"""Bodies: read and streamed within a bound."""

import asyncio
import gzip
import importlib
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from support.waiting import PATIENCE_SECONDS, let_pass

from proxy.errors import BodyTooLarge, ClientLeft, MalformedRequest, RequestTimeout
from proxy.shell.http import bodies, can_unpack, pieces_of, read_body, unpack
from proxy.shell.resources import Share, Workload

PAUSE_SECONDS = 100.0
"""Nothing here takes so long."""

LEFT: dict[str, Any] = {"type": "http.disconnect"}


def receiving(*pieces, last=True):
    """An ASGI `receive` that hands out these pieces, then the client's leaving for ever."""
    messages = [
        piece
        if isinstance(piece, dict)
        else {"type": "http.request", "body": piece, "more_body": not last or number + 1 < len(pieces)}
        for number, piece in enumerate(pieces)
    ]

    async def receive():
        return messages.pop(0) if messages else LEFT

    return receive


def request(receive, *headers):
    return Request({"type": "http", "headers": list(headers)}, receive)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6))
async def test_a_body_as_long_as_the_limit_is_its_pieces_joined(pieces):
    assert await read_body(request(receiving(*pieces)), len(b"".join(pieces)), PAUSE_SECONDS) == b"".join(pieces)


async def test_an_announced_length_over_the_limit_is_refused_before_reading():
    receive = AsyncMock(side_effect=AssertionError("read"))
    with pytest.raises(BodyTooLarge, match=r"has 1,000,001 bytes; at most 1,000,000"):
        await read_body(request(receive, (b"content-length", b"1000001")), 1_000_000, PAUSE_SECONDS)


async def test_reading_stops_at_the_piece_that_passes_the_limit():
    receive = receiving(b"123", b"456", b"never read")
    with pytest.raises(BodyTooLarge, match="more than 5 bytes"):
        await read_body(request(receive), 5, PAUSE_SECONDS)
    assert (await receive())["body"] == b"never read"


@pytest.mark.parametrize("pieces", [(), (b"half",)])
async def test_a_client_that_leaves_before_its_body_is_complete_is_distinguished(pieces):
    with pytest.raises(ClientLeft):
        await read_body(request(receiving(*pieces, last=False)), 100, PAUSE_SECONDS)


async def test_a_stream_says_when_it_has_been_taken_and_never_if_it_breaks_off():
    whole, broken = asyncio.Event(), asyncio.Event()
    stream = pieces_of(request(receiving(b"a", b"b")), PAUSE_SECONDS, arrived=whole)
    assert [(piece, whole.is_set()) async for piece in stream] == [(b"a", False), (b"b", True)]
    with pytest.raises(ClientLeft):
        _ = [piece async for piece in pieces_of(request(receiving(b"a", LEFT)), PAUSE_SECONDS, arrived=broken)]
    assert not broken.is_set()


async def test_a_client_that_is_held_up_does_not_pause():
    workload = Workload(100, small_bytes=0)
    others = [Share(workload), Share(workload)]
    for share in others:
        await share.take(100)
    reading = asyncio.create_task(read_body(request(receiving(b"12", b"34")), 10, 0.01, Share(workload)))
    await asyncio.sleep(0.1)  # many times the pause
    for share in others:
        share.release()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await reading == b"1234"


async def test_a_client_that_keeps_sending_may_take_longer_than_a_pause():
    pieces = receiving(*[b"1"] * 9)

    async def slowly():
        let_pass(PAUSE_SECONDS / 2)
        await asyncio.sleep(0.001)
        return await pieces()

    assert await read_body(request(slowly), 9, PAUSE_SECONDS) == b"1" * 9


def test_a_client_that_pauses_for_too_long_is_distinguished():
    async def silent():
        await asyncio.Event().wait()

    async def read():
        with pytest.raises(RequestTimeout, match=r"nothing of the request's body arrived for 0\.01 s"):
            await read_body(request(silent), 100, 0.01)
        with pytest.raises(RequestTimeout):
            _ = [piece async for piece in pieces_of(request(silent), 0.01)]

    asyncio.run(read())


zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


brotli: Any = importlib.import_module("brotli")


def brotli_of(body):
    packed: bytes = brotli.compress(body, quality=1)
    return packed


def zstd_of_unknown_length(body):
    """A body as streaming clients compress it."""
    packer = zstd.ZstdCompressor()
    packed: bytes = packer.compress(body) + packer.flush()
    return packed


PACKERS: list[tuple[bytes, Callable[[bytes], bytes]]] = [
    (b"gzip", gzip.compress),
    (b"x-gzip", gzip.compress),
    (b"deflate", zlib.compress),
    (b"zstd", zstd.compress),
    (b"zstd", zstd_of_unknown_length),
    (b"br", brotli_of),
]
packers = st.sampled_from(PACKERS)
every_packer = pytest.mark.parametrize(("encoding", "packed_by"), PACKERS)


@given(st.binary(max_size=300), packers)
def test_a_packed_body_unpacks_to_itself_and_one_byte_over_the_limit_is_too_much(body, packer):
    encoding, packed_by = packer
    assert can_unpack(encoding)
    assert unpack(packed_by(body), encoding, len(body)) == body
    if body:
        with pytest.raises(BodyTooLarge, match="once unpacked"):
            unpack(packed_by(body), encoding, len(body) - 1)


@every_packer
def test_a_long_body_unpacks_to_itself(encoding, packed_by):
    for body in (random.Random(1).randbytes(300_000) * 3, bytes(10_000_000)):
        assert unpack(packed_by(body), encoding, len(body)) == body
        with pytest.raises(BodyTooLarge, match="once unpacked"):
            unpack(packed_by(body), encoding, len(body) - 1)


@given(st.binary(max_size=300), st.lists(packers, min_size=2, max_size=3))
def test_encodings_one_around_the_other_are_undone_from_the_last(body, chosen):
    packed = body
    for _, packed_by in chosen:
        packed = packed_by(packed)
    encoding = b", identity ,".join(name.upper() for name, _ in chosen)
    assert can_unpack(encoding)
    assert unpack(packed, encoding, 1_000) == body


@every_packer
def test_a_bomb_is_stopped_while_it_unpacks(encoding, packed_by):
    """Alone, and inside another."""
    bomb = packed_by(bytes(50_000_000))
    for encodings, body in ((encoding, bomb), (encoding + b",gzip", gzip.compress(bomb))):
        tracemalloc.start()
        try:
            with pytest.raises(BodyTooLarge):
                unpack(body, encodings, 1_000_000)
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()


@given(st.binary(max_size=100), packers)
def test_what_is_not_packed_or_breaks_off_is_malformed(body, packer):
    encoding, packed_by = packer
    for broken in (b"", b"\xff" + body, packed_by(body)[:-1]):
        with pytest.raises(MalformedRequest):
            unpack(broken, encoding, 1_000)


SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
"""A frame of zstd without content."""


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(0, 3))
@pytest.mark.parametrize(("encoding", "packed_by", "between"), [(*PACKERS[0], b""), (*PACKERS[3], SKIPPABLE)])
def test_a_body_of_several_members_is_all_of_them(encoding, packed_by, between, bodies, zeros):
    packed = between.join(map(packed_by, bodies)) + between + bytes(zeros)
    assert unpack(packed, encoding, 1_500) == b"".join(bodies)
    if whole := b"".join(bodies):
        with pytest.raises(BodyTooLarge, match="once unpacked"):
            unpack(packed, encoding, len(whole) - 1)


def test_a_long_second_member_comes_whole_and_a_bomb_in_it_is_stopped():
    body = random.Random(1).randbytes(500_000)
    assert unpack(gzip.compress(b"{") + gzip.compress(body), b"gzip", 600_000) == b"{" + body
    bomb = gzip.compress(b"{") + gzip.compress(bytes(200_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            unpack(bomb, b"gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("encoding", "packed_by"), [PACKERS[0], PACKERS[3]])
def test_what_follows_a_member_and_is_none_is_malformed(encoding, packed_by):
    body = packed_by(b"body")
    for rest in (b"more", body[:-1], b"\0more", packed_by(b"") * 101):
        with pytest.raises(MalformedRequest):
            unpack(body + rest, encoding, 100)


def test_a_window_that_no_http_sender_may_request_is_refused():
    """RFC 9659."""
    for window_log, is_read in ((23, True), (24, False)):
        packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
        packed = packer.compress(b"body") + packer.flush()
        if is_read:
            assert unpack(packed, b"zstd", 100) == b"body"
        else:
            with pytest.raises(MalformedRequest, match="window of over 8 MB"):
                unpack(packed, b"zstd", 100)


@pytest.mark.parametrize(
    "encoding",
    [b"", b"identity", b"compress", b"gzip, compress", b"aes128gcm", b"gzip, gzip, gzip, gzip", b"gzip zstd"],
)
def test_encodings_of_others_are_not_unpacked(encoding):
    assert not can_unpack(encoding)


@given(st.binary(max_size=300))
def test_deflate_without_its_frame_is_read_as_some_clients_send_it(body):
    assert unpack(zlib.compress(body, wbits=-15), b"deflate", len(body)) == body


@pytest.mark.parametrize("packed", [brotli_of(b"body") + b"more", brotli_of(b"a" * 100) + bytes(70_000)])
def test_what_follows_br_is_malformed(packed):
    with pytest.raises(MalformedRequest):
        unpack(packed, b"br", 1_000)


def test_without_the_extra_its_encodings_are_those_of_others(monkeypatch):
    monkeypatch.setattr(importlib, "import_module", Mock(side_effect=ImportError))
    monkeypatch.setattr(bodies, "_readers", bodies._readers.__wrapped__)
    assert [can_unpack(encoding) for encoding in (b"gzip", b"zstd", b"br", b"gzip, br")] == [True, False, False, False]
