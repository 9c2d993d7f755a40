"""Where requests end: as sent, however the bytes come in pieces; what is unclear or too long is refused."""

import asyncio
import contextlib
import itertools
import json
import sys

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from support.noting_socket import NotingSocket
from uvicorn.server import ServerState

from proxy.shell.http import connection
from proxy.shell.http.connection import MAX_AHEAD, MAX_HEADERS, Connection, Connections

LIMIT = 2_000
GET = b"GET /next HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def counted_calls():
    """How many functions of the connection's module are called within."""
    calls = list[int]([0])

    def count(frame, event, _):
        calls[0] += event == "call" and frame.f_code.co_filename == connection.__file__

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def served(data, cuts=None, limit=LIMIT):
    """The bodies that the application gets from a client that sends `data` in pieces, then the refusal, if any."""
    seen = list[str | bytes]()

    async def app(scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        assert not {name for name, _ in scope["headers"]} & {b"upgrade", b"x-trailer"}
        seen.append(body)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def run():
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", interface="asgi3", ws="none")
        limits = Connections(max_head_bytes=limit, head_seconds=30, max_connections=10)
        made, socket = Connection(limits, config, ServerState(), {}), NotingSocket()
        made.connection_made(socket)
        edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
        for start, stop in itertools.pairwise(edges):
            made.data_received(data[start:stop])
        for _ in range(8 * (data.count(b"HTTP/1.1") + 1)):
            await asyncio.sleep(0)
        made.connection_lost(None)
        _, is_refused, refusal = b"".join(socket.sent).partition(b"content-type: application/json\r\n")
        if is_refused:
            error = json.loads(refusal.partition(b"\r\n\r\n")[2])["error"]
            seen.append(f"{error['code']}: {error['message']}")

    asyncio.run(run())
    return seen


def request(line, headers, body):
    return b"\r\n".join([line, *headers, b"", b""]) + body


HEADERS = st.lists(
    st.sampled_from(
        [
            *(b"host: a", b"X-A:b", b"accept: */*", b"connection: keep-alive", b"x-upgrade: no", b"expect: x"),
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c",
            b"UPGRADE: websocket\r\nconnection: upgrade",
        ]
    ),
    max_size=4,
)
WITHOUT_BODY = st.builds(lambda headers: (request(b"GET /v1/models HTTP/1.1", headers, b""), b""), HEADERS)
WITH_LENGTH = st.builds(
    lambda headers, name, body: (request(b"POST /x HTTP/1.1", [*headers, b"%b: %d " % (name, len(body))], body), body),
    HEADERS,
    st.sampled_from([b"content-length", b"Content-Length", b"CONTENT-LENGTH"]),
    st.binary(max_size=40),
)
CONTENT = st.binary(min_size=1, max_size=30) | st.sampled_from(
    [b"\r\n\r\n", b"0\r\n\r\n", b"\r\n", b"5\r\n", b"5;", b"1\r\na\r\n", GET]
)
IN_CHUNKS = st.builds(
    lambda headers, chunks, extension, trailer: (
        request(
            b"PUT /x HTTP/1.1",
            [*headers, b"Transfer-Encoding: chunked"],
            b"".join(b"%X%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
            + b"00%b\r\n" % extension
            + b"".join(b"%b\r\n" % line for line in trailer)
            + b"\r\n",
        ),
        b"".join(chunks),
    ),
    HEADERS,
    st.lists(CONTENT, max_size=4),
    st.sampled_from([b"", b";a=b", b";0"]),
    st.lists(st.sampled_from([b"x-trailer: 1", b"X-Trailer:5;a"]), max_size=2),
)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=20)


@given(st.lists(WITHOUT_BODY | WITH_LENGTH | IN_CHUNKS, min_size=1, max_size=4), CUTS)
def test_each_request_ends_where_its_client_ended_it_however_it_comes_in_pieces(sent, cuts):
    assert served(b"".join(one for one, _ in sent), cuts) == [body for _, body in sent]


FRAGMENTS = st.sampled_from(
    [
        *(b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"\r\n", b"\n", b"\r", b"abc", b"\x00"),
        *(b"content-length: 3\r\n", b"content-length: 3\n", b"Content-Length : 3\r\n", b"content-length: +3\r\n"),
        *(b"content-length: 3, 3\r\n", b"content-length:\r\n", b" folded\r\n", b"a: b\r\r\n"),
        *(b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip, chunked\r\n"),
        *(b"transfer-encoding: chunked, gzip\r\n", b"3\r\n", b"3 \r\n", b"3;\n\r\n", b"0x3\r\n", b"0\r\n"),
        *(b"3;\r\r\n", b"+3\r\n", b"03\r\n", b"00\r\n", b'3;a="\r\n', b"1" + b"0" * 15 + b"3\r\n", b"a: 3;\r\n"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=10).map(b"".join), CUTS)
def test_the_same_bytes_are_the_same_requests_however_they_come_in_pieces(rest, cuts):
    """Smuggling: what one reader takes for a body is a request for the next."""
    assert served(POST + rest, cuts) == served(POST + rest)


BYTEWISE = list(range(6_000))
PIECES = pytest.mark.parametrize("cuts", [[], BYTEWISE, [19, 500, 1_900]], ids=["whole", "bytewise", "in pieces"])


@PIECES
@pytest.mark.parametrize(
    "sent",
    [
        *(b"\x16\x03\x01\x02\x00\x01", b"\x00", b" " + GET, b"{}"),
        *(POST + b"host: a\n", POST + b"a: b\r\r\n\r\n", POST + b"a: b\r\n folded\r\n\r\n", b"GET / HTTP/1.1\n\n"),
        POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        *(
            POST + b"content-length: " + length + b"\r\n\r\nabc"
            for length in (b"three", b"+3", b"3, 3", b"", b"9" * 20)
        ),
        *(
            POST + b"transfer-encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
            for coding in (b"gzip", b"chunked, gzip", b"chunked, chunked", b"", b"xchunked", b"identity")
        ),
        *(
            CHUNKED + chunk
            for chunk in (b"3 \r\nabc\r\n", b"3\nabc\r\n", b"f" * 17 + b"\r\n", b"0x3\r\n", b"3\r\nabcd\r\n")
        ),
    ],
)
def test_what_could_be_framed_in_two_ways_is_refused(sent, cuts):
    (refusal,) = served(sent + GET, cuts)
    assert str(refusal).startswith("malformed_request: ")


@PIECES
@pytest.mark.parametrize(
    "trailer",
    [b"a: b\r\n" * (MAX_HEADERS + 1), b"".join(b"a: %b\r\n" % (b"b" * 999) for _ in range(3)), b"a: " + b"b" * 3_000],
    ids=["lines", "bytes", "one line"],
)
def test_trailers_are_bounded_like_heads(trailer, cuts):
    (refusal,) = served(CHUNKED + b"0\r\n" + trailer + b"\r\n\r\n" + GET, cuts)
    assert str(refusal).startswith(("malformed_request: ", "head_too_large: "))
    assert served(CHUNKED + b"1\r\na\r\n0\r\na: b\r\n\r\n" + GET, cuts) == [b"a", b""]


def test_the_line_before_a_chunk_does_not_go_on_for_ever():
    (refusal,) = served(CHUNKED + b"1;" + b"e" * 4_000 + b"\r\na\r\n0\r\n\r\n", BYTEWISE)
    assert str(refusal).startswith("malformed_request: the chunk or trailer of the request has more than 2,000 bytes")
    assert served(CHUNKED + b"1;" + b"e" * 1_900 + b"\r\na\r\n0\r\n\r\n" + GET, BYTEWISE) == [b"a", b""]


@PIECES
@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        *(
            (POST + b"transfer-encoding: " + codings + b"\r\n\r\n0\r\n\r\n" + GET, "unknown_coding: ")
            for codings in (b"gzip, chunked", b"gzip,chunked", b"GZIP , Chunked", b"gzip\r\ntransfer-encoding: chunked")
        ),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            "malformed_request: the client speaks TLS, but this port speaks HTTP",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "malformed_request: HTTP/2 is not spoken here"),
        *(
            (b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % target, "malformed_request: the target of the request is no URL")
            for target in (b"http://a", b"http://a?b", b"http://[::1", b"http://a:99999/b")
        ),
    ],
)
def test_what_is_not_spoken_here_is_named(sent, refusal, cuts):
    (found,) = served(sent, cuts)
    assert str(found).startswith(refusal)


@PIECES
@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"\tchunked "])
def test_chunked_alone_is_read(coding, cuts):
    assert served(POST + b"transfer-encoding:" + coding + b"\r\n\r\n1\r\na\r\n0\r\n\r\n" + GET, cuts) == [b"a", b""]


@PIECES
def test_a_head_that_is_too_long_is_refused_also_behind_requests_that_are_served(cuts):
    fits = b"GET / HTTP/1.1\r\nx: " + b"v" * (LIMIT - 100) + b"\r\n\r\n"
    before = GET + CHUNKED + b"1\r\na\r\n0\r\n\r\n"
    assert served(before + fits, cuts) == [b"", b"a", b""]
    more = b"v" * 100
    for sent in (fits.replace(b"x:", b"xx:" + more), fits.replace(b"/ ", b"/" + more + b" ")):
        first, second, refusal = served(before + sent, cuts)
        assert (first, second) == (b"", b"a")
        assert str(refusal).startswith("head_too_large: the head of the request has more than 2,000 bytes")
    (refusal,) = served(fits[:-4] + more, cuts)
    assert str(refusal).startswith("head_too_large: ")


@PIECES
def test_a_head_of_too_many_lines_is_refused(cuts):
    head = b"GET / HTTP/1.1\r\n" + b"a:\r\n" * MAX_HEADERS
    assert served(head + b"\r\n", cuts) == [b""]
    for end in (b"a:\r\n\r\n", b"a:\r\n" * 2):
        (refusal,) = served(head + end, cuts)
        assert str(refusal).startswith(f"head_too_large: the request has more than {MAX_HEADERS} headers")


@PIECES
def test_empty_lines_before_a_request_are_ignored(cuts):
    assert served(b"\r\n\r\n" + GET + b"\r\n" + GET, cuts) == [b"", b""]


@pytest.mark.parametrize(("size", "is_read"), [(2, False), (3, True)])
def test_a_body_in_tiny_chunks_is_refused_once_they_are_many(size, is_read):
    sent = CHUNKED + b"%x\r\n%b\r\n" % (size, b"x" * size) * 900_000
    got = served(sent + b"0\r\n\r\n", list(range(0, len(sent), 262_144)))
    if is_read:
        assert got == [b"x" * 3 * 900_000]
    else:
        assert got == ["malformed_request: the request's chunks have less than 3 bytes each on average"]


@pytest.mark.parametrize("content", [b"\r\n", b"\n", b"a\r\n\r\n", b"0\r\n\r\n", b"1\r\n\r\n"])
@pytest.mark.parametrize("framing", ["length", "chunk"])
def test_a_body_costs_the_same_whatever_it_consists_of(content, framing):
    """Lines that look like framing take no work of their own: not one call of Python more."""
    calls: list[int] = []
    for body in (content * 20_000, b"x" * (len(content) * 20_000)):
        size = len(body)
        plain = POST + b"content-length: %d\r\n\r\n%b" % (size, body)
        sent = plain if framing == "length" else CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
        with counted_calls() as found:
            assert served(sent, list(range(0, len(sent), 65_536))) == [body]
        calls += found
    assert calls[0] == calls[1]


def test_blank_lines_before_a_request_cost_no_calls():
    calls: list[int] = []
    for lines in (0, 900):
        with counted_calls() as found:
            assert served(b"\r\n" * lines + GET) == [b""]
        calls += found
    assert calls[0] == calls[1]
    (refusal,) = served(b"\r\n" * LIMIT, [100])
    assert str(refusal).startswith("head_too_large: ")


def test_a_client_that_sends_ahead_far_is_refused_behind_what_fits():
    *answered, refusal = served(GET * (MAX_AHEAD + 2))
    assert answered == [b""] * (MAX_AHEAD + 1)
    assert str(refusal).startswith(f"malformed_request: more than {MAX_AHEAD} requests were sent before the response")


def test_a_second_request_that_is_refused_costs_the_first_nothing():
    for second in (b"nonsense\r\n\r\n", CHUNKED + b"zz\r\n", POST + b"content-length: x\r\n\r\n"):
        first, third, refusal = served(GET + POST + b"content-length: 3\r\n\r\nabc" + second)
        assert (first, third) == (b"", b"abc")
        assert str(refusal).startswith("malformed_request: ")
