"""`grammar`: sentences → kinds, with vetoes that work in their own sentence only."""

import pytest

from proxy.core.overflow.codes import as_words, meaning
from proxy.core.overflow.grammar import Strength, normalised, read_sentences
from proxy.core.overflow.verdict import Kind


def read(text: str) -> list[tuple[Kind, Strength]]:
    return [(reading.kind, reading.strength) for reading in read_sentences(normalised(text))]


@pytest.mark.parametrize(
    ("sentence", "kind", "strength"),
    [
        ("Context size has been exceeded", Kind.PROMPT, Strength.STRONG),
        ("CONTEXT LENGTH EXCEEDED", Kind.PROMPT, Strength.STRONG),
        ("输入长度超出模型上限", Kind.PROMPT, Strength.STRONG),
        ("上下文长度超出", Kind.PROMPT, Strength.STRONG),
        ("The prompt has too many tokens", Kind.PROMPT, Strength.STRONG),
        ("Token limit exceeded", Kind.PROMPT, Strength.FAIR),
        ("Prompt too large for this model", Kind.PROMPT, Strength.FAIR),
        ("The text is too long", Kind.PROMPT, Strength.FAIR),
        ("maximum context length is 32768 tokens", Kind.PROMPT, Strength.FAIR),
        ("Please reduce the length of the messages or completion", Kind.PROMPT, Strength.HINT),
        ("请压缩上下文后重试", Kind.PROMPT, Strength.HINT),
        ("Max size: 8000 tokens", Kind.PROMPT, Strength.HINT),
        ("inputs tokens + max_new_tokens must be <= 1512", Kind.PROMPT_PLUS_REPLY, Strength.FAIR),
        ("max_tokens exceeds the remaining context of 4768 tokens", Kind.PROMPT_PLUS_REPLY, Strength.STRONG),
        ("max_tokens is too large: 32000", Kind.REPLY_ONLY, Strength.NONE),
        ("输出长度超过限制", Kind.REPLY_ONLY, Strength.NONE),
        ("Too many tokens, please wait before trying again", Kind.RATE, Strength.NONE),
        ("Limit 6000, Used 5034, Requested 1443", Kind.RATE, Strength.NONE),
        ("You can only afford 10114 tokens", Kind.QUOTA, Strength.NONE),
        ("context deadline exceeded", Kind.TRANSIENT, Strength.NONE),
        ("The server is overloaded", Kind.TRANSIENT, Strength.NONE),
        ("Each tool_result block must have a corresponding tool_use block", Kind.PAIRING, Strength.NONE),
        ("image input is not supported", Kind.MEDIA, Strength.NONE),
        ("This model doesn't support audio", Kind.MEDIA, Strength.NONE),
        ("number of tools exceeds the limit of 128", Kind.COUNT, Strength.NONE),
        ("The string is too long", Kind.FIELD, Strength.NONE),
        ("image exceeds the allowed dimensions", Kind.FIELD, Strength.NONE),
        ("image exceeds 5 MB maximum", Kind.BYTES, Strength.NONE),
        ("Request payload size exceeds the limit", Kind.BYTES, Strength.NONE),
        ("The access token exceeds its lifetime", Kind.AUTH, Strength.NONE),
        ("Incorrect API key provided", Kind.AUTH, Strength.NONE),
        ("The response was filtered by our content management policy", Kind.POLICY, Strength.NONE),
        ("Sensitive prompt, see our safety notes", Kind.POLICY, Strength.NONE),
        ("Model context window too small (minimum is 128k tokens)", Kind.UNKNOWN, Strength.NONE),
        ("context window: 200000 tokens", Kind.UNKNOWN, Strength.NONE),
        ("Processing in context of search results", Kind.UNKNOWN, Strength.NONE),
        ("A token of it was flagged", Kind.POLICY, Strength.NONE),
        ("Model not exist", Kind.UNKNOWN, Strength.NONE),
    ],
)
def test_a_sentence_says_one_thing(sentence: str, kind: Kind, strength: Strength):
    assert read(sentence) == [(kind, strength)]


def test_a_veto_works_in_its_own_sentence_only():
    both = read("Rate limit: 40000 tokens per minute. The prompt is longer than the context window.")
    assert both == [(Kind.RATE, Strength.NONE), (Kind.PROMPT, Strength.STRONG)]


def test_a_sentence_that_points_back_takes_the_veto_of_the_one_before():
    assert read("Limit: 40000 tokens per minute. Your prompt of 50000 tokens exceeds it.")[1][0] is Kind.RATE


def test_a_media_word_beside_the_window_is_no_veto():
    text = (
        "The request resolved to 1064559 input tokens (including image/vision expansion) and exceeds the context length"
    )
    assert read(text)[0][0] is Kind.PROMPT


def test_a_count_or_a_price_beside_the_window_is_no_veto():
    for cause in ("The number of messages makes", "Whatever your credits,"):
        assert read(f"{cause} the prompt exceed the context length") == [(Kind.PROMPT, Strength.STRONG)]


def test_an_embedding_batch_is_no_window():
    text = "input (1024 tokens) is too large to process. increase the physical batch size"
    assert {kind for kind, _ in read(text)} == {Kind.FIELD}


def test_normalising_drops_addresses_quotes_and_the_tails_of_relays():
    text = "`inputs`  is “too long”， see https://x.y/rate-limits. Received Model Group=claude-4-20250514"
    assert normalised(text) == "inputs is too long , see ."


@pytest.mark.parametrize(
    "code",
    [
        "context_length_exceeded",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
        "max_prompt_tokens_exceeded",
        "tokens_limit_reached",
        "tokens_too_long",
        "too_many_prompt_tokens",
        "input_too_long",
        "prompt_too_long",
        "prompt_limit",
        "token_quantity_exceeded",
        "ContextWindowExceededError",
        "PromptTooLong",
        "OutofContextError",
        "characters_too_long",
    ],
)
def test_a_code_that_means_too_long_proves_it(code: str):
    assert meaning(code) is Kind.PROMPT


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_request_error", Kind.UNKNOWN),
        ("InvalidParameter", Kind.UNKNOWN),
        ("400", Kind.UNKNOWN),
        ("context_error", Kind.UNKNOWN),
        ("token_limit_exceeded", Kind.UNKNOWN),
        ("input_token_limit_exceeded_per_day", Kind.UNKNOWN),
        ("too_many_tokens_error", Kind.RATE),
        ("rate_limit_exceeded", Kind.RATE),
        ("insufficient_quota", Kind.QUOTA),
        ("content_filter", Kind.POLICY),
        ("invalid_api_key", Kind.AUTH),
        ("array_above_max_length", Kind.COUNT),
        ("string_above_max_length", Kind.FIELD),
        ("request_too_large", Kind.BYTES),
        ("overloaded_error", Kind.TRANSIENT),
    ],
)
def test_other_codes_mean_other_things_or_nothing(code: str, kind: Kind):
    assert meaning(code) is kind


def test_a_code_is_read_as_words():
    assert as_words("InternalError.Algo-InvalidParameter") == "internal_error_algo_invalid_parameter"
