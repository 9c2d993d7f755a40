from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.truncation.tool_response import tool_response, with_note

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
RESPONSES = st.builds(
    lambda more, status, data: {**more, "status": status, "data": data},
    st.dictionaries(st.sampled_from(["text", "stats", "context", "error", "x"]), JSON),
    JSON,
    JSON,
)


@given(RESPONSES, st.text(max_size=30))
def test_a_note_stands_before_the_text_and_every_other_member_is_as_it_was(response, note):
    found = tool_response(json.dumps(response))
    assert found is not None
    noted = json.loads(with_note(found, note))
    text = response.get("text")
    assert noted.pop("text") == (note + text if isinstance(text, str) else note)
    response.pop("text", None)
    assert noted == response


@pytest.mark.parametrize(
    "text",
    [
        "",
        "status data",
        '["status", "data"]',
        '{"status": "ok"}',
        '{"data": 1}',
        '{"status": "ok", "data": 1',
        'x {"status": 1, "data": 1}',
    ],
)
def test_what_lacks_the_shape_is_no_response(text):
    assert tool_response(text) is None
