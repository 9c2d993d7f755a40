"""Echoes, silent cuts and what identifies an image."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.media_samples import base64_of, png

from proxy.core.overflow import (
    Counted,
    ErrorReport,
    ErrorText,
    Holds,
    Verdict,
    VerdictKind,
    images_in,
    judge,
    window_of_a_cut,
)
from proxy.core.overflow.proofs import SMALLEST_WINDOW_TOKENS, may_be_echoed
from proxy.wire.chat_completions import ChatMessage

SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


def written(request: str) -> Holds:
    """A request that is its text."""
    return lambda text: text in request


def refusal(text: str = SENTENCE.format(limit=4096, count=9000)) -> Verdict:
    return judge(ErrorReport(400, texts=[ErrorText("", text)]))


def test_numbers_that_only_the_upstream_wrote_are_its_own():
    assert not may_be_echoed(refusal(), written("Why 4096, and not 9000? The length is 2048 tokens."))
    assert not may_be_echoed(refusal("prompt is too long"), written("prompt is too long"))


@pytest.mark.parametrize(
    ("content", "is_echo"),
    [
        (SENTENCE.format(limit=4096, count=9000), True),
        ("of 4096 tokens. It resulted in 9000 of them", True),
        ("中文 4096 tokens. 中文 9000 tokens. 中文", True),
        ("maximum context length is 4096", False),
        ("resulted in 9000 of them", False),
        (SENTENCE.format(limit=4096, count=9001), False),
        (SENTENCE.format(limit=8192, count=9000), False),
    ],
)
def test_numbers_may_be_the_clients_if_the_request_holds_all_of_them_with_a_word_beside(content: str, is_echo: bool):
    assert may_be_echoed(refusal(), written(content)) is is_echo


def test_a_number_that_is_not_printed_need_not_be_held():
    text = "maximum context length is 4096 tokens. You requested 9000 tokens (8000 in the messages, 1000 for the reply)"
    verdict = refusal(text)
    assert (verdict.limit, verdict.requested, verdict.prompt) == (4096, 9000, 8000)
    stated = replace(verdict, prompt=8_001)
    assert may_be_echoed(stated, written("requested 9000 of, length is 4096"))
    assert not may_be_echoed(verdict, written("requested 9000 of, length is 4096"))


def test_grouped_numbers_are_looked_for_as_they_were_printed():
    verdict = refusal("maximum context length is 4,096 tokens, you sent 9,000")
    assert may_be_echoed(verdict, written("of 4,096 tokens, sent 9,000"))
    assert not may_be_echoed(verdict, written("of 4096 tokens, sent 9000"))


def test_an_excess_is_a_number_too():
    verdict = refusal("prompt too long; exceeded max context length by 904 tokens")
    assert may_be_echoed(verdict, written("by 904 tokens"))
    assert not may_be_echoed(verdict, written("by 905 tokens"))


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_a_quoted_part_of_the_request_may_be_the_clients(quote: str):
    said = f"Unknown role: {quote}the prompt is too long for 4096 tokens{quote}, in a request of 9000 tokens"
    assert may_be_echoed(refusal(said), written("the prompt is too long for 4096 tokens"))
    assert not may_be_echoed(refusal(said), written("the prompt is too long for 8192 tokens"))


def test_an_apostrophe_and_a_quoted_name_quote_no_part_of_the_request():
    said = "This model's maximum context length is 4096 tokens, you've sent 9000. 'max_tokens' or 'n' must be lower."
    for held in ("s maximum context length is 4096 tokens, you", " or ", "max_tokens", "n"):
        assert not may_be_echoed(refusal(said), written(held))


def test_a_refusal_that_the_request_holds_too_is_one_and_teaches_nothing():
    text = SENTENCE.format(limit=4096, count=9000)
    for held in (text, SENTENCE.format(limit=8192, count=9700), "Prompt is too long", text[:20], "error"):
        verdict = judge(ErrorReport(400, texts=[ErrorText("", text)]), request=written(held))
        assert (verdict.is_overflow, verdict.limit) == (True, 4096)
        assert verdict.limit_is_learnable is (held != text)


def test_a_window_that_is_named_for_the_reply_may_be_the_clients_too():
    text = "max_tokens=200000 cannot be greater than max_model_len of 131072"
    verdict = judge(ErrorReport(400, texts=[ErrorText("", text)]))
    assert (verdict.kind, verdict.limit) == (VerdictKind.REPLY_ONLY, 131_072)
    assert may_be_echoed(verdict, written("a max_model_len of 131072"))
    assert not judge(ErrorReport(400, texts=[ErrorText("", text)]), request=written("of 131072")).limit_is_learnable


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    verdict = refusal(text)
    assert verdict.limit == limit
    assert may_be_echoed(verdict, written(before + text + after))


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
