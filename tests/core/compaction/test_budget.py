from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction import Budget, BudgetRules, budget_for, clamped_reply, in_model_tokens
from proxy.core.conversation import MessageReport, Size
from proxy.core.models import Certainty, ModelProfile

COUNTS = st.integers(0, 10**6)
PROFILES = st.builds(
    ModelProfile,
    st.just("m"),
    st.integers(512, 2 * 10**6),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**5),
)
RULES = st.builds(BudgetRules, margin_tokens=st.none() | st.integers(0, 5_000), clamp_reply=st.booleans())
RATIOS = st.floats(0.5, 3)


@given(PROFILES, st.none() | st.integers(1, 10**6), st.booleans(), RULES, RATIOS)
def test_the_room_leaves_space_for_the_reply_and_the_margin(profile, reply_tokens, exact, rules, ratio):
    budget = budget_for(profile, reply_tokens, exact=exact, rules=rules, ratio=ratio)
    assert 0 <= budget.room_tokens * ratio <= profile.window_tokens
    if profile.input_tokens is not None and budget.room_tokens:
        assert budget.room_tokens * ratio <= profile.input_tokens
    if reply_tokens is not None and not rules.clamp_reply and budget.room_tokens:
        reserved = min(reply_tokens, 4_096, profile.window_tokens // 2)
        assert budget.room_tokens * ratio + reserved <= profile.window_tokens


@given(PROFILES, st.none() | st.integers(1, 10**6), st.none() | st.integers(1, 10**6), RULES)
def test_the_reply_limit_does_not_change_the_limit_of_a_result(profile, reply_tokens, other_reply_tokens, rules):
    limits = [
        budget_for(profile, reply, exact=True, rules=rules).result_tokens
        for reply in (reply_tokens, other_reply_tokens)
    ]
    assert limits[0] == limits[1] <= profile.window_tokens * 0.3


@given(PROFILES, st.none() | st.integers(1, 10**6), COUNTS)
def test_nothing_is_over_a_guessed_room_and_its_shares_stay(profile, reply_tokens, tokens):
    rules = BudgetRules(max_request_chars=9)
    certain = budget_for(profile, reply_tokens, exact=True, rules=rules)
    guessed = budget_for(replace(profile, certainty=Certainty.GUESSED), reply_tokens, exact=True, rules=rules)
    assert guessed.admits(Size(tokens))
    assert not guessed.admits(Size(tokens, 10))
    assert (guessed.high_mark.tokens, guessed.high_mark.chars) == (None, 9)
    assert (guessed.room_tokens, guessed.result_tokens) == (certain.room_tokens, certain.result_tokens)
    assert guessed.usable_tokens == certain.usable_tokens
    assert (guessed.certain_room_tokens, certain.certain_room_tokens) == (None, certain.room_tokens)
    assert clamped_reply(guessed, 10**9, tokens) is None


@given(PROFILES, st.integers(0, 10**7), st.integers(0, 10**7), st.floats(0.1, 1.0))
def test_shares_are_of_what_every_limit_holds(profile, chars, limit_bytes, fill):
    plain = budget_for(profile, None, exact=True, rules=BudgetRules(fill=fill))
    limits = BudgetRules(fill=fill, max_request_chars=chars, max_request_bytes=limit_bytes)
    limited = budget_for(profile, None, exact=True, rules=limits)
    assert plain.usable_tokens == int(plain.room_tokens * fill)
    assert limited.usable_tokens <= min(plain.usable_tokens, chars // 4, limit_bytes // 4)


def test_a_refusal_makes_a_guessed_room_certain_however_large_it_is():
    assert Budget(100, room_is_guessed=True).for_one_send(500) == Budget(500, low_mark=1.0)
    assert Budget(100).for_one_send(500).room_tokens == 100


@pytest.mark.parametrize(
    ("profile", "reply", "may_be_lowered", "room"),
    [
        (ModelProfile("m", 16_000), None, True, 15_000),  # a sixteenth where nothing is said
        (ModelProfile("m", 1_000_000), None, True, 1_000_000 - 4_096),
        (ModelProfile("m", 16_000, None, 100), None, True, 15_900),
        (ModelProfile("m", 16_000), 200, True, 15_800),  # a small wish is all
        (ModelProfile("m", 16_000), 12_000, True, 15_000),
        (ModelProfile("m", 16_000), 3_000, False, 13_000),
        (ModelProfile("m", 16_000), 15_900, False, 11_904),  # nothing is cut for the limit alone
        (ModelProfile("m", 4_000), 4_000, False, 2_000),
    ],
)
def test_what_is_kept_for_the_reply_follows_from_its_limit_and_from_whether_that_may_be_lowered(
    profile, reply, may_be_lowered, room
):
    rules = BudgetRules(margin_tokens=0, clamp_reply=may_be_lowered)
    assert budget_for(profile, reply, exact=True, rules=rules).room_tokens == room


@pytest.mark.parametrize(
    ("certainty", "window", "rate"),
    [(Certainty.STATED, 64_000, 16_000), (Certainty.GUESSED, 64_000, 16_000), (Certainty.GUESSED, 8_000, 16_000)],
)
def test_a_rate_is_a_window_for_which_nothing_is_refused(certainty, window, rate):
    rules = BudgetRules(margin_tokens=0)
    profile = ModelProfile("m", window, certainty=certainty, rate_tokens=rate)
    found = budget_for(profile, None, exact=True, rules=rules)
    own = budget_for(ModelProfile("m", rate), None, exact=True, rules=rules)
    assert found.certain_room_tokens == own.room_tokens
    assert not found.refuses(Size(rate * 2))
    assert own.refuses(Size(rate * 2))
    assert clamped_reply(found, 32_000, 4_000) == rate - 4_000


@pytest.mark.parametrize("rate", ["rate_tokens", "prompt_rate_tokens"])
def test_a_rate_over_a_certain_window_changes_nothing(rate):
    rules, profile = BudgetRules(), ModelProfile("m", 16_000)
    found = budget_for(replace(profile, **{rate: 20_000}), None, exact=True, rules=rules)
    assert found == budget_for(profile, None, exact=True, rules=rules)


@pytest.mark.parametrize(
    ("certainty", "window", "rate", "room"),
    [(Certainty.STATED, 64_000, 16_000, 16_000), (Certainty.GUESSED, 8_000, 16_000, 16_000)],
)
def test_a_rate_of_prompts_is_an_input_limit_for_which_nothing_is_refused(certainty, window, rate, room):
    rules = BudgetRules(margin_tokens=0)
    profile = ModelProfile("m", window, certainty=certainty, prompt_rate_tokens=rate)
    found = budget_for(profile, None, exact=True, rules=rules)
    assert found.certain_room_tokens == room
    assert not found.refuses(Size(rate * 4))
    assert clamped_reply(found, 32_000, 4_000) is None


@pytest.mark.parametrize(
    ("certainty", "reply_tokens", "clamped"),
    [(Certainty.LEARNED, 8_000, 4_000), (Certainty.LEARNED, 7_000, None), (Certainty.STATED, 8_000, None)],
)
def test_a_reply_limit_that_may_stay_is_lowered_where_it_alone_fills_what_was_shown(certainty, reply_tokens, clamped):
    rules = BudgetRules(margin_tokens=0, clamp_reply=False)
    found = budget_for(ModelProfile("m", 8_000, certainty=certainty), reply_tokens, exact=True, rules=rules)
    assert clamped_reply(found, reply_tokens, 4_000) == clamped


def test_an_estimate_has_four_times_the_margin_of_an_exact_count():
    rooms = [
        budget_for(ModelProfile("m", 100_000), 1, exact=exact, rules=BudgetRules()).room_tokens
        for exact in (True, False)
    ]
    assert rooms == [98_999, 95_999]


def test_the_margin_is_largest_where_no_refusal_corrects_an_estimate():
    profiles = [ModelProfile(model="m", window_tokens=8_192, cuts_silently=cuts) for cuts in (False, True)]
    refusing, cutting = (budget_for(one, 500, exact=False, rules=BudgetRules()).room_tokens for one in profiles)
    assert (refusing, cutting) == (8_192 - 500 - 327, 8_192 - 500 - 491)
    exact = {budget_for(one, 500, exact=True, rules=BudgetRules()).room_tokens for one in profiles}
    assert exact == {8_192 - 500 - 81}


def test_a_mere_estimate_is_trusted_where_the_upstream_cuts_instead_of_refusing():
    for cuts, may_be_wrong in ((False, True), (True, False)):
        profile = ModelProfile(model="m", window_tokens=8_192, certainty=Certainty.STATED, cuts_silently=cuts)
        assert budget_for(profile, None, exact=False, rules=BudgetRules()).count_may_be_wrong == may_be_wrong


def test_a_result_may_hold_a_share_of_what_usually_stays_beside_system_text_and_tools():
    windows = (1_000, 2_000, 8_000, 32_000)
    shares = [
        budget_for(ModelProfile("m", window), None, exact=True, rules=BudgetRules()).result_tokens for window in windows
    ]
    assert shares == [37, 75, 1_800, 9_000]


def test_the_limits_of_a_request_in_characters_and_bytes_are_taken_over():
    rules = BudgetRules(fill=0.8, low_mark=0.5, max_request_chars=7, max_request_bytes=9)
    budget = budget_for(ModelProfile("m"), None, exact=True, rules=rules)
    assert (budget.room_chars, budget.room_bytes, budget.fill, budget.low_mark) == (7, 9, 0.8, 0.5)


@given(COUNTS, st.none() | COUNTS, st.none() | COUNTS, COUNTS, COUNTS, COUNTS)
def test_all_limits_hold_at_once(room, room_chars, room_bytes, tokens, chars, size):
    budget = Budget(room, room_chars, room_bytes)
    within = (
        tokens <= room and (room_chars is None or chars <= room_chars) and (room_bytes is None or size <= room_bytes)
    )
    assert budget.admits(Size(tokens, chars, size)) == within
    excess = budget.high_mark.excess(Size(tokens, chars, size))
    assert (excess is None) == within
    if excess is not None:
        assert budget.admits(Size(tokens, chars, size) - excess)
        assert min(excess.tokens, excess.chars, excess.bytes) >= 0


def test_a_share_of_the_room_is_a_share_of_each_limit():
    assert Budget(100, 200, 300, fill=0.5).high_mark.excess(Size(60, 90, 200)) == Size(10, 0, 50)


def test_a_share_beside_what_is_fixed_is_a_share_of_what_is_left():
    mark = Budget(100, 200).ceiling
    share = mark.share_beside(Size(60, 40, 7), 0.5)
    assert (share.tokens, share.chars, share.bytes) == (80, 120, None)
    assert mark.share_beside(Size(150), 0.5).tokens == 100


@given(COUNTS, COUNTS)
def test_a_second_send_has_never_more_room(room, goal):
    budget = Budget(room, 5, 6, fill=0.5).for_one_send(goal)
    assert budget.room_tokens == min(room, goal)
    assert (budget.fill, budget.low_mark, budget.room_chars, budget.room_bytes) == (1.0, 1.0, 5, 6)


@given(st.none() | st.integers(1, 300_000), st.none() | st.integers(0, 200_000), COUNTS, RATIOS)
def test_a_reply_limit_is_lowered_only_as_far_as_needed_and_never_under_the_floor(
    reply_tokens, together, prompt, ratio
):
    budget = Budget(1, max_reply_tokens=together, ratio=ratio, reserved_reply_tokens=4_096)
    lowered = clamped_reply(budget, reply_tokens, prompt)
    if reply_tokens is None or together is None:
        assert lowered is None
    elif lowered is None:
        assert reply_tokens <= 256 or reply_tokens + math.ceil(prompt * ratio) <= together
    else:
        assert 256 <= lowered < reply_tokens
        assert lowered == 256 or lowered + math.ceil(prompt * ratio) == together


@given(st.integers(512, 40_000), st.integers(1, 50_000), st.booleans(), RATIOS)
def test_a_prompt_that_fills_its_room_and_its_lowered_reply_are_within_the_smallest_window(
    window, reply_tokens, exact, ratio
):
    budget = budget_for(ModelProfile("m", window), reply_tokens, exact=exact, rules=BudgetRules(), ratio=ratio)
    lowered = clamped_reply(budget, reply_tokens, budget.room_tokens)
    assert budget.room_tokens * ratio + (lowered or reply_tokens) <= window


def test_the_smaller_of_the_operators_and_the_upstreams_characters_holds():
    upstreams = ModelProfile("m", input_chars=100_000)

    def chars(profile: ModelProfile, limit: int | None) -> int | None:
        return budget_for(profile, None, exact=True, rules=BudgetRules(max_request_chars=limit)).room_chars

    assert chars(ModelProfile("m"), None) is None
    assert chars(ModelProfile("m"), 90_000) == 90_000
    assert chars(upstreams, None) == chars(upstreams, 200_000) == 98_000
    assert chars(upstreams, 90_000) == 90_000


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 1.7]))
def test_sizes_are_reported_in_the_models_tokens(before, after, ratio):
    budget, report = Budget(10**6, ratio=ratio), MessageReport("tool", "ls", 100, 40)
    (reported,) = in_model_tokens([replace(report, tokens_before=before, tokens_after=after)], budget)
    assert (reported.tokens_before, reported.tokens_after) == (budget.model_tokens(before), budget.model_tokens(after))
    assert replace(reported, tokens_before=0, tokens_after=0) == replace(report, tokens_before=0, tokens_after=0)
