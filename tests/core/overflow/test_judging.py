"""`judge`: status, codes, sentences, numbers and our own estimate, set against one another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.models import LimitName
from proxy.core.overflow import (
    FAULTS,
    Counted,
    ErrorCode,
    ErrorReport,
    ErrorText,
    Exactness,
    Figures,
    Place,
    Scope,
    Sent,
    Unit,
    Verdict,
    VerdictKind,
    judge,
)
from proxy.core.overflow.judging import plausible, with_figures

NOBODY_KNOWS = Sent(40_000, window_is_certain=False)
TOO_LONG = "The input (140012 tokens) is longer than the model's context length (131072 tokens)."


def refused(
    status: int = 400,
    /,
    *messages: str,
    sent: Sent | None = None,
    waits: bool = False,
    stated: Figures = Figures(),  # noqa: B008 - a value that nothing changes
    place: Place | None = None,
    **codes: str,
) -> Verdict:
    """The verdict on an error with these texts and codes."""
    found = [ErrorCode(f"error.{name}", text) for name, text in codes.items()]
    found += [ErrorCode("error.place", "place", place)] if place else []
    texts = [ErrorText("error.message", message) for message in messages]
    return judge(ErrorReport(status, asks_to_wait=waits, texts=texts, codes=tuple(found), stated=stated), sent)


def ended(ending: str, prompt: int | None, reply: int | None, window: int | None, sent: Sent | None = None) -> Verdict:
    """The verdict on a reply of some words, or of none where the request is `sent`."""
    endings = [ErrorCode("finish_reason", ending)]
    counted = None if prompt is None or reply is None else Counted(prompt, reply)
    report = ErrorReport(200, endings=endings, counted=counted, has_output=sent is None)
    return judge(report, sent or Sent(window_tokens=window))


@pytest.mark.parametrize("status", [400, 413, 422, 401, 404, 500, 502, 503])
def test_the_status_is_no_gate(status: int):
    verdict = refused(status, TOO_LONG)
    assert (verdict.kind, verdict.limit, verdict.prompt) == (VerdictKind.PROMPT, 131072, 140012)


@pytest.mark.parametrize(
    ("status", "kind"), [(402, VerdictKind.QUOTA), (403, VerdictKind.AUTH), (429, VerdictKind.RATE)]
)
def test_refusals_of_money_and_rate_need_a_machine_code(status: int, kind: VerdictKind):
    assert refused(status, TOO_LONG).kind is kind
    assert refused(status, TOO_LONG, code="context_length_exceeded").kind is VerdictKind.PROMPT
    assert not refused(status, "Rate limit reached, too long", code="context_length_exceeded").is_overflow


def test_a_401_needs_the_window_by_name():
    assert not refused(401, "Prompt is too long").is_overflow
    assert refused(401, "Prompt exceeds the context window").is_overflow


def test_a_server_error_needs_strong_words():
    assert not refused(500, "Token limit exceeded").is_overflow
    assert refused(400, "Token limit exceeded").is_overflow
    assert refused(500, "Input is too large to process. Increase the context length.").is_overflow


def test_advice_alone_counts_only_where_nothing_else_is_said():
    advice = "Please reduce the length of the messages or completion."
    assert refused(400, advice).is_overflow
    assert refused(413, advice).is_overflow
    assert not refused(404, advice).is_overflow
    assert not refused(400, advice, waits=True).is_overflow
    assert not refused(400, "Too many requests. " + advice).is_overflow


@pytest.mark.parametrize(
    "text",
    [
        "continued conversation is too large; compact it or resend a shorter history",
        "Please reduce the length of the messages or completion. Current length is 50000 while limit is 40000",
        "request too large: please shorten the conversation",
        "The length of the request exceeds the limit",
        "Please shorten the history.",
        "Messages too large",
    ],
)
@pytest.mark.parametrize("codes", [{}, {"type": "request_too_large"}])
def test_a_413_that_speaks_of_a_prompt_is_about_the_prompt_however_short_we_think_it_is(text: str, codes: dict):
    for tokens in (1_000, 50_000):
        assert refused(413, text, sent=Sent(tokens, 4 * tokens, 200_000), **codes).is_overflow


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("Request body too large", None),
        ("Request Entity Too Large", None),
        ("failed to parse request", None),
        ("Content-Length 70000 exceeds limit 65536", None),
        ("Failed to buffer the request body: length limit exceeded", None),
        ("payload exceeds 4 MB", 4_000_000),
        ("Message size exceeds 1.5MiB", 1_500_000),
        ("The message is too large: 70,000 bytes, the limit is 32,768 bytes", 32_768),
        ("Request body too large: the limit is 32 KB. Please reduce the length of the messages.", 32_000),
        ("Prompt exceeds the maximum size of 1048576 bytes", 1_048_576),
    ],
)
def test_a_413_that_speaks_of_bytes_is_about_the_body(text: str, limit: int | None):
    verdict = refused(413, text)
    assert (verdict.kind, verdict.named_limit or None, verdict.limit) == (VerdictKind.BYTES, limit, None)


def test_a_413_that_speaks_of_a_request_alone_is_about_the_prompt_only_of_a_long_one():
    """Amazon's API Gateway says `Request Too Long` of bodies over 10 MB."""
    short, long = (refused(413, "Request Too Long", sent=Sent(tokens, 4 * tokens, 200_000)) for tokens in (9, 190_000))
    assert (short.is_overflow, long.is_overflow) == (False, True)


def test_a_bound_in_tokens_outweighs_the_word_body():
    verdict = refused(413, "Request body too large for gpt-4o model. Max size: 8000 tokens.")
    assert (verdict.is_overflow, verdict.limit) == (True, 8000)


def test_a_code_proves_it_without_a_text_or_a_number():
    verdict = refused(400, "Bad request", type="input_too_long")
    assert (verdict.kind, verdict.evidence, verdict.confidence) == (VerdictKind.PROMPT, "error.type", 0.99)
    assert refused(400, code="context_length_exceeded").evidence == "error.code"


def test_stated_sizes_prove_it_and_are_preferred():
    stated = Figures(limit=8192, limit_scope=Scope.WINDOW, prompt=9001)
    verdict = refused(400, "no room left", stated=stated)
    assert (verdict.limit, verdict.prompt, verdict.limit_scope) == (8192, 9001, Scope.WINDOW)
    alone = refused(400, stated=stated)
    assert (alone.kind, alone.limit) == (VerdictKind.PROMPT, 8192)
    assert (verdict.unit, alone.unit) == (Unit.TOKENS, Unit.TOKENS)
    assert refused(400, stated=Figures()).unit is None
    of_input = Figures(limit=100000, limit_scope=Scope.INPUT)
    assert refused(400, TOO_LONG, stated=of_input).limit_scope is Scope.INPUT
    assert refused(400, TOO_LONG, stated=Figures(prompt=140013)).limit == 131072


def test_a_code_about_context_with_words_about_max_tokens_is_about_the_reply():
    verdict = refused(400, "max_tokens is too large: 9000.", code="context_length_exceeded")
    assert verdict.kind is VerdictKind.REPLY_ONLY


def test_a_code_against_yields_only_to_the_window_with_numbers():
    assert not refused(400, "The prompt is too long", code="rate_limit_exceeded").is_overflow
    assert refused(400, TOO_LONG, code="rate_limit_exceeded").is_overflow


def test_a_string_that_is_too_long_is_one_text_only_where_it_is_a_message():
    text = "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1000, but got 1500."
    verdict = refused(400, text, code="string_above_max_length", place=Place.TEXT)
    assert (verdict.kind, verdict.named, verdict.named_limit) == (VerdictKind.FIELD, LimitName.STRING, 1000)
    assert verdict.limit is None
    elsewhere = refused(400, text, code="string_above_max_length", place=Place.ELSEWHERE)
    assert elsewhere.named is None
    for place in (Place.ELSEWHERE, Place.UNCLEAR, None):
        assert refused(400, text, code="string_above_max_length", place=place).kind is VerdictKind.FIELD
    assert refused(400, code="string_above_max_length", place=Place.TEXT).kind is VerdictKind.FIELD


def test_words_about_a_part_of_the_request_that_has_no_length_are_no_overflow():
    assert refused(400, TOO_LONG, place=Place.ELSEWHERE).kind is VerdictKind.FIELD
    assert refused(400, TOO_LONG, code="invalid_type").kind is VerdictKind.FIELD
    for place in (Place.TEXT, Place.UNCLEAR):
        assert refused(400, TOO_LONG, place=place).is_overflow
    assert refused(400, TOO_LONG, place=Place.ELSEWHERE, code="context_length_exceeded").is_overflow


@pytest.mark.parametrize(
    "code", ["InvalidParameter", "InvalidParameterValue", "invalid_value", "invalid_parameter_error"]
)
@pytest.mark.parametrize(
    "text",
    [
        TOO_LONG,
        "Input length 203743 exceeds the maximum length 202752",
        "Total tokens of image and text exceed max message tokens.",
    ],
)
def test_a_generic_code_weighs_nothing_beside_a_text(code: str, text: str):
    """Volcengine Ark sends `InvalidParameter` with every 400: github.com/langgenius/dify/issues/14376"""
    assert refused(400, text, code=code).is_overflow


def test_a_value_that_openai_repeats_is_no_refusal_of_a_length():
    text = f"Invalid value: '{TOO_LONG}'. Supported values are: 'system' and 'user'."
    for code in ({}, {"code": "invalid_value"}):
        assert refused(400, text, **code).kind is VerdictKind.FIELD


def test_a_number_of_a_provider_lifts_a_text_that_fits():
    assert refused(200, "token limit", status_code="1039").is_overflow
    assert not refused(200, "token limit", status_code="2013").is_overflow


def test_numbers_prove_what_no_sentence_says():
    assert refused(400, "Your turn has 9000 tokens; the context window is 8192 tokens").is_overflow


def test_a_lower_bound_of_the_prompt_leaves_the_limit_exact():
    message = (
        "This model's maximum context length is 40960 tokens. However, you requested 100 output tokens and your prompt "
        "contains at least 40861 input tokens, for a total of at least 40961 tokens."
    )
    verdict = refused(400, message)
    assert (verdict.exactness, verdict.limit_exactness) == (Exactness.AT_LEAST, Exactness.EXACT)
    assert (verdict.limit, verdict.limit_is_learnable) == (40960, True)


def test_one_refusal_of_the_reply_teaches_the_window():
    alone = refused(
        400, "maximum context length is 8192 tokens. However, you requested 64 in the messages, 8192 in the completion"
    )
    assert (alone.kind, alone.limit, alone.limit_is_learnable) == (VerdictKind.REPLY_ONLY, 8192, True)
    verdict = refused(
        400, "max_tokens=200000 cannot be greater than max_model_len=131072. Please request fewer output tokens."
    )
    assert (verdict.kind, verdict.limit, verdict.limit_is_learnable) == (VerdictKind.REPLY_ONLY, 131072, True)
    other = refused(400, "max_tokens=200000 cannot be greater than 131072.")
    assert (other.kind, other.limit) == (VerdictKind.REPLY_ONLY, None)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("exceeded model token limit: 24000 (requested: 29000)", 9_000, (VerdictKind.PROMPT_PLUS_REPLY, 9_000, 24_000)),
        ("exceeded model token limit: 24000 (requested: 29000)", 27_000, (VerdictKind.PROMPT, 29_000, 24_000)),
        ("exceeded model token limit: 19000 (requested: 29000)", 9_000, (VerdictKind.REPLY_ONLY, 9_000, 19_000)),
        (
            "The estimated number of input and maximum output tokens (29000) exceeded this model context window limit "
            "(24000).",
            9_000,
            (VerdictKind.PROMPT_PLUS_REPLY, 9_000, 24_000),
        ),
        (
            "The total number of tokens (prompt 9000 + completion 20000 = 29000) is over the limit 24000",
            9_000,
            (VerdictKind.PROMPT_PLUS_REPLY, 9_000, 24_000),
        ),
    ],
)
def test_a_size_that_is_one_of_prompt_and_reply_leaves_the_window_for_a_shorter_reply(
    text: str, tokens: int, expected: tuple[VerdictKind, int, int]
):
    verdict = refused(400, text, sent=Sent(tokens, 4 * tokens, reply_tokens=20_000))
    prompt = verdict.requested if verdict.prompt is None else verdict.prompt
    assert (verdict.kind, prompt, verdict.limit) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Invalid 'response_format': schema must be a string",
        "model must be a string",
        "Image content must be a string in base64",
        "temperature: Extra inputs are not permitted",
        "Unknown name 'foo' at 'generation_config': Cannot find field.",
        "Requests should begin with user agent header",
        "The system is busy, you must be first in the queue",
        "Content must be a string of at most 6000 characters",
        "model: Field required",
    ],
)
def test_words_of_a_fault_about_something_else_name_no_fault_of_a_history(text: str):
    assert refused(400, text).kind not in FAULTS


def test_a_reply_limit_below_nothing_is_a_prompt_that_fills_the_window():
    assert refused(400, "max_tokens must be at least 1, got -160.").is_overflow
    assert not refused(400, "max_tokens must be at least 1, got 0.").is_overflow


@pytest.mark.parametrize(
    ("status", "waits", "kind"),
    [
        (400, True, VerdictKind.RATE),
        (503, True, VerdictKind.TRANSIENT),
        (401, False, VerdictKind.AUTH),
        (500, False, VerdictKind.TRANSIENT),
        (404, False, VerdictKind.NOT_FOUND),
        (413, False, VerdictKind.BYTES),
        (429, False, VerdictKind.RATE),
    ],
)
def test_an_answer_that_says_nothing_is_known_by_its_status(status: int, waits: bool, kind: VerdictKind):
    assert refused(status, "Something went wrong here", waits=waits).kind is kind


def test_texts_speak_before_codes_and_codes_before_the_status():
    assert refused(429, "This request requires more credits", code="rate_limit_exceeded").kind is VerdictKind.QUOTA
    assert refused(400, "No", code="content_filter").kind is VerdictKind.POLICY


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("code", ["model_not_found", "NotFoundError"])
def test_an_unknown_model_is_not_found_whatever_member_the_error_names(status: int, code: str):
    said = "The model `x` does not exist or you do not have access to it."
    for place in (None, Place.ELSEWHERE):
        assert refused(status, said, place=place, code=code).kind is VerdictKind.NOT_FOUND
    assert refused(404, "No endpoints found that support image input", code=code).kind is VerdictKind.MEDIA


def test_the_message_is_the_upstreams_and_bounded():
    assert refused(400, TOO_LONG).upstream_message == TOO_LONG
    assert refused(400, "Nothing of that kind. " * 500).upstream_message.startswith("Nothing of that kind.")
    assert len(refused(400, "The prompt is too long. " * 500).upstream_message) == 2_000


def test_endings_that_mean_a_full_window():
    assert ended("model_context_window_exceeded", None, 0, None).kind is VerdictKind.PROMPT
    assert ended("length", 8190, 0, 8192).prompt == 8190
    assert ended("length", 8190, 5, 8192).kind is VerdictKind.ACCEPTED
    assert ended("length", 4000, 0, 8192).kind is VerdictKind.ACCEPTED
    assert ended("length", 8190, 0, None).kind is VerdictKind.ACCEPTED


def test_a_success_that_holds_nothing_is_suspect_when_the_request_is_long():
    """llama-cpp-python refuses like this: https://github.com/abetlen/llama-cpp-python/issues/1498"""

    def answered(tokens: int | None = None, window: int | None = None, *, certain: bool = True):
        known, guessed = (window, None) if certain else (None, window)
        sent = Sent(tokens, window_tokens=known, window_is_certain=certain, guessed_tokens=guessed)
        verdict = judge(ErrorReport(200, is_silent=True), sent)
        assert not verdict.is_overflow
        return verdict.kind, verdict.is_suspect

    assert answered(8000, 8192) == (VerdictKind.EMPTY, True)
    assert answered(4000, 8192) == (VerdictKind.EMPTY, False)
    assert answered(116_000, 128_000, certain=False) == (VerdictKind.EMPTY, True)
    assert answered(20_000, 128_000, certain=False) == (VerdictKind.EMPTY, False)
    assert answered() == (VerdictKind.EMPTY, False)


@pytest.mark.parametrize("codes", [{}, {"code": "400"}])
@pytest.mark.parametrize("status", [400, 413])
def test_an_empty_refusal_is_suspect_only_for_a_long_request_to_an_unknown_model(status: int, codes):
    def is_suspect(tokens: int, *, certain: bool) -> bool:
        verdict = refused(status, sent=Sent(tokens, None, 128_000, certain), **codes)
        assert verdict.kind is VerdictKind.UNKNOWN
        return verdict.is_suspect

    assert is_suspect(40_000, certain=False)
    assert not is_suspect(1_000, certain=False)
    assert not is_suspect(127_000, certain=True)


def test_a_refusal_of_another_status_or_with_a_word_is_not_suspect():
    for status in (500, 422, 404):
        assert not refused(status, sent=NOBODY_KNOWS).is_suspect
    assert not refused(400, sent=NOBODY_KNOWS, waits=True).is_suspect
    assert not refused(400, "Invalid role", sent=NOBODY_KNOWS).is_suspect
    assert not refused(400, "Bad Request", sent=NOBODY_KNOWS, place=Place.ELSEWHERE).is_suspect
    assert not refused(400, code="invalid_value", sent=NOBODY_KNOWS).is_suspect


PLAIN = [
    "Prompt is too long",
    "Your input exceeds the context window of this model.",
    "the input length exceeds the context length",
    "Prompt exceeds max length",
]


@pytest.mark.parametrize("words", PLAIN)
@pytest.mark.parametrize("certain", [True, False])
def test_plain_words_are_believed_whatever_the_estimate_is(words: str, certain: bool):
    for tokens in (100, 10_000, 100_000):
        assert refused(400, words, sent=Sent(tokens, None, 128_000, certain)).is_overflow


@pytest.mark.parametrize(
    "words", ["Token limit exceeded", "The text is too long", "length limit exceeded", "超过最大长度"]
)
def test_vague_words_are_doubted_far_below_what_the_model_surely_takes(words: str):
    def is_overflow(tokens: int, *, certain: bool) -> bool:
        return refused(400, words, sent=Sent(tokens, None, 128_000, certain)).is_overflow

    assert not is_overflow(10_000, certain=True)
    assert is_overflow(100_000, certain=True)
    assert is_overflow(10_000, certain=False), "an unstated window is no evidence"
    assert not is_overflow(500, certain=False)
    known = Sent(500, window_tokens=128_000)
    assert refused(400, words, code="context_length_exceeded", sent=known).is_overflow


TPM = (
    "Request too large for model `m` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): "
    "Limit {limit}, Requested {requested}, please reduce your message size and try again."
)
"""https://github.com/continuedev/continue/issues/10218"""


@pytest.mark.parametrize("status", [413, 429, 200])
def test_a_request_that_alone_exceeds_a_rate_yields_both_numbers_and_teaches_nothing(status: int):
    text = TPM.format(limit=6000, requested=14810)
    verdict = refused(status, text, type="tokens", sent=Sent(14_000, window_tokens=128_000))
    assert (verdict.kind, verdict.limit, verdict.requested) == (VerdictKind.RATE, 6000, 14810)
    assert verdict.is_over_rate
    assert not verdict.is_overflow
    assert not verdict.limit_is_learnable


@pytest.mark.parametrize("middle", ["Requested 1443", "Used 5034, Requested 1443", "Used 9000"])
def test_a_rate_that_others_have_used_up_is_no_matter_of_length(middle: str):
    text = f"Rate limit reached for model `m` on tokens per minute (TPM): Limit 6000, {middle}. Please try again in 4s."
    verdict = refused(429, text)
    assert (verdict.kind, verdict.limit, verdict.is_over_rate) == (VerdictKind.RATE, None, False)


def test_a_parameter_over_the_window_is_no_overflow():
    """vLLM: https://github.com/vllm-project/vllm/issues/22635"""
    text = "truncate_prompt_tokens value (40000) is greater than max_model_len (32768). Please, select a smaller one."
    assert (refused(400, text).kind, refused(400, text).limit) == (VerdictKind.FIELD, None)


def test_what_a_model_supports_only_is_an_overflow_under_401():
    """Kimi Code: https://github.com/MoonshotAI/kimi-code/pull/2655"""
    verdict = refused(401, "k3-256k supports only 256K context.", type="authentication_error")
    assert (verdict.kind, verdict.limit, verdict.limit_exactness) == (VerdictKind.PROMPT, 256_000, Exactness.ABOUT)
    assert not refused(401, "Your plan supports only 3 projects", type="authentication_error").is_overflow


def test_a_whole_sentence_about_nothing_but_a_length_is_vague_and_one_about_a_field_is_none():
    assert refused(400, "Error: maximum length exceeded.").is_overflow
    assert refused(400, "请求已超过模型的最大长度限制。").is_overflow
    assert not refused(400, "username length limit exceeded").is_overflow
    assert not refused(400, "String length limit exceeded").is_overflow
    assert not refused(400, "Maximum limit exceeded").is_overflow
    assert not refused(500, "length limit exceeded").is_overflow


RANGE = "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 1000000]"
"""DashScope: https://www.alibabacloud.com/help/en/model-studio/error-code"""


def test_a_count_that_is_ours_of_characters_beside_a_limit_far_below_both_is_one_of_characters():
    text = "text length is 112934, which is outside the range (0, 24000]"
    assert refused(400, text, sent=Sent(34_636, 113_100)).unit is Unit.CHARS
    assert refused(400, text, sent=Sent(90_000, 113_100)).unit is Unit.TOKENS


def test_a_limit_far_over_our_tokens_and_under_our_characters_is_one_of_characters():
    def read(text: str, tokens: int, chars: int | None) -> tuple[int | None, Unit | None, bool]:
        verdict = refused(400, text, sent=Sent(tokens, chars, window_is_certain=False))
        assert verdict.is_overflow
        return verdict.limit, verdict.unit, verdict.limit_is_learnable

    assert read(RANGE, 260_000, 1_040_000) == (1_000_000, Unit.CHARS, True)
    assert read(RANGE, 900_000, 3_600_000) == (1_000_000, Unit.TOKENS, True), "both are over it"
    assert read(RANGE, 700_000, 1_100_000) == (1_000_000, Unit.TOKENS, True), "an estimate may be off by so much"
    assert read(RANGE, 400_000, 900_000) == (1_000_000, Unit.TOKENS, True), "neither is over it"
    assert read(RANGE, 400_000, None) == (1_000_000, Unit.TOKENS, True)
    tokens = "Input token count exceeds the maximum of 1000000 tokens"
    assert read(tokens, 400_000, 1_600_000)[1] is Unit.TOKENS
    window = "Input exceeds the context window of 1000000"
    assert read(window, 400_000, 1_600_000)[1] is Unit.TOKENS


def test_numbers_that_cannot_be_true_are_dropped_and_the_verdict_stays():
    far_above = refused(400, TOO_LONG, sent=Sent(10_000))
    assert (far_above.is_overflow, far_above.limit, far_above.prompt) == (True, None, None)
    far_below = refused(400, TOO_LONG, sent=Sent(1_000_000))
    assert (far_below.limit, far_below.prompt) == (131072, None)
    near = refused(400, TOO_LONG, sent=Sent(120_000))
    assert (near.limit, near.prompt) == (131072, 140012)
    no_size = refused(400, "Prompt exceeds maximum context length 4096", sent=Sent(5_000))
    assert (no_size.limit, no_size.prompt) == (4096, None)


def test_characters_are_not_held_against_an_estimate_in_tokens():
    verdict = refused(400, "Input exceeds the maximum length of 1048576 characters.", sent=Sent(1_000))
    assert (verdict.limit, verdict.unit) == (1048576, Unit.CHARS)


def test_words_that_name_no_cause_say_nothing():
    for text in (
        "400 Bad Request",
        "Provider returned error",
        "400 status code (no body)",
        "BadRequestError: OpenAIException - ",
    ):
        for status in (400, 413):
            verdict = refused(status, text, sent=NOBODY_KNOWS, type="invalid_request_error")
            assert (verdict.kind, verdict.is_suspect) == (VerdictKind.UNKNOWN, True)
    assert refused(400, sent=NOBODY_KNOWS, place=Place.TEXT, type="BadRequestError").is_suspect


def test_a_user_message_that_the_upstream_misses_was_cut_off():
    """Ollama: https://github.com/ollama/ollama/issues/18107"""
    for text in ("no user query found in messages", "Jinja Exception: No user query found in messages."):
        assert refused(500, text, sent=Sent(40_000, has_user_text=True)).is_overflow
        assert not refused(500, text, sent=Sent(40_000)).is_overflow


def test_a_reply_that_is_cut_before_its_first_token_is_no_reply():
    def judged(
        ending: str = "max_tokens", reply: int | None = 0, reply_tokens: int | None = None
    ) -> tuple[VerdictKind, bool]:
        verdict = ended(ending, 40_000, reply, None, Sent(40_000, window_is_certain=False, reply_tokens=reply_tokens))
        return verdict.kind, verdict.is_suspect

    assert judged() == judged("length") == judged(reply_tokens=4_096) == (VerdictKind.EMPTY, True)
    for accepted in (judged("stop"), judged(reply=1), judged(reply=None), judged(reply_tokens=16)):
        assert accepted == (VerdictKind.ACCEPTED, False)


@pytest.mark.parametrize(
    ("status", "sent", "is_suspect"),
    [
        (400, Sent(9_500), True),
        (500, Sent(9_500), False),
        (400, Sent(4_000), False),
        (400, Sent(16_000), False),
        (400, Sent(9_500, reply_tokens=8_192), False),
        (400, Sent(), False),
    ],
)
def test_our_own_count_beside_a_smaller_number_is_suspect_in_any_language(status: int, sent: Sent, is_suspect: bool):
    verdict = refused(status, "Die Eingabe hat 9712 Tokens, und mehr als 8192 gehen nicht.", sent=sent)
    assert not verdict.is_overflow
    assert verdict.is_suspect is is_suspect
    assert not refused(400, "9712 tokens won't go into 8192, nor 4096", sent=Sent(9_500)).is_suspect


CLAIM = Verdict(VerdictKind.PROMPT, confidence=0.8)


@pytest.mark.parametrize(
    ("prompt", "reply", "kind"),
    [
        (9_000, 500, VerdictKind.PROMPT),
        (8_000, 500, VerdictKind.PROMPT_PLUS_REPLY),
        (8_000, 9_000, VerdictKind.REPLY_ONLY),
        (9_000, 9_000, VerdictKind.PROMPT),
        (8_000, None, VerdictKind.PROMPT),
        (None, 9_000, VerdictKind.REPLY_ONLY),
    ],
)
def test_numbers_prove_the_kind_whatever_was_claimed(prompt: int | None, reply: int | None, kind: VerdictKind):
    verdict = with_figures(CLAIM, Figures(limit=8_192, prompt=prompt, reply=reply))
    assert verdict.kind is kind
    assert verdict.limit == (None if kind is VerdictKind.REPLY_ONLY else 8_192)


def test_a_sum_without_a_reply_is_the_prompt_and_what_bounds_a_sum_is_the_window():
    claim = Verdict(VerdictKind.PROMPT_PLUS_REPLY)
    assert with_figures(claim, Figures(reply=0)).kind is VerdictKind.PROMPT
    assert with_figures(claim, Figures(limit=4_096)).limit_scope is Scope.WINDOW


@pytest.mark.parametrize(
    ("figures", "prompt", "requested"),
    [
        (Figures(requested=5_000, reply=1_000), 4_000, 5_000),
        (Figures(prompt=4_000, reply=1_000), 4_000, 5_000),
        (Figures(requested=5_000, limit_scope=Scope.INPUT), 5_000, 5_000),
        (Figures(requested=5_000, limit_scope=Scope.WINDOW), None, 5_000),
        (Figures(requested=1_000, reply=1_000), None, 1_000),
    ],
)
def test_a_third_size_follows_from_two(figures: Figures, prompt: int | None, requested: int):
    verdict = with_figures(CLAIM, figures)
    assert (verdict.prompt, verdict.requested) == (prompt, requested)


def test_only_a_claim_of_length_is_held_against_our_own_numbers():
    other = Verdict(VerdictKind.RATE, limit=10**9, requested=10**9)
    assert plausible(other, Sent(10)) == other
    assert plausible(CLAIM, Sent()) == CLAIM


def test_a_number_three_times_off_is_about_something_else():
    claim = Verdict(
        VerdictKind.PROMPT, limit=3_000, prompt=3_300, requested=3_300, unit=Unit.TOKENS, limit_scope=Scope.INPUT
    )
    assert plausible(claim, Sent(1_100)) == claim
    too_small = plausible(claim, Sent(900))
    assert (too_small.limit, too_small.prompt, too_small.requested) == (None, None, None)
    assert (plausible(claim, Sent(9_901)).limit, plausible(claim, Sent(9_901)).prompt) == (3_000, None)


def scope_of(sent: Sent, **figures: Any) -> Scope:
    """What a limit of 3 000 tokens applies to, if the words do not say."""
    verdict = {"unit": Unit.TOKENS, "upstream_message": "over 3000"} | figures
    return plausible(Verdict(VerdictKind.PROMPT, limit=3_000, **verdict), sent).limit_scope


def test_a_limit_that_the_prompt_reaches_is_one_of_the_input_whatever_its_clause_calls_it():
    assert scope_of(Sent(), prompt=3_000, requested=3_000) is Scope.INPUT
    assert scope_of(Sent(), requested=3_000) is Scope.INPUT
    assert scope_of(Sent(reply_tokens=500), requested=3_400) is Scope.WINDOW
    assert scope_of(Sent(reply_tokens=500), requested=3_600) is Scope.INPUT
    assert scope_of(Sent(), requested=2_999) is Scope.UNKNOWN


def test_without_a_count_our_own_has_to_reach_a_limit_that_is_the_only_number():
    assert scope_of(Sent(3_000)) is Scope.INPUT
    assert scope_of(Sent(2_999)) is scope_of(Sent()) is Scope.UNKNOWN
    assert scope_of(Sent(4_000), upstream_message="4000, 3000, 2000") is Scope.UNKNOWN
    assert scope_of(Sent(4_000), requested=3_900, exactness=Exactness.ABOUT) is Scope.INPUT


def test_a_limit_in_characters_or_of_a_rate_is_none_of_the_input():
    assert scope_of(Sent(), prompt=3_000, requested=3_000, unit=Unit.CHARS) is Scope.UNKNOWN
    rate = Verdict(VerdictKind.RATE, limit=3_000, requested=4_000, unit=Unit.TOKENS)
    assert plausible(rate, Sent(4_000)) == rate


def test_a_count_that_went_no_further_than_the_limit_may_be_far_under_ours():
    claim = Verdict(VerdictKind.PROMPT, limit=3_000, prompt=3_001, requested=3_001, exactness=Exactness.AT_LEAST)
    assert plausible(claim, Sent(50_000)).prompt == 3_001


def test_a_request_is_long_or_short_by_what_the_model_surely_takes():
    assert Sent(1_844, window_tokens=128_000, window_is_certain=False).is_long
    assert Sent(1_000, window_tokens=1_100, window_is_certain=False).is_short
    assert Sent(1_000, window_tokens=1_100).is_long
    assert Sent(None, window_tokens=1_100).share is None
    assert Sent(1_000).share is None


def test_a_vague_claim_without_numbers_is_doubted_of_a_short_request():
    short = Sent(1_000, window_tokens=128_000)
    assert plausible(CLAIM, short).kind is VerdictKind.UNKNOWN
    assert plausible(Verdict(VerdictKind.PROMPT, confidence=0.95), short).is_overflow
    assert plausible(Verdict(VerdictKind.PROMPT, confidence=0.8, excess=9), short).is_overflow


ENGLISH = (
    "The {subject} has {prompt} tokens, but the {bound} is {limit} tokens.",
    "{subject} of {prompt} tokens exceeds the {bound} of {limit} tokens",
    "{subject} ({prompt} tokens) is longer than the {bound} ({limit})",
    "{subject} too long: {prompt} tokens, {bound}: {limit}",
    "The {bound} is {limit} tokens, however your {subject} resulted in {prompt} tokens",
    "{bound} {limit} exceeded: {subject} contains {prompt} tokens",
    "{subject} must have fewer than {limit} tokens. Given: {prompt}.",
    "Your {subject} is {prompt} tokens long which does not fit within the {bound} of {limit} tokens.",
    "The number of tokens in the {subject} ({prompt}) cannot exceed {limit}",
    "Expected a {subject} of up to {limit} tokens but received {prompt} tokens",
    "{subject} over the {bound}: limit={limit}, actual={prompt} tokens",
    "{subject} overflow: {prompt}/{limit} tokens",
)
CHINESE = (
    "{subject}长度 {prompt} 超过{bound} {limit}",
    "{subject}共 {prompt} 个token，超出{bound}（{limit}）",
    "{subject}过长：当前 {prompt} tokens，{bound}为 {limit} tokens",
    "{bound}为{limit}，当前{subject}token数为{prompt}",
    "{subject}不能超过{limit}个token，实际为{prompt}",
    "您的{subject}包含{prompt}个tokens，{bound}仅为{limit}个tokens",
)
JOINT = (
    "This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
    "({prompt} in the messages, {reply} in the completion).",
    "prompt ({prompt} tokens) + max_tokens ({reply}) exceeds context window ({limit})",
    "{prompt} prompt tokens + {reply} completion tokens = {total} > {limit}",
    "Input tokens ({prompt}) + max_new_tokens ({reply}) must be <= {limit}",
    "最大上下文长度为 {limit}，您请求了 {total} 个token（输入 {prompt}，输出 {reply}）",
)
RATES = (
    "Rate limit reached: {limit} tokens per minute, requested {prompt}.",
    "Request too large on tokens per day (TPD): Limit {limit}, Requested {prompt}, please reduce your message size.",
    "Limit {limit}, Used {prompt}, Requested {prompt}.",
    "每分钟token数超过限制：{limit}，当前{prompt}。",
    "Too many tokens, please wait before trying again.",
)
LIMITS = st.integers(min_value=1_000, max_value=2_000_000)
GROUPINGS = st.sampled_from([str, lambda n: f"{n:,}", lambda n: f"{n:_}", lambda n: f"{n:,}".replace(",", "\u202f")])


def judged(message: str, status: int = 400) -> Verdict:
    return judge(ErrorReport(status, texts=[ErrorText("error.message", message)]))


@st.composite
def sizes(draw) -> tuple[int, int]:
    """A limit and a size that breaks it."""
    limit = draw(LIMITS)
    return limit, limit + draw(st.integers(min_value=1, max_value=limit))


SUBJECTS = ["prompt", "input", "Input", "conversation", "request", "messages"]
BOUNDS = ["maximum context length", "context window", "context limit", "maximum input length", "token limit"]
CHINESE_SUBJECTS = ["输入", "上下文", "提示词", "消息", "对话", "请求"]
CHINESE_BOUNDS = ["最大上下文长度", "模型上限", "模型支持的最大长度", "上下文窗口", "最大限制", "token上限"]
WORDS = st.tuples(*map(st.sampled_from, (ENGLISH, SUBJECTS, BOUNDS))) | st.tuples(
    *map(st.sampled_from, (CHINESE, CHINESE_SUBJECTS, CHINESE_BOUNDS))
)


@given(WORDS, sizes(), GROUPINGS)
def test_a_pair_keeps_its_roles_in_english_and_in_chinese(words, pair, grouped):
    (template, subject, bound), (limit, prompt) = words, pair
    verdict = judged(template.format(subject=subject, bound=bound, limit=grouped(limit), prompt=grouped(prompt)))
    assert (verdict.is_overflow, verdict.limit, verdict.prompt or verdict.requested) == (True, limit, prompt)


@given(st.sampled_from(JOINT), LIMITS, st.data())
def test_a_prompt_that_fits_without_its_reply_is_distinguished_from_one_that_does_not(template, limit, data):
    prompt = data.draw(st.integers(min_value=limit // 2 + 1, max_value=limit - 1))
    reply = data.draw(st.integers(min_value=limit - prompt + 1, max_value=limit - 1))
    verdict = judged(template.format(limit=limit, prompt=prompt, reply=reply, total=prompt + reply))
    assert verdict.kind is VerdictKind.PROMPT_PLUS_REPLY
    assert (verdict.limit, verdict.prompt, verdict.reply, verdict.requested) == (limit, prompt, reply, prompt + reply)


@given(st.sampled_from(RATES), sizes(), st.sampled_from([400, 413, 422, 429, 500, 503]))
def test_a_rate_limit_is_no_overflow_and_never_teaches(template, pair, status):
    verdict = judged(template.format(limit=pair[0], prompt=pair[1]), status)
    assert not verdict.is_overflow
    assert not verdict.limit_is_learnable
    assert (verdict.limit is None) != verdict.is_over_rate


@given(st.sampled_from(RATES), sizes(), sizes(), st.booleans())
def test_a_rate_limit_beside_an_overflow_lends_it_no_number(template, rate, pair, rate_first):
    limit, prompt = pair
    overflow = f"The prompt of {prompt} tokens exceeds the context window of {limit} tokens."
    sentences = [template.format(limit=rate[0], prompt=rate[1]), overflow]
    verdict = judged(" ".join(sentences if rate_first else reversed(sentences)))
    assert (verdict.is_overflow, verdict.limit, verdict.prompt) == (True, limit, prompt)


@pytest.mark.parametrize(
    ("message", "is_conditional", "in_results"),
    [
        ("image inputs are not supported with n > 1", True, False),
        ("image input is not supported", False, False),
        ("image urls are only allowed for role user, but this message with role tool has an image", False, True),
    ],
)
def test_a_refusal_of_media_may_have_a_condition_or_be_about_tool_results(
    message: str, is_conditional: bool, in_results: bool
):
    verdict = refused(400, message)
    assert (verdict.kind, verdict.is_conditional) == (VerdictKind.MEDIA, is_conditional)
    assert verdict.refuses_in_results is in_results
