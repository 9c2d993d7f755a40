from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_rounds import END, START, START_USAGE, body_of_answer, event, text_block

from proxy.core.overflow import Counted
from proxy.wire.messages.counted import counted_in, numbers_in, prompt_in

COUNTS = st.integers(0, 999_999_999)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([None, 1]))
def test_the_prompt_is_what_the_cache_had_what_it_got_and_the_rest(fresh, got, had, reply, indent):
    usage = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": got,
        "cache_read_input_tokens": had,
        "output_tokens": reply,
    }
    assert counted_in(json.dumps({"content": [], "usage": usage}, indent=indent).encode()) == Counted(
        fresh + got + had, reply, had
    )


def test_of_a_stream_the_first_event_tells_the_prompt_and_the_last_one_the_reply():
    assert counted_in(START + END) == Counted(423, 7, 400)


def test_a_prompt_that_the_last_event_tells_again_is_counted_once():
    newer = event("message_delta", delta={}, usage={**START_USAGE, "output_tokens": 9})
    assert counted_in(START + newer) == counted_in(newer) == Counted(423, 9, 400)


def test_a_nought_at_the_end_takes_back_no_count():
    blank = dict.fromkeys(START_USAGE, 0)
    assert counted_in(START + event("message_delta", delta={}, usage=blank)) == Counted(423, 1, 400)
    assert counted_in(event("message_delta", delta={}, usage=blank)) == Counted(0, 0, 0)


@pytest.mark.parametrize(
    "told", [b"", END, b'data: {"usage": {"input', b'{"usage": null}', b'{"usage":' + b'{"a":' * 100_000]
)
def test_what_says_nothing_of_the_prompt_counted_nothing(told):
    assert counted_in(told) is None


def test_what_a_model_writes_is_not_counted():
    written = '"usage":{"input_tokens":9}'
    assert counted_in(text_block(0, written)) is None
    assert counted_in(body_of_answer([{"type": "text", "text": written}])) is None


def test_only_whole_numbers_are_counts():
    usage = {"input_tokens": 5, "output_tokens": True, "service_tier": "standard", "cache_creation": {"x": 1}}
    assert numbers_in(usage) == {"input_tokens": 5}
    assert numbers_in("input_tokens") == {}


def test_nobody_knows_a_prompt_of_which_only_the_cached_part_is_told():
    assert prompt_in({"cache_read_input_tokens": 7}) is None
    assert prompt_in({"cache_read_input_tokens": 7, "input_tokens": 0}) == 7


def test_counts_that_are_not_stated_are_zero():
    assert counted_in(b'{"usage":{"input_tokens":20}}') == (20, 0, 0)
