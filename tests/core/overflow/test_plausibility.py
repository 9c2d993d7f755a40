"""`plausibility`: what the numbers allow, those that were printed and our own."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.overflow import Exactness, Scope, Sent, Unit, Verdict, VerdictKind
from proxy.core.overflow.numbers import Numbers
from proxy.core.overflow.plausibility import plausible, with_figures

CLAIM = Verdict(VerdictKind.PROMPT, confidence=0.8)


@pytest.mark.parametrize(
    ("prompt", "reply", "kind"),
    [
        (9_000, 500, VerdictKind.PROMPT),
        (8_000, 500, VerdictKind.PROMPT_PLUS_REPLY),
        (8_000, 9_000, VerdictKind.REPLY_ONLY),
        (9_000, 9_000, VerdictKind.PROMPT),
        (8_000, None, VerdictKind.PROMPT),
        (None, 9_000, VerdictKind.REPLY_ONLY),
    ],
)
def test_numbers_prove_the_kind_whatever_was_claimed(prompt: int | None, reply: int | None, kind: VerdictKind):
    verdict = with_figures(CLAIM, Numbers(limit=8_192, prompt=prompt, reply=reply))
    assert verdict.kind is kind
    assert verdict.limit == (None if kind is VerdictKind.REPLY_ONLY else 8_192)


def test_a_sum_without_a_reply_is_the_prompt_and_what_bounds_a_sum_is_the_window():
    claim = Verdict(VerdictKind.PROMPT_PLUS_REPLY)
    assert with_figures(claim, Numbers(reply=0)).kind is VerdictKind.PROMPT
    assert with_figures(claim, Numbers(limit=4_096)).limit_scope is Scope.WINDOW


@pytest.mark.parametrize(
    ("figures", "prompt", "requested"),
    [
        (Numbers(requested=5_000, reply=1_000), 4_000, 5_000),
        (Numbers(prompt=4_000, reply=1_000), 4_000, 5_000),
        (Numbers(requested=5_000, scope=Scope.INPUT), 5_000, 5_000),
        (Numbers(requested=5_000, scope=Scope.WINDOW), None, 5_000),
        (Numbers(requested=1_000, reply=1_000), None, 1_000),
    ],
)
def test_a_third_size_follows_from_two(figures: Numbers, prompt: int | None, requested: int):
    verdict = with_figures(CLAIM, figures)
    assert (verdict.prompt, verdict.requested) == (prompt, requested)


def test_only_a_claim_of_length_is_held_against_our_own_numbers():
    other = Verdict(VerdictKind.RATE, limit=10**9, requested=10**9)
    assert plausible(other, Sent(10)) == other
    assert plausible(CLAIM, Sent()) == CLAIM


def test_a_number_three_times_off_is_about_something_else():
    claim = Verdict(
        VerdictKind.PROMPT, limit=3_000, prompt=3_300, requested=3_300, unit=Unit.TOKENS, limit_scope=Scope.INPUT
    )
    assert plausible(claim, Sent(1_100)) == claim
    too_small = plausible(claim, Sent(900))
    assert (too_small.limit, too_small.prompt, too_small.requested) == (None, None, None)
    assert (plausible(claim, Sent(9_901)).limit, plausible(claim, Sent(9_901)).prompt) == (3_000, None)


def scope_of(sent: Sent, **figures: Any) -> Scope:
    """What a limit of 3 000 tokens applies to, of which the words say nothing."""
    said = {"unit": Unit.TOKENS, "upstream_message": "over 3000"} | figures
    return plausible(Verdict(VerdictKind.PROMPT, limit=3_000, **said), sent).limit_scope


def test_a_limit_that_the_prompt_reaches_is_one_of_the_input_whatever_its_clause_calls_it():
    assert scope_of(Sent(), prompt=3_000, requested=3_000) is Scope.INPUT
    assert scope_of(Sent(), requested=3_000) is Scope.INPUT
    assert scope_of(Sent(reply_tokens=500), requested=3_400) is Scope.WINDOW
    assert scope_of(Sent(reply_tokens=500), requested=3_600) is Scope.INPUT
    assert scope_of(Sent(), requested=2_999) is Scope.UNKNOWN


def test_without_a_count_our_own_has_to_reach_a_limit_that_is_the_only_number():
    assert scope_of(Sent(3_000)) is Scope.INPUT
    assert scope_of(Sent(2_999)) is scope_of(Sent()) is Scope.UNKNOWN
    assert scope_of(Sent(4_000), upstream_message="4000, 3000") is Scope.UNKNOWN
    assert scope_of(Sent(4_000), requested=3_900, exactness=Exactness.ABOUT) is Scope.INPUT


def test_a_limit_in_characters_or_of_a_rate_is_none_of_the_input():
    assert scope_of(Sent(), prompt=3_000, requested=3_000, unit=Unit.CHARS) is Scope.UNKNOWN
    rate = Verdict(VerdictKind.RATE, limit=3_000, requested=4_000, unit=Unit.TOKENS)
    assert plausible(rate, Sent(4_000)) == rate


def test_a_count_that_went_no_further_than_the_limit_may_be_far_under_ours():
    claim = Verdict(VerdictKind.PROMPT, limit=3_000, prompt=3_001, requested=3_001, exactness=Exactness.AT_LEAST)
    assert plausible(claim, Sent(50_000)).prompt == 3_001


def test_a_request_is_long_or_short_by_what_the_model_surely_takes():
    assert Sent(1_844, window_tokens=128_000, window_is_certain=False).is_long
    assert Sent(1_000, window_tokens=1_100, window_is_certain=False).is_short
    assert Sent(1_000, window_tokens=1_100).is_long
    assert Sent(None, window_tokens=1_100).share is None
    assert Sent(1_000).share is None


def test_a_vague_claim_without_numbers_is_doubted_of_a_short_request():
    short = Sent(1_000, window_tokens=128_000)
    assert plausible(CLAIM, short).kind is VerdictKind.UNKNOWN
    assert plausible(Verdict(VerdictKind.PROMPT, confidence=0.95), short).is_overflow
    assert plausible(Verdict(VerdictKind.PROMPT, confidence=0.8, excess=9), short).is_overflow
