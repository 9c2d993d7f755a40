"""`echo`: what a client wrote is no evidence, however its upstream repeats it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import ErrorReport, ErrorText, Verdict, VerdictKind, judge
from proxy.core.overflow.echo import may_be_echoed, own_words

SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


@dataclass(frozen=True)
class Written:
    """A request that is its text."""

    text: str
    hides_letters: bool = False

    def holds(self, text: str) -> bool:
        return text in self.text


def refusal(text: str = SENTENCE.format(limit=4096, count=9000)) -> Verdict:
    return judge(ErrorReport(400, texts=(ErrorText("", text),)))


def test_numbers_that_only_the_upstream_wrote_are_its_own():
    assert not may_be_echoed(refusal(), Written("Why 4096, and not 9000? The length is 2048 tokens."))
    assert not may_be_echoed(refusal("prompt is too long"), Written("prompt is too long"))


@pytest.mark.parametrize(
    "content",
    [
        SENTENCE.format(limit=4096, count=9000),
        "maximum context length is 4096",
        "say 4096 tokens. then",
        "resulted in 9000 of them",
        "中文 4096 tokens. 中文",
    ],
)
def test_numbers_with_a_word_beside_them_that_stand_in_the_request_may_be_the_clients(content: str):
    assert may_be_echoed(refusal(), Written(content))


def test_grouped_numbers_are_looked_for_as_they_were_printed():
    verdict = refusal("maximum context length is 4,096 tokens, you sent 9,000")
    assert may_be_echoed(verdict, Written("of 4,096 tokens,"))
    assert not may_be_echoed(verdict, Written("of 4096 tokens,"))


def test_what_a_request_hides_is_taken_for_anything():
    assert may_be_echoed(refusal(), Written("", hides_letters=True))
    assert not may_be_echoed(Verdict(VerdictKind.PROMPT), Written("", hides_letters=True)), "there is no number"


def test_own_words_are_what_the_request_does_not_hold():
    told = "Invalid value: 'my prompt is too long for you'."
    assert own_words(told, Written("my prompt is too long for you")) == "Invalid value: 'my  you'."
    assert own_words("prompt is too long for you", Written("prompt is too long for you")) == ""


def test_words_of_the_request_are_no_evidence_beside_the_upstreams_own():
    told = "Unknown role: 'the prompt is too long for this model'."
    request = Written("the prompt is too long for this model")
    report = ErrorReport(400, texts=(ErrorText("", told),))
    assert judge(report).is_overflow
    assert not judge(report, request=request).is_overflow
    alone = judge(ErrorReport(400, texts=(ErrorText("", request.text),)), request=request)
    assert (alone.is_overflow, alone.may_be_echo) == (True, True)


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    verdict = refusal(text)
    assert verdict.limit == limit
    assert may_be_echoed(verdict, Written(before + text + after))
