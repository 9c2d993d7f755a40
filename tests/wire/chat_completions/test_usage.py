from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.usage import AnswerUsage, added

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(
    lambda prompt, reply, cached: {
        "prompt_tokens": prompt,
        "completion_tokens": reply,
        "total_tokens": prompt + reply,
        "prompt_tokens_details": {"cached_tokens": cached},
    },
    COUNTS, COUNTS, COUNTS,
)  # fmt: skip


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_the_client_is_told_of_its_own_prompt_and_of_all_that_the_model_wrote(rounds):
    usage = AnswerUsage()
    for one in rounds[:-1]:
        usage.add(one)
    told = usage.told(rounds[-1])
    written = sum(one["completion_tokens"] for one in rounds)
    assert told["prompt_tokens"] == rounds[0]["prompt_tokens"]
    assert told["prompt_tokens_details"] == rounds[0]["prompt_tokens_details"]
    assert told["completion_tokens"] == written
    assert told["total_tokens"] == rounds[0]["prompt_tokens"] + written


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_the_record_holds_the_tokens_of_all_rounds(rounds):
    usage = AnswerUsage()
    for one in rounds[:-1]:
        usage.add(one)
    assert usage.totals(rounds[-1]) == {
        name: sum(one[name] for one in rounds) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


def test_a_round_that_nobody_counted_changes_nothing():
    usage = AnswerUsage()
    usage.add({})
    usage.add({"prompt_tokens": 5, "completion_tokens": 2})
    assert usage.told({}) == {"prompt_tokens": 5, "completion_tokens": 2}
    assert AnswerUsage().told({}) == AnswerUsage().totals({}) == {}


@pytest.mark.parametrize(
    ("before", "now", "together"),
    [
        ({"cost": 0.5}, {"cost": 0.25}, {"cost": 0.75}),
        ({"tier": "flex"}, {"tier": "default"}, {"tier": "default"}),
        ({"tier": "flex"}, {"tier": None}, {"tier": "flex"}),
        ({"cached": True}, {"cached": True}, {"cached": True}),
        ({"details": {"audio": 1}}, {"details": {"text": 2}}, {"details": {"audio": 1, "text": 2}}),
        ({"details": {"audio": 1}}, {"details": 7}, {"details": 7}),
    ],
)
def test_numbers_of_two_rounds_are_added_and_anything_else_is_as_the_last_one_said(before, now, together):
    assert added(before, now) == together
