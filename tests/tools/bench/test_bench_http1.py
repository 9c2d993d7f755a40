"""Messages come out whole however their bytes are cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.bench.http1 import MalformedMessage, Reader


def _chunked(pieces):
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def _counted(body):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _read(pieces):
    reader = Reader()
    found = []
    for piece in pieces:
        message = reader.feed(piece)
        while message is not None:
            found.append(message)
            message = reader.feed(b"")
    return found


_pieces = st.lists(st.binary(max_size=40).map(lambda piece: piece + b"\r\n0\r\n\r\n"[: len(piece) % 8]), max_size=6)


@given(bodies=st.lists(st.tuples(_pieces, st.booleans()), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 2000)))
def test_any_cutting_of_a_connection_gives_the_same_messages(bodies, cuts):
    sent = b"".join(_chunked(pieces) if chunked else _counted(b"".join(pieces)) for pieces, chunked in bodies)
    ends = sorted({min(cut, len(sent)) for cut in cuts} | {len(sent)})
    starts = [0, *ends[:-1]]
    messages = _read([sent[start:end] for start, end in zip(starts, ends, strict=True)])
    assert [message.body for message in messages] == [b"".join(pieces) for pieces, _ in bodies]
    assert {message.status for message in messages} == {200}


def test_a_message_that_is_cut_off_is_never_taken_for_a_whole_one():
    for whole in (_chunked([b"some", b"text"]), _counted(b"sometext")):
        for end in range(len(whole)):
            assert _read([whole[:end]]) == []


def test_header_names_are_found_in_lower_case():
    (message,) = _read([b"POST /v1/chat/completions HTTP/1.1\r\nX-Some: Value\r\nContent-Length: 0\r\n\r\n"])
    assert message.start_line == "POST /v1/chat/completions HTTP/1.1"
    assert message.headers["x-some"] == "Value"


@pytest.mark.parametrize("body", [b"zz\r\nab\r\n", b"1\r\na\r\n0\r\nTrailer: x\r\n\r\n"])
def test_what_is_no_chunk_is_refused(body):
    with pytest.raises(MalformedMessage):
        _read([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body])
