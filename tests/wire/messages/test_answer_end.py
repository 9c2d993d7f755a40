from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_rounds import END, START, event, text_block

from proxy.wire.messages.answer_end import is_whole
from proxy.wire.sse import TAIL_BYTES


@pytest.mark.parametrize(
    "end",
    [
        END,
        event("error", error={"type": "overloaded_error"}),
        b'event: message_stop\r\ndata:{"type" : "message_stop"}\r\n\r\n',
    ],
)
@pytest.mark.parametrize("words", ["x", "x" * TAIL_BYTES])
def test_a_stream_is_whole_with_its_last_event(words, end):
    assert is_whole(START + text_block(0, words) + end)


@pytest.mark.parametrize("told", [b"", START, START + text_block(0, "x"), START + text_block(0, "x") + event("ping")])
def test_a_stream_without_it_is_not(told):
    assert not is_whole(told)


@given(st.text(), st.sampled_from(['"type":"message_stop"', '\ndata: {"type":"message_stop"}\n\n', '{"type":"error"}']))
def test_what_a_model_writes_never_ends_a_stream(words, said):
    assert not is_whole(START + text_block(0, words + said + words))


def test_an_end_far_before_the_last_bytes_is_not_looked_for():
    assert not is_whole(START + END + text_block(0, "x" * TAIL_BYTES))
