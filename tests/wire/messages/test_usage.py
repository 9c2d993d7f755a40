from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.messages.usage import RoundsUsage

COUNTS = st.integers(0, 10**6)
USAGES = st.fixed_dictionaries(
    {
        "input_tokens": COUNTS,
        "cache_creation_input_tokens": COUNTS,
        "cache_read_input_tokens": COUNTS,
        "output_tokens": COUNTS,
        "service_tier": st.sampled_from(["standard", None]),
    }
)
PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def after(rounds):
    usage = RoundsUsage()
    for one in rounds:
        usage.add(one)
    return usage


@given(st.lists(USAGES, min_size=1, max_size=4), USAGES)
def test_the_client_is_told_of_its_own_prompt_and_of_all_that_the_model_wrote(rounds, last):
    told = after(rounds).told(last)
    assert {name: told[name] for name in PROMPT} == {name: rounds[0][name] for name in PROMPT}
    assert told["output_tokens"] == sum(one["output_tokens"] for one in [*rounds, last])
    assert told["service_tier"] == last["service_tier"]


@given(st.lists(USAGES, max_size=4), USAGES)
def test_the_record_holds_the_tokens_of_all_rounds(rounds, last):
    prompt = sum(one[name] for one in [*rounds, last] for name in PROMPT)
    reply = sum(one["output_tokens"] for one in [*rounds, last])
    expected = {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
    assert after(rounds).totals(last) == (expected if prompt or reply else {})


def test_a_part_of_a_usage_is_told_as_a_part():
    usage = after([{"input_tokens": 5, "output_tokens": 2}])
    assert usage.told({"input_tokens": 90}) == {"input_tokens": 5}
    assert usage.told({"output_tokens": 3, "cache_read_input_tokens": 8}) == {
        "output_tokens": 5,
        "cache_read_input_tokens": 8,
    }


def test_the_first_round_is_the_first_though_nobody_counted_it():
    usage = after([{}, {"input_tokens": 5, "output_tokens": 2}])
    assert usage.told({"input_tokens": 9}) == {"input_tokens": 9}
    assert usage.totals({}) == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_nobody_counted_is_no_count():
    assert RoundsUsage().totals({}) == RoundsUsage().told({}) == {}
