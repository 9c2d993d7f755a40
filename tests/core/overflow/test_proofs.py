"""Echoes, silent cuts and the cost of images."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import base64_of, png

from proxy.core.overflow import Counted, ErrorReport, ErrorText, Verdict, VerdictKind, judge
from proxy.core.overflow.proofs import (
    LARGEST_IMAGE_TOKENS,
    SMALLEST_WINDOW_TOKENS,
    costs_seen,
    images_in,
    may_be_echoed,
    own_words,
    window_of_a_cut,
)
from proxy.core.tokens.counters import ByteClassCounter
from proxy.core.tokens.images import image_key, tokens_of_image, with_images_of
from proxy.wire.chat_completions.message import ChatMessage

SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


@dataclass(frozen=True)
class Written:
    """A request that is its text."""

    text: str
    hides_letters: bool = False

    def holds(self, text: str) -> bool:
        return text in self.text


def refusal(text: str = SENTENCE.format(limit=4096, count=9000)) -> Verdict:
    return judge(ErrorReport(400, texts=[ErrorText("", text)]))


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
def test_labelled_numbers_quoted_in_the_request_may_be_the_clients(content: str):
    assert may_be_echoed(refusal(), Written(content))


def test_grouped_numbers_are_looked_for_as_they_were_printed():
    verdict = refusal("maximum context length is 4,096 tokens, you sent 9,000")
    assert may_be_echoed(verdict, Written("of 4,096 tokens,"))
    assert not may_be_echoed(verdict, Written("of 4096 tokens,"))


def test_what_a_request_hides_is_taken_for_anything():
    assert may_be_echoed(refusal(), Written("", hides_letters=True))
    assert not may_be_echoed(Verdict(VerdictKind.PROMPT), Written("", hides_letters=True)), "there is no number"


def test_own_words_are_what_the_request_does_not_hold():
    reported = "Invalid value: 'my prompt is too long for you'."
    assert own_words(reported, Written("my prompt is too long for you")) == "Invalid value: 'my  you'."
    assert own_words("prompt is too long for you", Written("prompt is too long for you")) == ""


def test_words_of_the_request_are_no_evidence_beside_the_upstreams_own():
    reported = "Unknown role: 'the prompt is too long for this model'."
    request = Written("the prompt is too long for this model")
    report = ErrorReport(400, texts=[ErrorText("", reported)])
    assert judge(report).is_overflow
    assert not judge(report, request=request).is_overflow
    alone = judge(ErrorReport(400, texts=[ErrorText("", request.text)]), request=request)
    assert (alone.is_overflow, alone.may_be_echo) == (True, True)


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    verdict = refusal(text)
    assert verdict.limit == limit
    assert may_be_echoed(verdict, Written(before + text + after))


COUNTS = st.integers(0, 300_000)
RATIOS = st.none() | st.floats(0.5, 3.0)


@pytest.mark.parametrize(
    ("estimate", "counted", "ratio", "own", "window"),
    [
        # A conversation in plain words, estimated by a ratio that denser ones taught, lands on 22 * 1 024 by chance.
        (26_140, Counted(22_528, 1), 0.99, False, None),
        (34_000, Counted(22_528, 1), 0.99, False, 22_528),
        # TradingAgents#168: prompt and completion are 4 096 to the token.
        (20_000, Counted(3_400, 696), None, False, 4_096),
        (20_000, Counted(4_096, 300), None, False, 4_096),
        (5_000, Counted(4_000, 96), 1.0, True, 4_096),
        # English prose of 10 000 tokens is estimated at 14 684: no landing makes that a cut.
        (14_684, Counted(9_984, 256), None, True, None),
        (4_400, Counted(4_000, 96), 1.0, True, None),
        # Ollama's runner keeps half of the window and two tokens, or three with a first one of its own: ollama#17889,
        # #3839. Half of the window is not the window.
        (20_000, Counted(2_050, 99), None, False, 4_096),
        (20_000, Counted(4_099, 99), None, False, 8_192),
        (160_689, Counted(16_387, 500), None, False, 32_768),
        (30_000, Counted(9_218, 20), 1.0, False, 18_432),
        (6_500, Counted(4_098, 99), None, False, None),
        # Ollama leaves out whole messages, so that the count is anything under its window.
        (45_000, Counted(3_210, 99), None, True, 4_096),
        (45_000, Counted(9_001, 99), None, True, 16_384),
        (45_000, Counted(3_210, 99), None, False, None),
        (45_000, Counted(12_000, 99), None, True, None),
        (45_000, Counted(12_000, 99), 1.0, True, 16_384),
        # A ratio that JSON taught: the same estimator expects twice as many tokens of Arabic, and thrice of Hindi.
        (45_000, Counted(16_000, 99), 0.99, True, None),
        (45_000, Counted(9_001, 99), 0.99, True, 16_384),
        # What was cached is counted apart by some.
        (45_000, Counted(1_000, 99, cached=43_000), 1.0, True, None),
        (45_000, Counted(10_000, 99, cached=15_000), 1.0, True, None),
        (45_000, Counted(0, 99), 1.0, True, None),
        (4_000, Counted(500, 99), 1.0, True, None),
    ],
)
def test_a_silent_cut_is_recognised_by_the_count(
    estimate: int, counted: Counted, ratio: float | None, own: bool, window: int | None
) -> None:
    assert window_of_a_cut(estimate, counted, ratio, is_exact=ratio == 1.0, may_be_far=own) == window


@given(COUNTS, st.builds(Counted, COUNTS, COUNTS, COUNTS), RATIOS, st.booleans(), st.booleans())
def test_a_window_that_is_concluded_holds_what_was_counted_and_not_what_was_sent(estimate, counted, ratio, exact, own):
    window = window_of_a_cut(estimate, counted, ratio, is_exact=exact, may_be_far=own)
    if window is not None:
        assert counted.prompt <= window < estimate * (ratio or 1.0)
        assert window % 1_024 == 0
        assert window >= SMALLEST_WINDOW_TOKENS or window in (counted.prompt, counted.prompt + counted.reply)


@given(COUNTS, st.floats(0.9, 3.0), RATIOS, st.booleans(), st.booleans())
def test_an_upstream_that_counts_what_was_expected_has_cut_nothing(estimate, share, ratio, exact, own):
    prompt = int(estimate * (ratio or 1.0) * share) + 1
    assert window_of_a_cut(estimate, Counted(prompt), ratio, is_exact=exact, may_be_far=own) is None


TEXTS = ByteClassCounter()
SCREEN, SMALL = ((1_280, 800), None), ((640, 480), None)
ONE, OTHER = image_key(*SCREEN), image_key(*SMALL)


def test_images_are_identified_by_size_and_detail():
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


def test_a_new_size_is_distinguished_from_known_ones():
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
