from __future__ import annotations

import re

import pytest

from proxy.core.models.profile import Modality
from proxy.core.overflow import words

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
