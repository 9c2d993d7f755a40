from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.strategies import exchange, pipeline, planned, system, user

from proxy.core.compaction import Budget
from proxy.core.conversation import Size
from proxy.core.overflow import OversizedPlan, Scope, Unit, Verdict, VerdictKind, lower_reply_helps, refused_twice

SECRET = "the secret of the user "
HISTORY = [system(SECRET * 2_900), user(SECRET * 2_000), *exchange(["small"], tool="read_file")]


def refused(language="en", budget=None, *, base=None, history=HISTORY, window_tokens=4_000):
    made = planned(history, pipeline(budget or Budget(2_000)), base)
    assert not made.fits
    return made, OversizedPlan(made, "gpt-x", window_tokens).message(language)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_refusal_begins_as_openai_s_does_and_says_what_takes_the_room_and_what_to_do(language):
    made, reported = refused(language)
    begin = re.match(
        r"This model's maximum context length is (\d+) tokens\. However, you requested (\d+) tokens "
        r"\((\d+) in the messages, (\d+) in the completion\)\.",
        reported,
    )
    window, requested, prompt, reserved = map(int, begin.groups())
    assert (window, prompt, reserved) == (4_000, made.after.tokens, 2_000)
    assert requested == prompt + reserved > window
    for piece in ("2,000", "gpt-x", "messages[1]", "messages[0]", "tool read_file", "messages[3]"):
        assert piece in reported
    assert f"{made.largest[0].size.tokens:,}" in reported
    assert reported.index("messages[0]") < reported.index("messages[1]")
    assert {"en": "Shorten the largest of these", "zh": "请缩短其中最大的部分"}[language] in reported
    assert "secret" not in reported
    assert "ENABLE_TOOL_SEARCH" not in reported, "there are no tools"


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(10**6, 3_000), "maximum context length is 3000 characters. However, your messages resulted in"),
        (Budget(10**6, None, 3_000), "maximum context length is 3000 bytes. However, your messages resulted in"),
    ],
)
def test_a_limit_in_another_unit_is_reported_in_that_unit(budget, words):
    made, reported = refused(budget=budget)
    assert words in reported
    assert f"resulted in {made.after.chars if budget.room_chars else made.after.bytes}" in reported


@pytest.mark.parametrize(("language", "end"), [("en", "already left out."), ("zh", "发给 gpt-x 的大小。")])
def test_a_guessed_room_is_not_reported(language, end):
    made, reported = refused(language, Budget(2_000, room_is_guessed=True, room_chars=3_000))
    assert made.after.tokens > 2_000
    assert reported.startswith("This model's maximum context length is 3000 characters.")
    assert end in reported
    assert "2,000" not in reported


def test_a_guessed_window_is_not_reported_once_more_is_known_to_fit():
    _, reported = refused(budget=Budget(2_000, room_is_guessed=True).for_one_send(5_000), window_tokens=4_000)
    assert reported.startswith("This model's maximum context length is 5000 tokens.")
    assert "0 in the completion" in reported


def test_a_window_just_stated_by_the_upstream_is_not_reported_larger():
    made = planned(HISTORY, pipeline(Budget(2_000)))
    reported = OversizedPlan(made, "gpt-x", 1_500, window_is_stated=True).message("en")
    window, requested = map(int, re.findall(r"(\d+) tokens", reported)[:2])
    assert window == 1_500
    assert requested == made.after.tokens * 1_500 // 2_000 > window


def test_a_plan_that_fits_by_our_count_is_reported_in_the_upstreams_sizes():
    made = planned([user("x")], pipeline(Budget(2_000)))
    assert made.fits
    reported = OversizedPlan(made, "gpt-x", 4_000, sizes=(5_000, 4_000)).message("en")
    begin = "This model's maximum context length is 4000 tokens. However, your messages resulted in 5000 tokens."
    assert reported.startswith(begin + " That is the request for gpt-x")


@pytest.mark.parametrize("ratio", [0.85, 1.4])
def test_sizes_are_reported_in_the_tokens_of_the_model(ratio):
    made, reported = refused(budget=Budget(int(3_750 / ratio), ratio=ratio))
    assert f"({int(made.after.tokens * ratio)} in the messages" in reported
    assert f"{int(int(3_750 / ratio) * ratio):,} tokens." in reported
    assert f"{int(made.largest[0].size.tokens * ratio):,} tokens)" in reported


def test_where_tools_are_too_much_they_are_named_and_first():
    _, reported = refused(base=Size(9_160, 30_000, 30_000), history=[user("small")], budget=Budget(9_183 - 20))
    assert "have to stay: the tool list (9,160 tokens), messages[0]" in reported
    _, reported = refused(history=[], budget=Budget(-1))
    assert "messages[" not in reported
    assert "tool list" not in reported


def test_a_message_without_a_role_is_reported_like_others():
    assert "messages[0] (?, " in OversizedPlan(planned([{"content": "x"}], pipeline(Budget(1))), "m", 10).message("en")


@pytest.mark.parametrize(("language", "new"), [("en", "begin a new conversation"), ("zh", "新")])
def test_a_second_refusal_says_how_far_it_was_cut_and_names_the_reply_limit_first(language, new):
    assert "900" not in refused_twice(12_345, language)
    message = refused_twice(12_345, language, 900)
    assert "12,345" in message
    assert message.index("900") < message.index(new)


@pytest.mark.parametrize(
    ("most", "over", "is_named"), [(None, 2_000, True), (4_000, 2_000, False), (None, 9_000, False)]
)
def test_a_reply_limit_is_to_be_lowered_only_if_the_prompt_then_fits(most, over, is_named):
    budget = Budget(5_000, max_reply_tokens=most, reserved_reply_tokens=4_000)
    made = planned([user("x")], pipeline(budget), Size(5_000 + over, 9, 9))
    reported = OversizedPlan(made, "gpt-x", 9_000, reply_tokens=3_900).message("en")
    assert ("Lower the reply limit of 3,900 tokens first. Shorten" in reported) is is_named


@pytest.mark.parametrize(
    ("verdict", "helps"),
    [
        (Verdict(VerdictKind.PROMPT), False),
        (Verdict(VerdictKind.PROMPT, limit=4_000, prompt=8_000, unit=Unit.TOKENS), False),
        (Verdict(VerdictKind.PROMPT_PLUS_REPLY, limit=4_000, prompt=3_000, reply=2_000, unit=Unit.TOKENS), True),
        (Verdict(VerdictKind.PROMPT, limit=40_000, limit_scope=Scope.INPUT, unit=Unit.TOKENS), False),
    ],
)
def test_a_lower_reply_limit_is_advised_after_refusals_only_if_the_prompt_alone_fits(verdict, helps):
    made = planned(HISTORY, pipeline(Budget(2_000, reserved_reply_tokens=100)))
    assert lower_reply_helps(made, verdict) is helps


@pytest.mark.parametrize(("language", "named"), [("en", "the system text beside"), ("zh", "消息之外的系统提示")])
def test_a_system_text_beside_the_messages_is_named_apart_from_the_tool_list(language, named):
    made = planned([user("small")], pipeline(Budget(2_000)), Size(9_103, 30_000, 30_000))
    reported = OversizedPlan(made, "m", 4_000, system_tokens=9_000).message(language)
    assert named in reported
    assert re.search("(tool list|工具列表)[ （(]+103", reported)
    alone = OversizedPlan(made, "m", 4_000, system_tokens=9_101).message(language)
    assert not re.search("tool list|工具列表", alone)


TOO_LONG = planned(HISTORY, pipeline(Budget(2_000)), Size(9_103, 30_000, 30_000))


@given(st.integers(1, 30_000), st.sampled_from([0.5, 1.0, 1.7]), st.booleans(), st.none() | st.integers(1, 30_000))
def test_no_part_is_larger_than_the_whole(window, ratio, is_stated, prompt):
    made = structs.replace(TOO_LONG, budget=Budget(2_000, ratio=ratio))
    sizes = prompt and (prompt, prompt - 1)
    oversized = OversizedPlan(made, "m", window, system_tokens=9_000, window_is_stated=is_stated, sizes=sizes)
    reported = oversized.message("en", says_sizes=prompt is None)
    whole = prompt or int(re.findall(r"\((\d+) in the messages", reported)[0])
    parts = re.findall(r"([\d,]+) tokens\)", reported.split("have to stay")[1])
    assert len(parts) == 5
    assert sum(int(part.replace(",", "")) for part in parts) <= whole


@pytest.mark.parametrize(
    ("language", "page"),
    [("en", "a page of read_file after messages[2] ("), ("zh", "messages[2] 之后的一页 read_file（")],
)
def test_positions_are_the_clients_and_insertions_are_marked_as_such(language, page):
    history = [*HISTORY, user("more")]
    made = planned(history, pipeline(Budget(2_000)))
    reported = OversizedPlan(made, "gpt-x", 4_000, put_in=(3,)).message(language)
    assert page in reported
    for named in ("messages[0]", "messages[1]", "messages[3]"):  # the last one is at index 4 of the plan
        assert named in reported
    assert "messages[4]" not in reported


@pytest.mark.parametrize(("language", "named"), [("en", "the member prediction"), ("zh", "成员 prediction")])
def test_members_besides_the_messages_are_named_apart_from_the_tool_list(language, named):
    made = planned(HISTORY, pipeline(Budget(2_000)), Size(9_103, 30_000, 30_000))
    reported = OversizedPlan(made, "m", 4_000, members={"prediction": 9_000, "x" * 99: 50}).message(language)
    assert f"{named} " in reported.replace("（", " (")
    assert "9,000" in reported
    assert "53" in reported.split("9,000")[1]
    assert "x" * 65 not in reported
    alone = OversizedPlan(made, "m", 4_000, members={"prediction": 9_103}).message(language)
    assert not re.search("tool list|工具列表", alone)


def test_an_unknown_limit_is_not_reported():
    made = planned([{"role": "user", "content": "x " * 4_000}], pipeline(Budget(100)))
    reported = OversizedPlan(made, "m", 128_000, is_unnamed=True).message("en")
    assert reported.startswith("Your input exceeds the context window of this model. That is the request for m ")
    assert "128" not in reported
    assert "completion" not in reported
    assert "room" not in reported


@pytest.mark.parametrize(("language", "way_out"), [("en", "larger window, offer fewer tools"), ("zh", "减少工具")])
def test_an_agent_whose_system_text_and_tools_alone_are_over_the_window_gets_both_figures_and_ways_out(
    language, way_out
):
    made, reported = refused(language, Budget(2_000), base=Size(1_500, 6_000, 6_000), history=HISTORY[:2])
    fixed = made.base.tokens + made.blocks[0].tokens_before
    assert f"{fixed:,}" in reported
    assert "4,000" in reported.partition("messages[0]")[2]
    assert way_out in reported
    assert "ENABLE_TOOL_SEARCH=true" in reported
