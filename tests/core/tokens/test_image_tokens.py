from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import base64_of, png

from proxy.core.conversation.size import size_of
from proxy.core.tokens.counters import ByteClassCounter
from proxy.core.tokens.image_tokens import ImageCounter, image_tokens, tokens_of_image, with_images_of
from proxy.wire.chat_completions.message import ChatMessage

TEXTS = ByteClassCounter()


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (1_920, 1_080), 1_105),
        ("some-model", (1_920, 1_080), 1_105),
        ("claude-sonnet-4", (1_000, 1_000), 1_334),
        ("claude-sonnet-4", (1_920, 1_080), 1_600),
        ("claude-sonnet-4", (8_000, 100), 41),
        ("anthropic/claude-3.5-haiku", (200, 200), 54),
        ("gemini-2.0-flash", (300, 300), 1_100),
        ("gemini-2.0-flash", (3_000, 3_000), 4_128),
        ("qwen2.5-vl-72b-instruct", (1_920, 1_080), 69 * 39 + 2),
        ("Qwen/Qwen2-VL-7B-Instruct", (10, 10), 6),
        ("qwen-vl-max", (20_000, 20_000), 16_386),
    ],
)
def test_an_image_costs_what_the_models_maker_says(model, size, tokens):
    assert tokens_of_image(with_images_of(model, TEXTS), size, None) == tokens


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4", "gemini-2.5-pro", "qwen-vl-max"])
def test_an_image_of_unknown_size_costs_what_a_usual_one_does(model):
    assert tokens_of_image(with_images_of(model, TEXTS), None, None) == 765


@given(st.integers(1, 65_535), st.integers(1, 65_535), st.sampled_from(["claude-x", "gemini-x", "qwen-x", "gpt-x"]))
def test_every_image_costs_something_and_not_more_than_the_window_of_a_small_model(width, height, model):
    assert 0 < tokens_of_image(with_images_of(model, TEXTS), (width, height), None) < 2_000_000


def test_texts_are_counted_as_before_and_images_of_messages_by_the_rule():
    counter = with_images_of("qwen-vl-max", TEXTS)
    assert isinstance(counter, ImageCounter)
    assert (counter.name, counter.exact, counter.count("def parse(line):")) == ("bytes", False, 5)
    assert with_images_of("gpt-4o", TEXTS) is TEXTS
    url = {"url": f"data:image/png;base64,{base64_of(png(560, 280))}"}
    message = ChatMessage.read(
        json.dumps({"role": "user", "content": [{"type": "image_url", "image_url": url}]}).encode()
    )
    assert size_of(message, counter).tokens == 4 + 20 * 10 + 2


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
