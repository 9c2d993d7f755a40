from __future__ import annotations

import pytest

from proxy.core.overflow.evidence import weigh
from proxy.core.overflow.grammar import Strength
from proxy.core.overflow.report import ErrorCode, ErrorReport, ErrorText, Stated
from proxy.core.overflow.verdict import Unit, VerdictKind

PROVEN = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
VAGUE = "The request is invalid."
RATE = "Rate limit reached, please try again in 20 seconds."


def evidence_of(*texts: str, codes: tuple[str, ...] = (), stated: Stated = Stated()):  # noqa: B008 - it is frozen
    return weigh(
        ErrorReport(
            400,
            texts=tuple(ErrorText(f"error.{number}", text) for number, text in enumerate(texts)),
            codes=tuple(ErrorCode("error.code", code) for code in codes),
            stated=stated,
        )
    )


def test_of_several_texts_the_one_that_says_most_is_the_best_wherever_it_stands():
    for texts in ((PROVEN, VAGUE), (VAGUE, PROVEN)):
        best = evidence_of(*texts).best
        assert best is not None
        assert best.said.text == PROVEN
        assert best.strength is Strength.STRONG
        assert best.figures.limit == 8_192


def test_a_text_that_every_relay_repeats_is_read_once():
    assert [text.said.path for text in evidence_of(PROVEN, PROVEN, VAGUE).texts] == ["error.0", "error.2"]


def test_texts_beyond_all_reason_are_not_read():
    assert evidence_of("x " * 10_000).texts == ()
    assert [text.said.text for text in evidence_of("too long " * 3_000, VAGUE).texts] == [VAGUE]


@pytest.mark.parametrize("named", ["context_length_exceeded", "ContextWindowExceededError"])
def test_a_code_proves_it_as_a_code_and_in_a_text(named):
    assert evidence_of(VAGUE, codes=(named,)).is_proven
    assert evidence_of(f"litellm.{named}: no").is_proven
    assert not evidence_of(VAGUE, codes=("invalid_request_error",)).is_proven


def test_what_other_codes_mean_stands_against_it():
    assert evidence_of(codes=("rate_limit_exceeded", "400")).refusals == {VerdictKind.RATE}


def test_what_the_other_sentences_refuse_stands_against_it():
    assert evidence_of(RATE).vetoes == {VerdictKind.RATE}
    assert evidence_of(PROVEN).vetoes == frozenset()


def test_a_code_of_one_provider_lifts_only_a_text_that_speaks_of_a_bound_in_tokens():
    text = "token 上限"
    with_code, without = evidence_of(text, codes=("1261",)).best, evidence_of(text).best
    assert with_code is not None
    assert without is not None
    assert with_code.strength > without.strength


def test_sizes_that_an_answer_states_are_tokens_and_prove_it_where_they_break_the_limit():
    found = evidence_of(VAGUE, stated=Stated(limit=100, prompt=120, limit_path="error.n_ctx"))
    assert found.is_proven
    assert (found.stated.unit, found.limit_path) == (Unit.TOKENS, "error.n_ctx")
    assert not evidence_of(VAGUE, stated=Stated(limit=100, prompt=80)).is_proven
    assert evidence_of(VAGUE).stated.unit is None


def test_an_answer_without_a_text_has_no_best_one():
    assert evidence_of().best is None
