"""Messages come out whole however their bytes are cut into pieces."""

import pytest
from httptools import HttpParserError, HttpRequestParser

from tools.bench.http1 import Reader

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n4\r\ntext\r\n0\r\n\r\n"
COUNTED = b"HTTP/1.1 404 No\r\nContent-Length: 8\r\n\r\nsometext"


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_any_cutting_of_a_connection_gives_the_same_messages_and_none_before_its_end(size):
    reader, found, sent = Reader(), [], CHUNKED + COUNTED
    for start in range(0, len(sent), size):
        message = reader.feed(sent[start : start + size])
        while message is not None:
            assert start + size >= len(CHUNKED)
            found.append((message.status, message.body))
            message = reader.feed(b"")
    assert found == [(200, b"sometext"), (404, b"sometext")]


def test_a_request_has_its_method_and_its_target():
    message = Reader(HttpRequestParser).feed(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert message is not None
    assert (message.method, message.target, message.body) == ("POST", "/v1/chat/completions", b"")


def test_what_is_no_chunk_is_refused():
    with pytest.raises(HttpParserError):
        Reader().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n")
