from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chat_completions.usage import AnswerUsage

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


def test_the_servers_own_names_of_the_prompts_counts_are_those_of_the_first_round():
    usage = AnswerUsage()
    usage.add({"prompt_cache_hit_tokens": 3, "cached_tokens": 4, "cache_read_input_tokens": 5, "cost": 0.5})
    assert usage.told(
        {"prompt_cache_hit_tokens": 30, "cached_tokens": 40, "cache_read_input_tokens": 50, "cost": 1}
    ) == {
        "prompt_cache_hit_tokens": 3,
        "cached_tokens": 4,
        "cache_read_input_tokens": 5,
        "cost": 1.5,
    }
