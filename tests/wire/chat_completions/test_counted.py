from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import Counted
from proxy.wire.chat_completions.counted import counted_in

COUNTS = st.integers(0, 999_999_999)


@given(COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_what_an_answer_counted_is_read_however_it_is_laid_out(prompt, reply, cached, indent):
    usage = {"prompt_tokens": prompt, "completion_tokens": reply, "prompt_tokens_details": {"cached_tokens": cached}}
    end = json.dumps({"choices": [], "usage": usage}, indent=indent).encode()
    assert counted_in(end) == Counted(prompt, reply, cached)


@pytest.mark.parametrize("name", ["cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"])
def test_what_came_from_a_cache_is_read_by_the_name_of_each_provider(name):
    assert counted_in(b'{"prompt_tokens": 9, "%b": 4}' % name.encode()) == Counted(9, 0, 4)


def test_of_several_usages_in_a_stream_the_last_one_counts():
    end = b'data: {"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: {"usage":{"prompt_tokens":3}}\n\n'
    assert counted_in(end) == Counted(3, 2, 0)


@pytest.mark.parametrize(
    "end", [b"", b"data: [DONE]\n\n", b'{"completion_tokens": 7}', b'"prompt_tokens": "7"', b'"prompt_tokens": null']
)
def test_an_answer_that_does_not_say_what_its_prompt_took_counted_nothing(end):
    assert counted_in(end) is None
