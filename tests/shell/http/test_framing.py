"""Requests are cut where httptools, which reads them next, ends them; what is unclear or too long goes no further."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import HeadTooLarge, MalformedRequest, ProxyError, UnknownCoding
from proxy.shell.http.framing import MAX_HEADERS, Requests

LIMIT = 2_000


def taken(data: bytes, *, cuts: list[int] | None = None) -> list[bytes]:
    """What reaches the parser of a connection that sends `data`, request by request."""
    requests, found, passing = Requests(LIMIT), list[bytes](), b""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    for start, stop in itertools.pairwise(edges):
        rest = data[start:stop]
        while rest:
            passed, rest = requests.take(rest)
            passing += passed
            if passing and not requests.is_in_body:
                found.append(passing)
                passing = b""
    return [*found, passing] if passing else found


class Seen:
    """What httptools makes of a connection's bytes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.complete = 0

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.complete += 1


def parsed(data: bytes) -> Seen:
    seen = Seen()
    httptools.HttpRequestParser(seen).feed_data(data)
    return seen


HEADERS = st.lists(
    st.sampled_from([b"host: a", b"X-A:b", b"accept: */*", b"connection: keep-alive", b"x-upgrade: no", b"expect: x"]),
    max_size=4,
)


def request(line: bytes, headers: list[bytes], body: bytes) -> bytes:
    return b"\r\n".join([line, *headers, b"", b""]) + body


WITHOUT_BODY = st.builds(lambda headers: request(b"GET /v1/models HTTP/1.1", headers, b""), HEADERS)
WITH_LENGTH = st.builds(
    lambda headers, name, body: request(b"POST /x HTTP/1.1", [*headers, b"%b: %d " % (name, len(body))], body),
    HEADERS,
    st.sampled_from([b"content-length", b"Content-Length", b"CONTENT-LENGTH"]),
    st.binary(max_size=40),
)
CHUNKS = st.lists(st.binary(min_size=1, max_size=30), max_size=4)
IN_CHUNKS = st.builds(
    lambda headers, chunks, extension, trailer: request(
        b"PUT /x HTTP/1.1",
        [*headers, b"Transfer-Encoding: chunked"],
        b"".join(b"%X%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
        + b"0\r\n"
        + b"".join(b"%b\r\n" % line for line in trailer)
        + b"\r\n",
    ),
    HEADERS,
    CHUNKS,
    st.sampled_from([b"", b";a=b"]),
    st.lists(st.just(b"x-sum: 1"), max_size=2),
)


@given(st.lists(WITHOUT_BODY | WITH_LENGTH | IN_CHUNKS, min_size=1, max_size=4), st.lists(st.integers(0, 1 << 16)))
def test_each_request_ends_where_the_parser_ends_it_however_it_comes_in_pieces(
    sent: list[bytes], cuts: list[int]
) -> None:
    assert taken(b"".join(sent), cuts=cuts) == sent
    for one in sent:
        assert parsed(one).complete == 1


FRAGMENTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\n",
        b"content-length: 3\r\n",
        b"content-length: 3\n",
        b"Content-Length : 3\r\n",
        b"content-length: +3\r\n",
        b"content-length: 3, 3\r\n",
        b"content-length:\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"transfer-encoding: chunked, gzip\r\n",
        b" folded\r\n",
        b"a: b\r\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"abc",
        b"3\r\n",
        b"3 \r\n",
        b"3;\n\r\n",
        b"0x3\r\n",
        b"0\r\n",
        b"\x00",
    ]
)


@given(st.lists(FRAGMENTS, max_size=10).map(b"".join))
def test_no_request_is_complete_for_one_and_not_for_the_other(rest: bytes) -> None:
    """Smuggling: what one reader takes for a body is a request for the next."""
    sent = b"POST / HTTP/1.1\r\n" + rest
    try:
        mine = taken(sent)
    except ProxyError:
        return  # refused: nothing of this connection is read any more
    seen = Seen()
    parser = httptools.HttpRequestParser(seen)
    for number, one in enumerate(mine):
        try:
            parser.feed_data(one)
        except httptools.HttpParserError:
            return  # as above
        assert seen.complete in (number, number + 1)  # the last may be incomplete


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE"])
def test_a_wish_for_another_protocol_is_ignored_and_the_body_stays(name: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n%b: h2c\r\nContent-Length: 4\r\n\r\n" % name
    (passed,) = taken(head + b"body", cuts=[30, 60])
    seen = parsed(passed)  # raises HttpParserUpgrade where it finds one
    assert (seen.bodies, seen.complete) == ([b"body"], 1)


def test_other_headers_about_upgrades_stay() -> None:
    sent = b"GET / HTTP/1.1\r\nUpgrade-Insecure-Requests: 1\r\nx: upgrade: no\r\n\r\n"
    assert taken(sent) == [sent]


@pytest.mark.parametrize("cuts", [[], [10, 500, 1_900]])
def test_a_head_that_is_too_long_is_refused_whole_or_not(cuts: list[int]) -> None:
    fits = b"GET / HTTP/1.1\r\nx: " + b"v" * (LIMIT - 23) + b"\r\n\r\n"
    assert taken(fits, cuts=cuts) == [fits]
    for sent in (fits.replace(b"x:", b"xx:"), fits[:-4] + b"v" * 100):
        with pytest.raises(HeadTooLarge, match="more than 2,000 bytes"):
            taken(sent, cuts=cuts)


def test_a_head_of_too_many_lines_is_refused() -> None:
    head = b"GET / HTTP/1.1\r\n" + b"a:\r\n" * MAX_HEADERS
    assert len(taken(head + b"\r\n")) == 1
    with pytest.raises(HeadTooLarge, match=f"more than {MAX_HEADERS} headers"):
        taken(head + b"a:\r\n\r\n")


def test_a_long_body_is_no_long_head() -> None:
    sent = b"POST / HTTP/1.1\r\ncontent-length: 90000\r\n\r\n" + b"\n" * 90_000
    assert taken(sent, cuts=list(range(0, 90_000, 977))) == [sent]


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"\x00", b" GET / HTTP/1.1\r\n\r\n", b"{}"])
def test_another_protocol_is_refused_with_its_first_byte(sent: bytes) -> None:
    with pytest.raises(MalformedRequest):
        taken(sent)


def test_a_client_that_begins_with_http_2_is_told_so() -> None:
    with pytest.raises(MalformedRequest, match="HTTP/2"):
        taken(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", cuts=[2, 9])


@pytest.mark.parametrize("length", [b"Content-Length: 3", b"transfer-encoding: chunked"])
def test_a_body_is_held_back_until_some_of_it_arrives(length: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\n%b\r\n\r\n" % length
    requests = Requests(LIMIT)
    assert not requests.is_held_back
    requests.take(head)
    assert requests.is_held_back
    requests.take(b"3")
    assert not requests.is_held_back
    requests = Requests(LIMIT)
    requests.take(head + b"3")
    assert not requests.is_held_back


@pytest.mark.parametrize("rest", [b"content-length: 3\r\n\r\n", b"expect: 100-continue\r\n\r\n"])
def test_no_body_is_held_back_without_a_wish_or_without_a_body(rest: bytes) -> None:
    requests = Requests(LIMIT)
    requests.take(b"POST / HTTP/1.1\r\n" + rest)
    assert not requests.is_held_back


@pytest.mark.parametrize(
    "rest",
    [
        b"host: a\n",
        b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"content-length: three\r\n\r\nabc",
        b"content-length: 9999999999999999999\r\n\r\n",
        b"transfer-encoding: gzip\r\n\r\n",
        b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding:\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"transfer-encoding: chunked\r\n\r\n1;" + b"e" * 5_000,
        b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 2_000,
    ],
)
def test_what_could_be_framed_in_two_ways_is_refused(rest: bytes) -> None:
    with pytest.raises(MalformedRequest):
        taken(b"POST / HTTP/1.1\r\n" + rest)


@pytest.mark.parametrize(
    "codings", [b"gzip, chunked", b"gzip,chunked", b"GZIP , Chunked", b"gzip\r\ntransfer-encoding: chunked"]
)
def test_a_coding_besides_chunked_is_unknown_and_not_malformed(codings: bytes) -> None:
    with pytest.raises(UnknownCoding, match="chunked"):
        taken(b"POST / HTTP/1.1\r\ntransfer-encoding: " + codings + b"\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"\tchunked "])
def test_chunked_alone_is_read(coding: bytes) -> None:
    sent = b"POST / HTTP/1.1\r\ntransfer-encoding:" + coding + b"\r\n\r\n1\r\na\r\n0\r\n\r\n"
    assert taken(sent) == [sent]


def test_empty_lines_before_a_request_are_ignored_and_begin_none() -> None:
    requests = Requests(LIMIT)
    assert requests.take(b"\r\n\r\n") == (b"", b"")
    assert requests.is_between
    assert requests.take(b"\r\nGET / HTTP/1.1\r\n\r\n") == (b"GET / HTTP/1.1\r\n\r\n", b"")


@pytest.mark.parametrize(("size", "is_read"), [(2, False), (3, True)])
def test_a_body_in_tiny_chunks_is_refused_once_they_are_many(size: int, is_read: bool) -> None:
    requests = Requests(32_768)
    requests.take(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    requests.take(chunk * 50_000)
    if is_read:
        requests.take(chunk * 50_000 + b"0\r\n\r\n")
        assert requests.is_between
    else:
        with pytest.raises(MalformedRequest, match="less than 3 bytes each"):
            requests.take(chunk)


@pytest.mark.parametrize(("size", "is_read"), [(100_002, False), (100_003, True)])
def test_each_chunk_counts_once(size: int, is_read: bool) -> None:
    requests = Requests(32_768)
    requests.take(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
    requests.take(b"1\r\nx\r\n" * 50_000)  # 50,001 chunks may have as little as 150,003 bytes
    rest = b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size)
    if is_read:
        requests.take(rest)
        assert requests.is_between
    else:
        with pytest.raises(MalformedRequest, match="less than 3 bytes each"):
            requests.take(rest)
