from __future__ import annotations

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import valid_histories

from proxy.wire import TAIL_BYTES, Tail
from proxy.wire.chat_completions import CHAT_COMPLETIONS


@given(st.lists(st.binary(max_size=30), max_size=12))
def test_a_tail_holds_the_end_and_little_more(pieces):
    tail = Tail(8, 12)
    for piece in pieces:
        tail.add(piece)
    stream = b"".join(pieces)
    assert tail.joined[-8:] == stream[-8:]
    assert stream.endswith(tail.joined)
    assert len(tail.joined) < 16


def test_large_pieces_are_not_kept_alive_by_their_ends():
    tail = Tail(TAIL_BYTES, 32)
    tracemalloc.start()
    try:
        for _ in range(40):
            tail.add(bytes(256_000))
        assert tracemalloc.get_traced_memory()[0] < 3 * TAIL_BYTES
    finally:
        tracemalloc.stop()


# Errors


@given(st.binary(max_size=100))
def test_an_error_ends_a_stream_as_one_event_in_one_line(body):
    first, done, rest = CHAT_COMPLETIONS.error_in_stream(500, body).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert first.startswith(b"data: ")
    assert not {10, 13} & set(first)
    assert "error" in json.loads(first.removeprefix(b"data: "))


# The wire


@given(valid_histories(), st.sampled_from([None, 1]))
def test_a_request_is_read_as_one_view_for_each_message_and_written_with_their_bytes(history, indent):
    body = json.dumps({"model": "m", "messages": history, "temperature": 0.1}, indent=indent).encode()
    request = CHAT_COMPLETIONS.parse(body)
    assert [json.loads(message.raw) for message in request.conversation] == json.loads(body)["messages"]
    rendered = CHAT_COMPLETIONS.render(request, list(request.conversation), {})
    assert json.loads(rendered) == json.loads(body)
    assert all(message.raw in rendered and message.raw in body for message in request.conversation)


def test_system_texts_are_messages_and_no_member_of_the_request():
    assert CHAT_COMPLETIONS.instructions({"system": b'"x"', "messages": b"[]"}) == b""


def test_only_a_part_that_holds_an_image_makes_a_request_one_with_images():
    assert CHAT_COMPLETIONS.may_hold_images(b'[{"type": "image_url", "image_url": {}}]')
    assert not CHAT_COMPLETIONS.may_hold_images(b'[{"type": "text", "text": "image"}]')
