from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.errors import error_in_stream


@given(st.binary(max_size=100))
def test_an_error_ends_a_stream_as_one_event_in_one_line(body):
    first, done, rest = error_in_stream(500, body).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert first.startswith(b"data: ")
    assert not {10, 13} & set(first)
    assert "error" in json.loads(first.removeprefix(b"data: "))
