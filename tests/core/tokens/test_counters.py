from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.tokens.byte_weights import DEEPSEEK, GENERAL, GLM, KIMI, QWEN
from proxy.core.tokens.counters import ByteClassCounter

TEXTS = st.text(st.characters(exclude_categories=()), max_size=400) | st.text("abAB01 \n.é令ก😀\ud800", max_size=400)
COUNTER = ByteClassCounter()
FAMILIES = [QWEN, DEEPSEEK, GLM, KIMI]
EVERY = st.sampled_from([ByteClassCounter(weights) for weights in (GENERAL, *FAMILIES)])


def test_no_text_has_no_tokens():
    assert COUNTER.count("") == 0


def test_the_estimate_says_that_it_is_one():
    assert (COUNTER.name, COUNTER.exact) == ("bytes", False)


def test_two_estimates_that_may_differ_have_two_names():
    assert len({ByteClassCounter(weights).name for weights in (GENERAL, *FAMILIES)}) == len(FAMILIES) + 1


@given(EVERY, TEXTS, TEXTS)
def test_joining_two_texts_adds_at_most_one_token(counter, first, second):
    assert counter.count(first + second) <= counter.count(first) + counter.count(second) + 1


@given(EVERY, TEXTS, TEXTS)
def test_a_longer_text_never_has_fewer_tokens(counter, text, more):
    assert counter.count(text) <= counter.count(text + more)
    assert counter.count(text) <= counter.count(more + text)
