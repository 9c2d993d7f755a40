from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.responses.usage import ResponseUsage

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(
    lambda prompt, reply, cached: {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": reply,
        "output_tokens_details": {"reasoning_tokens": reply // 2},
        "total_tokens": prompt + reply,
    },
    COUNTS, COUNTS, COUNTS,
)  # fmt: skip
ROUNDS = st.lists(USAGES, min_size=1, max_size=4)


def over(rounds):
    usage = ResponseUsage()
    for one in rounds:
        usage.add(one)
    return usage


@given(ROUNDS)
def test_the_client_is_told_of_its_own_prompt_and_of_all_that_the_model_wrote(rounds):
    written = sum(one["output_tokens"] for one in rounds)
    assert over(rounds[:-1]).told(rounds[-1]) == {
        "input_tokens": rounds[0]["input_tokens"],
        "input_tokens_details": rounds[0]["input_tokens_details"],
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": sum(one["output_tokens"] // 2 for one in rounds)},
        "total_tokens": rounds[0]["input_tokens"] + written,
    }


@given(ROUNDS)
def test_the_record_holds_the_tokens_of_all_rounds_under_the_names_that_it_has_for_every_wire(rounds):
    assert over(rounds[:-1]).totals(rounds[-1]) == {
        "prompt_tokens": sum(one["input_tokens"] for one in rounds),
        "completion_tokens": sum(one["output_tokens"] for one in rounds),
        "total_tokens": sum(one["total_tokens"] for one in rounds),
    }
