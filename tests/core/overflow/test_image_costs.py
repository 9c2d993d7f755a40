from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import base64_of, png

from proxy.core.overflow.image_costs import LARGEST_IMAGE_TOKENS, costs_seen, images_in
from proxy.core.tokens.counters import ByteClassCounter
from proxy.core.tokens.images import image_key, tokens_of_image, with_images_of
from proxy.wire.chat_completions.message import ChatMessage

TEXTS = ByteClassCounter()
SCREEN, SMALL = ((1_280, 800), None), ((640, 480), None)
ONE, OTHER = image_key(*SCREEN), image_key(*SMALL)


def test_images_are_told_by_their_size_and_detail():
    def message(*parts):
        return ChatMessage.read(json.dumps({"role": "user", "content": list(parts)}).encode())

    def image(width, height, **more):
        url = f"data:image/png;base64,{base64_of(png(width, height))}"
        return {"type": "image_url", "image_url": {"url": url, **more}}

    found = images_in(
        [
            message(image(64, 48), {"type": "text", "text": "look"}, image(64, 48)),
            message(image(64, 48, detail="low")),
            message({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
            ChatMessage.read(b'{"role":"user","content":"image_url"}'),
        ]
    )
    assert found == {((64, 48), None): 2, ((64, 48), "low"): 1, (None, None): 1}


@given(st.integers(1, 30), st.integers(200, 20_000), st.integers(0, 5_000))
def test_what_one_size_costs_is_seen_and_then_believed(count, cost, text):
    counter = with_images_of("gpt-4o", TEXTS)
    estimate = text + count * tokens_of_image(counter, *SCREEN)
    seen = costs_seen({SCREEN: count}, counter, estimate, text + count * cost, 1.0)
    if not seen:
        assert 0.85 * tokens_of_image(counter, *SCREEN) <= cost <= 1.02 * tokens_of_image(counter, *SCREEN)
        return
    assert seen.keys() == {ONE}
    assert cost <= seen[ONE] < cost + 16
    learned = with_images_of("gpt-4o", TEXTS, tuple(seen.items()))
    assert tokens_of_image(learned, *SCREEN) == seen[ONE]
    estimate = text + count * seen[ONE]
    assert costs_seen({SCREEN: count}, learned, estimate, text + count * cost, 1.0) == {}, "it is no news"


def test_a_new_size_is_told_apart_from_those_that_are_known():
    counter = with_images_of("gpt-4o", TEXTS, ((ONE, 1_600),))
    estimate = 100 + 3 * 1_600 + 2 * tokens_of_image(counter, *SMALL)
    assert costs_seen({SCREEN: 3, SMALL: 2}, counter, estimate, 100 + 3 * 1_600 + 2 * 2_000, 1.0) == {OTHER: 2_000}


@pytest.mark.parametrize(
    ("estimate", "prompt", "ratio"),
    [
        (1_205, 1_600, None),  # a hundred tokens of text may be off by thirty
        (11_105, 14_000, None),  # and ten thousand by three thousand
        (1_105, 50_000, 1.0),  # more than any image costs
        (1_205, 50, 1.0),  # less than the text alone
    ],
)
def test_what_may_be_something_else_says_nothing_of_images(estimate, prompt, ratio):
    seen = costs_seen({SCREEN: 1}, with_images_of("gpt-4o", TEXTS), estimate, prompt, ratio)
    assert seen == ({ONE: 1_504} if estimate == 1_205 and prompt == 1_600 else {})
    assert all(cost <= LARGEST_IMAGE_TOKENS for cost in seen.values())


def test_a_prompt_without_images_says_nothing_of_them():
    assert costs_seen({}, with_images_of("gpt-4o", TEXTS), 1_000, 2_000, 1.0) == {}
