"""`grammar`: sentences → kinds, with vetoes that work in their own sentence only."""

import pytest

from proxy.core.overflow.grammar import Strength, normalised, read_sentences
from proxy.core.overflow.verdict import VerdictKind


def read(text: str) -> list[tuple[VerdictKind, Strength]]:
    return [(reading.kind, reading.strength) for reading in read_sentences(normalised(text))]


@pytest.mark.parametrize(
    ("sentence", "kind", "strength"),
    [
        ("Context size has been exceeded", VerdictKind.PROMPT, Strength.STRONG),
        ("CONTEXT LENGTH EXCEEDED", VerdictKind.PROMPT, Strength.STRONG),
        ("输入长度超出模型上限", VerdictKind.PROMPT, Strength.STRONG),
        ("上下文长度超出", VerdictKind.PROMPT, Strength.STRONG),
        ("The prompt has too many tokens", VerdictKind.PROMPT, Strength.STRONG),
        ("Token limit exceeded", VerdictKind.PROMPT, Strength.FAIR),
        ("Prompt too large for this model", VerdictKind.PROMPT, Strength.FAIR),
        ("The text is too long", VerdictKind.PROMPT, Strength.FAIR),
        ("maximum context length is 32768 tokens", VerdictKind.PROMPT, Strength.FAIR),
        ("Please reduce the length of the messages or completion", VerdictKind.PROMPT, Strength.HINT),
        ("请压缩上下文后重试", VerdictKind.PROMPT, Strength.HINT),
        ("Max size: 8000 tokens", VerdictKind.PROMPT, Strength.HINT),
        ("inputs tokens + max_new_tokens must be <= 1512", VerdictKind.PROMPT_PLUS_REPLY, Strength.FAIR),
        ("max_tokens exceeds the remaining context of 4768 tokens", VerdictKind.PROMPT_PLUS_REPLY, Strength.STRONG),
        ("max_tokens is too large: 32000", VerdictKind.REPLY_ONLY, Strength.NONE),
        ("输出长度超过限制", VerdictKind.REPLY_ONLY, Strength.NONE),
        ("Too many tokens, please wait before trying again", VerdictKind.RATE, Strength.NONE),
        ("Limit 6000, Used 5034, Requested 1443", VerdictKind.RATE, Strength.NONE),
        ("You can only afford 10114 tokens", VerdictKind.QUOTA, Strength.NONE),
        ("context deadline exceeded", VerdictKind.TRANSIENT, Strength.NONE),
        ("The server is overloaded", VerdictKind.TRANSIENT, Strength.NONE),
        (
            "The encrypted content gAAA could not be verified, reason: it could not be decrypted or parsed",
            VerdictKind.SEAL,
            Strength.NONE,
        ),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", VerdictKind.SEAL, Strength.NONE),
        ("messages.1.content.0: Invalid `data` in `redacted_thinking` block", VerdictKind.SEAL, Strength.NONE),
        ("Unable to submit request because Thought signature is not valid", VerdictKind.SEAL, Strength.NONE),
        ("Corrupted thought signature.", VerdictKind.SEAL, Strength.NONE),
        ("Invalid thought signature.", VerdictKind.SEAL, Strength.NONE),
        ("messages.1.content.0.thinking.signature: Field required", VerdictKind.SEAL, Strength.NONE),
        ("Unable to submit request because Thought signature is not valid.", VerdictKind.SEAL, Strength.NONE),
        ("Invalid signature in the request", VerdictKind.UNKNOWN, Strength.NONE),
        ("No tool output found for function call call_1.", VerdictKind.PAIRING, Strength.NONE),
        ("No tool call found for function call output with call_id call_1.", VerdictKind.PAIRING, Strength.NONE),
        ("Each tool_result block must have a corresponding tool_use block", VerdictKind.PAIRING, Strength.NONE),
        ("image input is not supported", VerdictKind.MEDIA, Strength.NONE),
        ("This model doesn't support audio", VerdictKind.MEDIA, Strength.NONE),
        ("number of tools exceeds the limit of 128", VerdictKind.COUNT, Strength.NONE),
        ("The string is too long", VerdictKind.FIELD, Strength.NONE),
        ("image exceeds the allowed dimensions", VerdictKind.FIELD, Strength.NONE),
        ("image exceeds 5 MB maximum", VerdictKind.BYTES, Strength.NONE),
        ("Request payload size exceeds the limit", VerdictKind.BYTES, Strength.NONE),
        ("The access token exceeds its lifetime", VerdictKind.AUTH, Strength.NONE),
        ("Incorrect API key provided", VerdictKind.AUTH, Strength.NONE),
        ("The response was filtered by our content management policy", VerdictKind.POLICY, Strength.NONE),
        ("Sensitive prompt, see our safety notes", VerdictKind.POLICY, Strength.NONE),
        ("Model context window too small (minimum is 128k tokens)", VerdictKind.UNKNOWN, Strength.NONE),
        ("context window: 200000 tokens", VerdictKind.UNKNOWN, Strength.NONE),
        ("Processing in context of search results", VerdictKind.UNKNOWN, Strength.NONE),
        ("A token of it was flagged", VerdictKind.POLICY, Strength.NONE),
        ("Model not exist", VerdictKind.UNKNOWN, Strength.NONE),
    ],
)
def test_a_sentence_says_one_thing(sentence: str, kind: VerdictKind, strength: Strength):
    assert read(sentence) == [(kind, strength)]


def test_a_veto_works_in_its_own_sentence_only():
    both = read("Rate limit: 40000 tokens per minute. The prompt is longer than the context window.")
    assert both == [(VerdictKind.RATE, Strength.NONE), (VerdictKind.PROMPT, Strength.STRONG)]


def test_a_sentence_that_points_back_takes_the_veto_of_the_one_before():
    assert read("Limit: 40000 tokens per minute. Your prompt of 50000 tokens exceeds it.")[1][0] is VerdictKind.RATE


def test_a_media_word_beside_the_window_is_no_veto():
    text = (
        "The request resolved to 1064559 input tokens (including image/vision expansion) and exceeds the context length"
    )
    assert read(text)[0][0] is VerdictKind.PROMPT


def test_a_count_or_a_price_beside_the_window_is_no_veto():
    for cause in ("The number of messages makes", "Whatever your credits,"):
        assert read(f"{cause} the prompt exceed the context length") == [(VerdictKind.PROMPT, Strength.STRONG)]


def test_an_embedding_batch_is_no_window():
    text = "input (1024 tokens) is too large to process. increase the physical batch size"
    assert {kind for kind, _ in read(text)} == {VerdictKind.FIELD}


def test_normalising_drops_addresses_quotes_and_the_tails_of_relays():
    text = "`inputs`  is “too long”， see https://x.y/rate-limits. Received Model Group=claude-4-20250514"
    assert normalised(text) == "inputs is too long , see ."
