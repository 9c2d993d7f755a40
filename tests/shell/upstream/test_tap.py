"""Bytes that bypass the parser are the same as through it, whatever happens in between."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import StreamReader
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.shell.upstream.tap import LONGEST_CHUNK, SIZE_LINES, Chunks, Tap, chunk_at

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Socket(asyncio.Transport):
    """The side of the upstream."""

    def __init__(self):
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None

    def set_protocol(self, protocol):
        self.protocol = protocol

    def get_protocol(self):
        assert self.protocol is not None
        return self.protocol

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        pass


class Client:
    """Takes pieces, and chunks with their framing."""

    def __init__(self):
        self.is_ready = True
        self.takes_chunks = True
        self.fails = False
        self.fills_at = 0
        """Number of the chunk after which there is no room any more."""
        self.got = b""
        self.chunks = 0
        """Those that came with their framing."""
        self.noted: list[bytes] = []
        self.stop: Callable[[], None] = lambda: None

    def take(self, piece):
        self.got += piece
        self.noted.append(piece)

    def chunk_writer(self, stop):
        self.stop = stop
        return self._write if self.takes_chunks and self.is_ready else None

    def note_written(self, pieces):
        self.noted += pieces

    def fill(self):
        """There is no room any more."""
        self.is_ready = False
        self.stop()

    def _write(self, chunk):
        if self.fails:
            raise OSError("no")
        size, _, rest = chunk.partition(b"\r\n")
        assert rest[int(size, 16) :] == b"\r\n"
        self.chunks += 1
        if self.chunks == self.fills_at:
            self.fill()
        self.got += rest[:-2]


class Exchanged:
    """A response whose head has arrived, and its reader."""

    def __init__(self, head=HEAD):
        self.socket, self.client = Socket(), Client()
        self.protocol = ResponseHandler(asyncio.get_running_loop())
        self.protocol.connection_made(self.socket)
        self.protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        self.socket.set_protocol(self.protocol)
        self.tap = Tap.of(self.protocol, self.socket)
        self.tap.data_received(head)
        self.content: StreamReader = self.protocol._buffer[0][0][1]
        self.read_bytes = 0
        self.is_waiting = True
        """Whether the reader waits for something."""
        self.begin()

    def begin(self):
        self.tap.begin(self.content, self.client, self.read_bytes)

    def read(self):
        """Counts the reader's steps while a caller waits for it."""
        self.tap.end()
        self.read_bytes = self.tap.read_bytes
        if self.content.total_bytes > self.read_bytes:
            piece = self.content.read_nowait()
            self.read_bytes += len(piece)
            self.client.take(piece)
        if not self.content.is_eof() and self.client.is_ready:
            self.begin()

    def arrive(self, *pieces):
        for piece in pieces:
            self.tap.data_received(piece)
            if self.tap.over.done():
                self.read()


def chunk(body):
    return b"%x\r\n%b\r\n" % (len(body), body)


async def test_a_whole_chunk_passes_the_parser_by_with_its_framing():
    found = Exchanged()
    found.arrive(chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), END)
    assert (found.client.got, found.client.chunks) == (b"data: 1\n\ndata: 2\n\n", 2)
    assert found.content.total_bytes == 0
    assert found.content.is_eof()
    assert found.client.noted == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_what_is_written_is_noted_soon_and_at_the_latest_when_it_is_over():
    found = Exchanged()
    for count in range(100):
        found.arrive(chunk(b"%d" % count))
        assert count - len(found.client.noted) < 16
    found.tap.end()
    assert found.client.noted == [b"%d" % count for count in range(100)]


@pytest.mark.parametrize(
    "begun",
    [b"5", b"5\r\n", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r", b"5\r\nhello\r\n5"],
    ids=["size", "no body", "half a body", "no line end", "half a line end", "the next size"],
)
async def test_nothing_passes_a_parser_by_that_is_in_the_middle_of_a_chunk(begun):
    found = Exchanged()
    found.arrive(begun)
    assert found.tap._write is None


async def test_nothing_passes_a_parser_by_that_has_found_something_else_than_arrived():
    found = Exchanged()
    found.content.total_bytes = found.read_bytes = 1
    found.begin()
    assert found.tap._write is None


async def test_chunks_within_a_chunk_are_its_content():
    inner = chunk(b"hello")
    found = Exchanged()
    outer = chunk(inner * 2 + b"!")
    found.arrive(outer[:4], inner, inner, outer[-3:], chunk(b"end"), END)
    assert (found.client.got, found.client.chunks) == (inner * 2 + b"!end", 1)


async def test_several_chunks_in_one_read_pass_the_parser_by_up_to_what_is_no_whole_chunk():
    found = Exchanged()
    found.arrive(chunk(b"a") + chunk(b"b"), chunk(b"c") + chunk(b"d") + b"1\r\n", b"e\r\n", chunk(b"f") + END)
    assert (found.client.got, found.client.chunks) == (b"abcdef", 5)
    assert found.client.noted == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert found.content.is_eof()


async def test_of_several_chunks_those_wait_for_the_reader_that_there_is_no_room_for():
    found = Exchanged()
    found.client.fills_at = 2
    found.tap.data_received(b"".join(map(chunk, (b"a", b"b", b"c", b"d"))))
    assert (found.client.got, found.tap.over.done()) == (b"ab", True)
    found.client.is_ready = True
    found.read()
    assert found.client.got == b"abcd"


async def test_a_chunk_whose_line_end_is_missing_is_an_error_as_ever():
    found = Exchanged()
    found.tap.data_received(b"5\r\nhelloxx")
    assert found.protocol.exception() is not None
    assert found.client.chunks == 0


async def test_a_client_that_takes_no_chunks_gets_pieces():
    found = Exchanged()
    found.client.takes_chunks = False
    found.arrive(b"1\r\n", b"a\r\n", chunk(b"b"), END)
    assert (found.client.got, found.client.chunks) == (b"ab", 0)


async def test_a_chunk_that_there_is_no_room_for_waits_for_the_reader():
    found = Exchanged()
    found.arrive(chunk(b"a"))
    found.client.fill()
    found.tap.data_received(chunk(b"b"))
    assert found.tap.over.done()
    assert found.client.got == b"a"
    found.client.is_ready = True
    found.read()
    found.arrive(chunk(b"c"), END)
    assert (found.client.got, found.client.noted) == (b"abc", [b"a", b"b", b"c"])
    assert found.client.chunks == 2


async def test_a_write_that_fails_fails_the_reader_and_nothing_more_is_written():
    found = Exchanged()
    found.client.fails = True
    found.tap.data_received(chunk(b"a"))
    found.tap.data_received(chunk(b"b"))
    with pytest.raises(OSError, match="no"):
        found.tap.over.result()
    assert (found.client.got, found.client.noted) == (b"", [])


async def test_a_connection_that_is_lost_ends_the_taking():
    found = Exchanged()
    found.arrive(chunk(b"a"))
    found.tap.connection_lost(None)
    assert found.tap.over.done()
    assert found.client.noted == [b"a"]
    assert found.content.exception() is not None


async def test_a_connection_keeps_its_tap_and_each_exchange_begins_anew():
    found = Exchanged()
    found.arrive(chunk(b"a"), END)
    assert Tap.of(found.protocol, found.socket) is found.tap is found.socket.protocol
    found.protocol.set_response_params(read_until_eof=True, auto_decompress=False)
    found.tap.data_received(HEAD)
    found.content, found.read_bytes = found.protocol._buffer[-1][0][1], 0
    found.begin()
    found.arrive(chunk(b"b"), chunk(b"c"), END)
    assert (found.client.got, found.client.chunks) == (b"abc", 3)


async def test_between_two_exchanges_everything_is_the_http_clients():
    found = Exchanged()
    found.arrive(chunk(b"a"), END)
    before = found.client.got
    found.tap.data_received(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
    assert found.protocol.should_close
    assert found.client.got == before


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(min_size=1, max_size=30)
        | st.sampled_from([chunk(b"hello"), b"\r\n", b"x" * 2_043, b"x" * 5_000, END, HEAD]),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_however_a_body_is_cut_into_reads_the_client_gets_it_all_in_order(bodies, data):
    reported = b"".join([*map(chunk, bodies), END])
    ends = [len(b"".join(map(chunk, bodies[:count]))) for count in range(1, len(bodies) + 1)]
    at_ends = data.draw(st.sets(st.sampled_from(ends)))
    cuts = sorted(at_ends | data.draw(st.sets(st.integers(1, len(reported)), max_size=5)) | {len(reported)})
    full = data.draw(st.sets(st.sampled_from(cuts)))

    async def run():
        found = Exchanged()
        at = 0
        for cut in cuts:
            if cut in full:
                found.client.fill()
            found.tap.data_received(reported[at:cut])
            found.client.is_ready = True
            if found.tap.over.done():
                found.read()
            at = cut
        while found.content.total_bytes > found.read_bytes and not found.content.at_eof():
            found.read()
        found.tap.end()
        assert found.client.got == b"".join(bodies)
        assert b"".join(found.client.noted) == b"".join(bodies)
        assert found.content.is_eof()

    asyncio.run(run())


EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODIES = st.lists(
    st.binary(min_size=1, max_size=20) | st.sampled_from([b"\r\n", b"5\r\nhello\r\n", EVENTS_HEAD]), max_size=6
)


def followed(*pieces):
    chunks = Chunks()
    for piece in pieces:
        chunks.follow(piece)
    return chunks


@given(BODIES, st.data(), st.sampled_from([b"", CONTINUE, CONTINUE * 2]))
def test_chunks_begin_where_the_one_before_ends_however_the_bytes_are_cut(bodies, data, interim):
    heads = interim + EVENTS_HEAD
    reported = heads + b"".join(map(chunk, bodies))
    starts = {len(heads) + len(b"".join(map(chunk, bodies[:count]))) for count in range(len(bodies) + 1)}
    cuts = sorted(data.draw(st.sets(st.integers(1, len(reported)))) | {len(reported)})
    chunks, at = Chunks(), 0
    for cut in cuts:
        chunks.follow(reported[at:cut])
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
        b"HTTP/1.1 101 Upgraded\r\n\r\n" + EVENTS_HEAD,
        b"HTTP/1.1 100 Go\n on\r\n\r\n" + EVENTS_HEAD,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 17_000,
        EVENTS_HEAD + b"5;name=value\r\nhello\r\n",
        EVENTS_HEAD + b"5 \r\nhello\r\n",
        EVENTS_HEAD + b"0x5\r\nhello\r\n",
        EVENTS_HEAD + b"+5\r\nhello\r\n",
        EVENTS_HEAD + b"5\nhello\n",
        EVENTS_HEAD + b"000000005\r\nhello\r\n",
        EVENTS_HEAD + b"-5\r\nhello\r\n",
        EVENTS_HEAD + b"0\r\ntrailer: 1\r\n\r\n",
        EVENTS_HEAD + b"5\r\nhello\r\nHTTP/1.1",
    ],
)
def test_what_is_unusual_is_not_followed(head):
    chunks = followed(head)
    for more in (b"", b"\r\n", b"\r\n\r\n", EVENTS_HEAD, chunk(b"hello"), chunk(b"hello")):
        chunks.follow(more)
        assert not chunks.is_at_start


@pytest.mark.parametrize("size", [b"5", b"05", b"00000005"])
def test_a_size_may_have_zeros_before_it(size):
    chunks = followed(EVENTS_HEAD, size, b"\r\nhello\r\n")
    assert (chunks.is_at_start, chunks.body_bytes) == (True, 5)


@given(st.integers(1, LONGEST_CHUNK))
def test_the_length_of_a_whole_chunk_determines_how_it_begins(size):
    whole = chunk(b"x" * size)
    line = SIZE_LINES[len(whole)]
    if len(whole) <= LONGEST_CHUNK:
        assert isinstance(line, bytes)
        assert whole[len(line) : -2] == b"x" * size
    else:
        assert line == ()


@given(st.binary(max_size=9), st.binary(min_size=1, max_size=40), st.binary(max_size=9), st.integers(0, 60))
def test_a_chunk_is_found_whole_or_not_at_all(before, body, after, cut):
    data = (before + chunk(body) + after)[: len(before) + cut]
    whole = cut >= len(chunk(body))
    assert chunk_at(data, len(before)) == (chunk(body) if whole else b"")


@pytest.mark.parametrize(
    "data", [b"", b"0\r\n\r\n", b"05\r\nhello\r\n", b"A\r\n0123456789\r\n", b"5\r\nhelloxx", b"5;a\r\n"]
)
def test_what_is_unusual_is_no_chunk(data):
    assert chunk_at(data, 0) == b""


def test_for_no_length_there_is_a_line_that_says_another_size():
    for length in range(1, LONGEST_CHUNK + 100):
        line = SIZE_LINES[length]
        assert line == () or (int(line, 16) > 0 and len(chunk(b"x" * int(line, 16))) == length)
    assert len(SIZE_LINES) <= LONGEST_CHUNK + 1, "and 0"
