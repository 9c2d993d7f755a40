"""Where chunks begin: the same as for any parser, however the bytes are cut, and never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.upstream.chunks import LONGEST_CHUNK, SIZE_LINES, Chunks, chunk_at

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODIES = st.lists(st.binary(min_size=1, max_size=20) | st.sampled_from([b"\r\n", b"5\r\nhello\r\n", HEAD]), max_size=6)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def followed(*pieces: bytes) -> Chunks:
    chunks = Chunks()
    for piece in pieces:
        chunks.follow(piece)
    return chunks


@given(BODIES, st.data(), st.sampled_from([b"", CONTINUE, CONTINUE * 2]))
def test_chunks_begin_where_the_one_before_ends_however_the_bytes_are_cut(
    bodies: list[bytes], data: st.DataObject, interim: bytes
) -> None:
    heads = interim + HEAD
    told = heads + b"".join(map(chunk, bodies))
    starts = {len(heads) + len(b"".join(map(chunk, bodies[:count]))) for count in range(len(bodies) + 1)}
    cuts = sorted(data.draw(st.sets(st.integers(1, len(told)))) | {len(told)})
    chunks, at = Chunks(), 0
    for cut in cuts:
        chunks.follow(told[at:cut])
        at = cut
        assert chunks.is_at_start == (cut in starts)
    assert chunks.body_bytes == len(b"".join(bodies))
    chunks.follow(b"0\r\n\r\n")
    assert not chunks.is_at_start


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding:\tchunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: \r\n chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: transfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n5\r\nhello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx: 1\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx: 1\r2\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Upgraded\r\n\r\n" + HEAD,
        b"HTTP/1.1 100 Go\n on\r\n\r\n" + HEAD,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 17_000,
        HEAD + b"5;name=value\r\nhello\r\n",
        HEAD + b"5 \r\nhello\r\n",
        HEAD + b"0x5\r\nhello\r\n",
        HEAD + b"+5\r\nhello\r\n",
        HEAD + b"5\nhello\n",
        HEAD + b"000000005\r\nhello\r\n",
        HEAD + b"-5\r\nhello\r\n",
        HEAD + b"0\r\ntrailer: 1\r\n\r\n",
        HEAD + b"5\r\nhello\r\nHTTP/1.1",
    ],
)
def test_what_is_unusual_is_not_followed(head: bytes) -> None:
    chunks = followed(head)
    for more in (b"", b"\r\n", b"\r\n\r\n", HEAD, chunk(b"hello"), chunk(b"hello")):
        chunks.follow(more)
        assert not chunks.is_at_start


@pytest.mark.parametrize("size", [b"5", b"05", b"00000005"])
def test_a_size_may_have_zeros_before_it(size: bytes) -> None:
    chunks = followed(HEAD, size, b"\r\nhello\r\n")
    assert (chunks.is_at_start, chunks.body_bytes) == (True, 5)


@given(st.integers(1, LONGEST_CHUNK))
def test_the_length_of_a_whole_chunk_tells_how_it_begins(size: int) -> None:
    whole = chunk(b"x" * size)
    line = SIZE_LINES[len(whole)]
    if len(whole) <= LONGEST_CHUNK:
        assert isinstance(line, bytes)
        assert whole[len(line) : -2] == b"x" * size
    else:
        assert line == ()


@given(st.binary(max_size=9), st.binary(min_size=1, max_size=40), st.binary(max_size=9), st.integers(0, 60))
def test_a_chunk_is_found_whole_or_not_at_all(before: bytes, body: bytes, after: bytes, cut: int) -> None:
    data = (before + chunk(body) + after)[: len(before) + cut]
    whole = cut >= len(chunk(body))
    assert chunk_at(data, len(before)) == (chunk(body) if whole else b"")


@pytest.mark.parametrize(
    "data", [b"", b"0\r\n\r\n", b"05\r\nhello\r\n", b"A\r\n0123456789\r\n", b"5\r\nhelloxx", b"5;a\r\n"]
)
def test_what_is_unusual_is_no_chunk(data: bytes) -> None:
    assert chunk_at(data, 0) == b""


def test_for_no_length_there_is_a_line_that_says_another_size() -> None:
    for length in range(1, LONGEST_CHUNK + 100):
        line = SIZE_LINES[length]
        assert line == () or (int(line, 16) > 0 and len(chunk(b"x" * int(line, 16))) == length)
    assert len(SIZE_LINES) <= LONGEST_CHUNK + 1, "and 0"
