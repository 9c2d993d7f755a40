from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import Counted
from proxy.wire.responses.counted import counted_in

COUNTS = st.integers(0, 999_999_999)


@given(COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_what_a_response_counted_is_read_however_it_is_laid_out(prompt, reply, cached, indent):
    usage = {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": reply}
    end = json.dumps({"output": [], "usage": usage}, indent=indent).encode()
    assert counted_in(end) == Counted(prompt, reply, cached)


def test_what_a_model_wrote_before_the_usage_does_not_count():
    end = b'"text":"x"},{"input_tokens":1,"output_tokens":2,"cached_tokens":3},"usage":{"input_tokens":4}'
    assert counted_in(end) == Counted(4, 2, 3)
    assert counted_in(b'{"input_tokens": 9}') == Counted(9, 0, 0)


@pytest.mark.parametrize(
    "end", [b"", b"data: [DONE]\n\n", b'{"output_tokens": 7}', b'"input_tokens": "7"', b'"input_tokens": null']
)
def test_a_response_that_does_not_say_what_its_prompt_took_counted_nothing(end):
    assert counted_in(end) is None
