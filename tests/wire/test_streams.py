from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import SSE, EventSplitter
from proxy.wire.ollama import OLLAMA

QUIET = re.compile(rb"\A(?::[^\r\n]*(?:[\r\n]+|\Z)|[\r\n]+)*")
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b": comment", b"event: x", b"id", b"", b"", "data: é".encode(), b"data: \xff"]
)
STREAMS = st.one_of(
    st.lists(st.tuples(LINES, LINE_ENDS).map(b"".join), max_size=30).map(b"".join),
    st.text("ab\n\r", max_size=40).map(str.encode),
)


def cut(stream, places):
    ends = sorted({min(place, len(stream)) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def split(pieces):
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)], splitter.rest


def events_and_rest(pieces):
    """The events and the rest, without the lines before each that say nothing."""
    events, rest = split(pieces)
    return [left for event in [*events, rest] if (left := QUIET.sub(b"", event))]


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12))
def test_pieces_of_any_size_give_the_same_events(stream, places):
    assert events_and_rest(cut(stream, places)) == events_and_rest([stream])
    assert events_and_rest([stream[at : at + 1] for at in range(len(stream))]) == events_and_rest([stream])


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12))
def test_the_events_and_the_rest_are_the_stream(stream, places):
    events, rest = split(cut(stream, places))
    assert b"".join(events) + rest == stream


@given(st.lists(st.lists(LINES.filter(bool), min_size=1, max_size=3), max_size=6), LINE_ENDS)
def test_a_blank_line_ends_an_event_whatever_the_line_end(events, end):
    written = [end.join([*lines, b"", b""]) for lines in events]
    found, rest = split([b"".join(written) + b":"])
    assert (b"".join(found), rest) == (b"".join(written), b":")
    expected = [QUIET.sub(b"", event) for event in written]
    assert events_and_rest([b"".join(written)]) == [event for event in expected if event]


def test_a_carriage_return_waits_for_the_line_feed_that_may_follow():
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\n\r") == []
    assert splitter.feed(b"\ndata: b") == [b"data: a\r\n\r\n"]
    assert splitter.rest == b"data: b"


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\r\rdata", b"a\n"),
        (b"data: a\ndata: b\r\ndata\n\n", b"a\nb\n"),
        (b"data:  two blanks\n\n", b" two blanks"),
        (b": comment\n\n", b""),
        (b"event: x\nid: 1\n\n", b""),
        (b"database: a\n\n", b""),
        (b": c\n\r\ndata: a\n\n", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b" data: a\n\n", b""),
        (b"", b""),
    ],
)
def test_what_an_event_says(event, says):
    assert SSE.data_of(event) == says


class CountingPattern:
    """Stands for a pattern and counts the bytes that it is asked to look at."""

    def __init__(self, pattern):
        self.pattern, self.looked_at = pattern, 0

    def search(self, text, start):
        found = self.pattern.search(text, start)
        self.looked_at += (len(text) if found is None else found.end()) - start
        return found


@pytest.mark.parametrize("piece_bytes", [1, 10])
@pytest.mark.parametrize("event_bytes", [20, 1_000_000])
def test_the_work_grows_with_the_stream_and_not_with_its_square(monkeypatch, piece_bytes, event_bytes):
    counting = CountingPattern(re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}"))
    monkeypatch.setattr("proxy.wire.streams._BLANK_LINE", counting)
    event = b"data: " + b"x" * (event_bytes - 8) + b"\n\n"
    stream = event * (1_000_000 // event_bytes)
    events, rest = split(stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes))
    assert (events, rest) == ([event] * (1_000_000 // event_bytes), b"")
    assert counting.looked_at <= 4 * len(stream)  # each byte, and three before each piece


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r", b": c\n", b": c\n\n", b":\r\r", b": c\r\n\r\n"])
@pytest.mark.parametrize("begins", [b"", b"data: a\n\n"])
def test_lines_without_content_are_skipped_at_once_however_many_they_are(line, begins):
    stream = begins + line * 10_000 + b"\n" + b"data: b\n\n"
    events, rest = split([stream])
    assert (b"".join(events), rest) == (stream, b"")
    assert len(events) <= 4
    assert [SSE.data_of(event) for event in events if SSE.data_of(event)] == [b"a"] * bool(begins) + [b"b"]


@pytest.mark.parametrize(
    ("framing", "named"), [(SSE, b"Text/Event-Stream; charset=utf-8"), (OLLAMA.framing, b"Application/X-NDJSON")]
)
def test_a_stream_is_known_by_its_content_type_in_any_case(framing, named):
    assert framing.is_stream([(b"content-type", named)])
    assert not framing.is_stream([(b"content-type", b"application/json")])
    assert not framing.is_stream([])
    assert bool(framing.comment) is (framing is SSE), "clients of Ollama read every line"
