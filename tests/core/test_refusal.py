from __future__ import annotations

import pytest
from core.strategies import exchange, pipeline, planned, system, user

from proxy.core.budget import Budget
from proxy.core.refusal import does_not_fit, refused_twice

SECRET = "the secret of the user "
HISTORY = [system(SECRET * 900), user(SECRET * 2_000), *exchange(["small"], tool="read_file")]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_refusal_says_what_was_measured_what_takes_the_room_and_what_to_do(language):
    made = planned(HISTORY, pipeline(Budget(2_000)))
    told = does_not_fit(made, "gpt-x", 4_000, language)
    for piece in (f"{made.after.tokens:,}", "2,000", "4,000", "gpt-x", "messages[1]", "messages[0]", "system"):
        assert piece in told
    assert "messages[3]" in told
    assert "tool read_file" in told
    assert f"{made.largest[0].size.tokens:,}" in told
    assert told.index("messages[1]") < told.index("messages[0]")
    assert {"en": "Shorten the system text", "zh": "请缩短系统提示"}[language] in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("budget", "words"),
    [(Budget(10**6, 3_000), "characters; at most 3,000"), (Budget(10**6, None, 3_000), "bytes; at most 3,000")],
)
def test_a_limit_in_another_unit_is_told_in_that_unit(budget, words):
    made = planned(HISTORY, pipeline(budget))
    told = does_not_fit(made, "m", 10**6, "en")
    assert words in told
    assert f"{made.after.chars if budget.room_chars else made.after.bytes:,}" in told


@pytest.mark.parametrize("ratio", [0.85, 1.4])
def test_sizes_are_told_in_the_tokens_of_the_model(ratio):
    made = planned(HISTORY, pipeline(Budget(int(3_750 / ratio), ratio=ratio)))
    told = does_not_fit(made, "m", 4_000, "en")
    room = int(int(3_750 / ratio) * ratio)
    for tokens in (int(made.after.tokens * ratio), room, int(made.largest[0].size.tokens * ratio)):
        assert f"{tokens:,}" in told


def test_where_tools_alone_are_too_much_no_message_is_blamed():
    told = does_not_fit(planned([], pipeline(Budget(-1))), "m", 10, "en")
    assert "messages[" not in told
    assert "tool list" in told


def test_a_message_without_a_role_is_told_all_the_same():
    assert "messages[0] (?, " in does_not_fit(planned([{"content": "x"}], pipeline(Budget(1))), "m", 10, "en")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_second_refusal_says_how_far_it_was_cut(language):
    assert "12,345" in refused_twice(12_345, language)
