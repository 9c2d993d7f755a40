"""The vocabulary and the codes of refusals."""

from __future__ import annotations

import re

import pytest

from proxy.core.models import Modality
from proxy.core.overflow import VerdictKind, words
from proxy.core.overflow.words import as_words, meaning

CLASSES = {name: found for name, found in vars(words).items() if isinstance(found, re.Pattern)}


def test_latin_words_are_found_whole_and_chinese_ones_anywhere():
    assert words.TOKEN.search("8192 tokens.")
    assert not words.TOKEN.search("tokenizer")
    assert words.CONTEXT.search("超过上下文长度")
    assert words.LENGTH.search("max length")
    assert not words.LENGTH.search("lengthen")


@pytest.mark.parametrize(
    ("text", "is_the_window"),
    [
        ("the context window", True),
        ("n_ctx", True),
        ("context deadline", False),
        ("for additional context", False),
        ("security context", False),
    ],
)
def test_a_context_that_is_no_window_is_not_taken_for_one(text, is_the_window):
    assert bool(words.CONTEXT.search(text)) is is_the_window


@pytest.mark.parametrize("modality", sorted(words.KINDS_OF_MEDIA))
def test_each_kind_of_media_has_its_word_in_english_and_chinese(modality):
    named = {
        Modality.VISION: ("image input", "不支持图片"),
        Modality.AUDIO: ("audio input", "不支持音频"),
        Modality.VIDEO: ("video input", "不支持视频"),
        Modality.FILE: ("a pdf", "不支持文件"),
    }
    for text in named[modality]:
        assert [kind for kind, word in words.KINDS_OF_MEDIA.items() if word.search(text)] == [modality]


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"ALLOWED_MEDIA"}))
def test_no_class_has_a_gap_that_repeats(name):
    assert not re.search(r"(?<!\\)\.[*+]", CLASSES[name].pattern)


TOO_LONG = """
    context_length_exceeded context_window_exceeded model_context_window_exceeded exceed_context_size_error
    model_max_prompt_tokens_exceeded max_prompt_tokens_exceeded tokens_limit_reached tokens_too_long
    too_many_prompt_tokens input_too_long prompt_too_long prompt_limit token_quantity_exceeded
    ContextWindowExceededError PromptTooLong OutofContextError characters_too_long
"""


@pytest.mark.parametrize("code", TOO_LONG.split())
def test_a_code_that_means_too_long_proves_it(code: str):
    assert meaning(code) is VerdictKind.PROMPT


OTHERS = {
    VerdictKind.UNKNOWN: "invalid_request_error InvalidParameter 400 context_error token_limit_exceeded "
    "input_token_limit_exceeded_per_day",
    VerdictKind.RATE: "too_many_tokens_error rate_limit_exceeded",
    VerdictKind.QUOTA: "insufficient_quota",
    VerdictKind.POLICY: "content_filter",
    VerdictKind.AUTH: "invalid_api_key",
    VerdictKind.COUNT: "array_above_max_length",
    VerdictKind.FIELD: "string_above_max_length",
    VerdictKind.BYTES: "request_too_large",
    VerdictKind.TRANSIENT: "overloaded_error",
}


@pytest.mark.parametrize(("kind", "codes"), OTHERS.items())
def test_other_codes_mean_other_things_or_nothing(kind: VerdictKind, codes: str):
    assert {code: meaning(code) for code in codes.split()} == dict.fromkeys(codes.split(), kind)


def test_a_code_is_read_as_words():
    assert as_words("InternalError.Algo-InvalidParameter") == "internal_error_algo_invalid_parameter"
