"""Reports and verdicts, as values."""

from __future__ import annotations

import pytest

from proxy.core.overflow import ErrorReport, Exactness, Scope, Unit, Verdict, VerdictKind


@pytest.mark.parametrize(("status", "is_success"), [(199, False), (200, True), (299, True), (300, False), (400, False)])
def test_a_success_is_recognised_by_the_status(status, is_success):
    assert ErrorReport(status).is_success is is_success


@pytest.mark.parametrize("kind", VerdictKind)
def test_only_a_refusal_of_the_prompt_with_its_reply_or_without_says_that_the_request_is_too_long(kind):
    assert Verdict(kind).is_overflow is (kind in (VerdictKind.PROMPT, VerdictKind.PROMPT_PLUS_REPLY))


@pytest.mark.parametrize(
    ("kind", "limit", "requested", "is_over"),
    [
        (VerdictKind.RATE, 6_000, 14_810, True),
        (VerdictKind.RATE, 6_000, 6_000, False),
        (VerdictKind.RATE, 6_000, None, False),
        (VerdictKind.RATE, None, 14_810, False),
        (VerdictKind.PROMPT, 6_000, 14_810, False),
    ],
)
def test_a_rate_that_one_request_exceeds_is_recognised_by_its_numbers(kind, limit, requested, is_over):
    assert Verdict(kind, limit=limit, requested=requested).is_over_rate is is_over


@pytest.mark.parametrize(
    ("stated", "learnable"),
    [
        ({"unit": Unit.TOKENS, "limit_scope": Scope.WINDOW}, True),
        ({"unit": Unit.TOKENS, "limit_scope": Scope.INPUT}, True),
        ({"unit": Unit.TOKENS, "limit_scope": Scope.UNKNOWN}, False),
        ({"unit": Unit.CHARS, "limit_scope": Scope.INPUT}, True),
        ({"unit": Unit.CHARS, "limit_scope": Scope.WINDOW}, False),
        ({"unit": None, "limit_scope": Scope.WINDOW}, False),
        ({"unit": Unit.TOKENS, "limit_scope": Scope.WINDOW, "limit_exactness": Exactness.ABOUT}, False),
        ({"unit": Unit.TOKENS, "limit_scope": Scope.WINDOW, "limit_exactness": Exactness.AT_LEAST}, False),
        ({"unit": Unit.TOKENS, "limit_scope": Scope.WINDOW, "may_be_echo": True}, False),
    ],
)
def test_a_limit_is_kept_where_it_is_exact_its_scope_is_known_and_no_client_may_have_written_it(stated, learnable):
    assert Verdict(VerdictKind.PROMPT, limit=8_192, **stated).limit_is_learnable is learnable
    assert Verdict(VerdictKind.PROMPT, **stated).limit_is_learnable is False
