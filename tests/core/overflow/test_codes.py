import pytest

from proxy.core.overflow.codes import as_words, meaning
from proxy.core.overflow.verdict import VerdictKind


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
    assert meaning(code) is VerdictKind.PROMPT


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_request_error", VerdictKind.UNKNOWN),
        ("InvalidParameter", VerdictKind.UNKNOWN),
        ("400", VerdictKind.UNKNOWN),
        ("context_error", VerdictKind.UNKNOWN),
        ("token_limit_exceeded", VerdictKind.UNKNOWN),
        ("input_token_limit_exceeded_per_day", VerdictKind.UNKNOWN),
        ("too_many_tokens_error", VerdictKind.RATE),
        ("rate_limit_exceeded", VerdictKind.RATE),
        ("insufficient_quota", VerdictKind.QUOTA),
        ("content_filter", VerdictKind.POLICY),
        ("invalid_api_key", VerdictKind.AUTH),
        ("array_above_max_length", VerdictKind.COUNT),
        ("string_above_max_length", VerdictKind.FIELD),
        ("request_too_large", VerdictKind.BYTES),
        ("overloaded_error", VerdictKind.TRANSIENT),
    ],
)
def test_other_codes_mean_other_things_or_nothing(code: str, kind: VerdictKind):
    assert meaning(code) is kind


def test_a_code_is_read_as_words():
    assert as_words("InternalError.Algo-InvalidParameter") == "internal_error_algo_invalid_parameter"
