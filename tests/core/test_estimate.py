from __future__ import annotations

import base64
import inspect
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import conversation, jsontext, model_names
from proxy.core.estimate import ByteClassCounter, image_tokens

TEXTS = st.text(st.characters(exclude_categories=()), max_size=400) | st.text("abAB01 \n.é令ก😀\ud800", max_size=400)
COUNTER = ByteClassCounter()
CODE = "".join(map(inspect.getsource, (conversation, jsontext, model_names)))


def test_no_text_has_no_tokens():
    assert COUNTER.count("") == 0


def test_it_says_that_it_is_an_estimate():
    assert (COUNTER.name, COUNTER.exact) == ("bytes", False)


@given(TEXTS, TEXTS)
def test_joining_two_texts_adds_at_most_one_token(first, second):
    assert COUNTER.count(first + second) <= COUNTER.count(first) + COUNTER.count(second) + 1


@given(TEXTS, TEXTS)
def test_a_longer_text_never_has_fewer_tokens(text, more):
    assert COUNTER.count(text) <= COUNTER.count(text + more)


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


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [  # the first three: the examples of OpenAI's guide
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((4096, 8192), "low", 85),
        ((512, 512), None, 255),
        ((513, 512), "auto", 425),
        ((1, 1), None, 255),
        ((65_535, 1), None, 765),
        ((None, None), None, 765),
        ((None, 512), "high", 765),
        ((-4, 512), "high", 765),
        ((0, 0), "low", 85),
    ],
)
def test_an_image_costs_its_tiles(size, detail, tokens):
    assert image_tokens(*size, detail) == tokens


@given(st.integers(1, 65_535), st.integers(1, 65_535))
def test_an_image_costs_the_same_turned_and_never_more_than_eight_tiles(width, height):
    tokens = image_tokens(width, height, None)
    assert tokens == image_tokens(height, width, None)
    assert 255 <= tokens <= 85 + 170 * 8
