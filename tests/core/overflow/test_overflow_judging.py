"""`judge`: status, codes, sentences, numbers and our own estimate, set against one another."""

import json

import pytest

from proxy.core.overflow import Exactness, Scope, Unit, Verdict, VerdictKind, judge

TOO_LONG = "The input (140012 tokens) is longer than the model's context length (131072 tokens)."


def refused(status: int = 400, /, message: str = "", headers=(), **members) -> Verdict:
    return judge(status, headers, json.dumps({"error": {"message": message, **members}}).encode())


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
    assert not refused(413, advice).is_overflow
    assert not refused(404, advice).is_overflow
    assert not refused(400, advice, headers=[(b"Retry-After", b"3")]).is_overflow
    assert not refused(400, "Too many requests. " + advice).is_overflow


def test_a_bound_in_tokens_outweighs_the_word_body():
    verdict = refused(413, "Request body too large for gpt-4o model. Max size: 8000 tokens.")
    assert (verdict.is_overflow, verdict.limit) == (True, 8000)


def test_a_code_proves_it_without_a_text_or_a_number():
    verdict = refused(400, "Bad request", type="input_too_long")
    assert (verdict.kind, verdict.evidence, verdict.confidence) == (VerdictKind.PROMPT, "error.type", 0.99)
    assert judge(400, [], b'{"code":"context_length_exceeded"}').evidence == "code"


def test_a_code_named_in_a_text_proves_it():
    assert refused(503, "litellm.ContextWindowExceededError: see the logs").is_overflow


def test_structured_numbers_prove_it_and_are_preferred():
    verdict = refused(400, "no room left", n_ctx=8192, n_prompt_tokens=9001)
    assert (verdict.kind, verdict.limit, verdict.prompt, verdict.limit_scope) == (
        VerdictKind.PROMPT,
        8192,
        9001,
        Scope.WINDOW,
    )
    alone = judge(400, [], b'{"n_ctx": 8192, "n_prompt_tokens": 9001}')
    assert (alone.kind, alone.limit, alone.evidence) == (VerdictKind.PROMPT, 8192, "n_ctx")
    assert verdict.evidence == "error.n_ctx"
    assert refused(400, TOO_LONG, max_input_tokens=100000).limit_scope is Scope.INPUT
    assert refused(400, TOO_LONG, n_prompt_tokens=140013).limit == 131072


def test_a_code_about_context_with_words_about_max_tokens_is_about_the_reply():
    verdict = refused(400, "max_tokens is too large: 9000.", code="context_length_exceeded")
    assert verdict.kind is VerdictKind.REPLY_ONLY


def test_a_code_against_yields_only_to_the_window_with_numbers():
    assert not refused(400, "The prompt is too long", code="rate_limit_exceeded").is_overflow
    assert refused(400, TOO_LONG, code="rate_limit_exceeded").is_overflow


def test_a_string_that_is_too_long_is_an_overflow_only_where_it_is_a_message():
    text = "Invalid 'messages[0].content': string too long. Expected maximum length 1000, but got 1500 instead."
    members = {"code": "string_above_max_length", "param": "messages[0].content"}
    verdict = refused(400, text, **members)
    assert (verdict.kind, verdict.limit, verdict.unit, verdict.limit_is_learnable) == (
        VerdictKind.PROMPT,
        1000,
        Unit.CHARS,
        False,
    )
    assert refused(400, text, **members | {"param": "messages[0].tool_calls[0].id"}).kind is VerdictKind.FIELD
    assert refused(400, **members).kind is VerdictKind.PROMPT


def test_a_number_of_a_provider_lifts_a_text_that_fits():
    assert judge(200, [], b'{"base_resp":{"status_code":1039,"status_msg":"token limit"}}').is_overflow
    assert not judge(200, [], b'{"base_resp":{"status_code":2013,"status_msg":"token limit"}}').is_overflow


def test_numbers_prove_what_no_sentence_says():
    assert refused(400, "Your turn has 9000 tokens; the context window is 8192 tokens").is_overflow


def test_prompt_and_reply_are_told_apart_by_their_numbers():
    template = (
        "maximum context length is 8192 tokens. However, you requested {} tokens "
        "({} in the messages, {} in the completion)"
    )
    joint = refused(400, template.format(8256, 8000, 256))
    assert (joint.kind, joint.limit, joint.prompt, joint.reply, joint.requested) == (
        VerdictKind.PROMPT_PLUS_REPLY, 8192, 8000, 256, 8256)  # fmt: skip
    assert refused(400, template.format(9256, 9000, 256)).kind is VerdictKind.PROMPT
    reply_alone = refused(400, template.format(8256, 64, 8192))
    assert (reply_alone.kind, reply_alone.limit, reply_alone.limit_is_learnable) == (
        VerdictKind.REPLY_ONLY,
        None,
        False,
    )
    assert refused(400, "prompt plus max_tokens exceed the context length, max_tokens=0").kind is VerdictKind.PROMPT


def test_what_bounds_prompt_and_reply_together_is_the_window():
    verdict = refused(400, "messages plus max_tokens exceed the limit of 8000 tokens")
    assert (verdict.kind, verdict.limit_scope) == (VerdictKind.PROMPT_PLUS_REPLY, Scope.WINDOW)


def test_a_missing_size_follows_from_the_other_two():
    verdict = refused(400, "prompt and completion exceed the limit of 4096: requested 5000, max_tokens: 1000")
    assert (verdict.prompt, verdict.reply, verdict.requested) == (4000, 1000, 5000)


def test_only_exact_limits_in_tokens_and_of_known_scope_are_learnable():
    assert refused(400, TOO_LONG).limit_is_learnable
    assert not refused(400, "Prompt exceeds the 256K context window").limit_is_learnable
    assert refused(400, "Input exceeds the maximum length of 1048576 characters").limit_is_learnable
    assert not refused(400, "Context window of 1048576 characters exceeded").limit_is_learnable
    assert not refused(400, "messages exceed the limit of 8000 tokens").limit_is_learnable
    assert not refused(429, "Limit 6000 tokens per minute").limit_is_learnable
    assert not refused(400, "Prompt is too long").limit_is_learnable


def test_a_lower_bound_of_the_prompt_leaves_the_limit_exact():
    message = (
        "This model's maximum context length is 40960 tokens. However, you requested 100 output tokens and your prompt "
        "contains at least 40861 input tokens, for a total of at least 40961 tokens."
    )
    verdict = refused(400, message)
    assert (verdict.exactness, verdict.limit_exactness) == (Exactness.AT_LEAST, Exactness.EXACT)
    assert (verdict.limit, verdict.limit_is_learnable) == (40960, True)


def test_one_refusal_of_the_reply_teaches_the_window():
    verdict = refused(
        400, "max_tokens=200000 cannot be greater than max_model_len=131072. Please request fewer output tokens."
    )
    assert (verdict.kind, verdict.limit, verdict.limit_is_learnable) == (VerdictKind.REPLY_ONLY, 131072, True)
    other = refused(400, "max_tokens=200000 cannot be greater than 131072.")
    assert (other.kind, other.limit) == (VerdictKind.REPLY_ONLY, None)


@pytest.mark.parametrize("status", [400, 413])
def test_an_empty_refusal_is_unknown_whatever_the_estimate(status: int):
    assert judge(status, [], b"", estimate_tokens=200_000, window_tokens=128_000).kind is VerdictKind.UNKNOWN


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (400, [(b"retry-after", b"1")], VerdictKind.RATE),
        (503, [(b"retry-after", b"1")], VerdictKind.TRANSIENT),
        (401, [], VerdictKind.AUTH),
        (500, [], VerdictKind.TRANSIENT),
        (404, [], VerdictKind.UNKNOWN),
        (413, [], VerdictKind.BYTES),
        (429, [], VerdictKind.RATE),
    ],
)
def test_an_answer_that_says_nothing_is_known_by_its_status(status: int, headers, kind: VerdictKind):
    assert refused(status, "Something went wrong here", headers=headers).kind is kind


def test_texts_speak_before_codes_and_codes_before_the_status():
    assert refused(429, "This request requires more credits", code="rate_limit_exceeded").kind is VerdictKind.QUOTA
    assert refused(400, "No", code="content_filter").kind is VerdictKind.POLICY


def test_the_message_is_the_upstreams_and_bounded():
    assert refused(400, TOO_LONG).upstream_message == TOO_LONG
    assert refused(400, "Nothing of that kind. " * 500).upstream_message.startswith("Nothing of that kind.")
    assert len(refused(400, "The prompt is too long. " * 500).upstream_message) == 2_000


def test_repeated_texts_cost_nothing_and_endless_ones_are_not_read():
    long = [f"{index} " + "No. " * 1_030 for index in range(9)]
    assert judge(400, [], json.dumps({"errors": [*long, TOO_LONG]}).encode()).kind is VerdictKind.UNKNOWN
    assert judge(400, [], json.dumps({"errors": [*long[:1] * 9, TOO_LONG]}).encode()).is_overflow


def test_a_success_is_accepted_and_its_errors_are_not():
    answer = {"choices": [{"message": {"content": TOO_LONG}, "finish_reason": "stop"}]}
    assert judge(200, [], json.dumps(answer).encode()).kind is VerdictKind.ACCEPTED
    first_event = f"data: {json.dumps({'error': {'message': TOO_LONG}})}\n\n".encode()
    assert judge(200, [], first_event).limit == 131072


def test_a_success_in_plain_text_needs_strong_words_and_few():
    text = "An error occurred (validationException): Input is too long for requested model."
    assert judge(200, [], text.encode()).is_overflow
    assert judge(200, [], b"Token limit exceeded").kind is VerdictKind.ACCEPTED
    assert judge(200, [], text.encode() * 99).kind is VerdictKind.ACCEPTED


def test_finish_reasons_that_mean_a_full_window():
    def finished(reason: str, prompt: int | None, reply: int, window: int | None) -> Verdict:
        usage = {"prompt_tokens": prompt, "completion_tokens": reply}
        body = {"choices": [{"finish_reason": reason}], "usage": usage if prompt else None}
        return judge(200, [], json.dumps(body).encode(), window_tokens=window)

    assert finished("model_context_window_exceeded", None, 0, None).kind is VerdictKind.PROMPT
    assert finished("length", 8190, 0, 8192).prompt == 8190
    assert finished("length", 8190, 5, 8192).kind is VerdictKind.ACCEPTED
    assert finished("length", 4000, 0, 8192).kind is VerdictKind.ACCEPTED
    assert finished("length", 8190, 0, None).kind is VerdictKind.ACCEPTED


NOTHINGS = [
    b"",
    b"data: [DONE]\n\n",
    b"{}",
    b'{"choices": []}',
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
    b": hi\n\n",
]
"""llama-cpp-python refuses like this: https://github.com/abetlen/llama-cpp-python/issues/1498"""


@pytest.mark.parametrize("body", NOTHINGS)
def test_a_success_that_holds_nothing_is_suspect_when_the_request_is_long(body: bytes):
    def answered(**known) -> tuple[VerdictKind, bool]:
        verdict = judge(200, [], body, **known)
        assert not verdict.is_overflow
        return verdict.kind, verdict.is_suspect

    assert answered(estimate_tokens=8000, window_tokens=8192) == (VerdictKind.EMPTY, True)
    assert answered(estimate_tokens=4000, window_tokens=8192) == (VerdictKind.EMPTY, False)
    assert answered(estimate_tokens=4000, window_tokens=128_000, window_is_certain=False) == (VerdictKind.EMPTY, True)
    assert answered(estimate_tokens=400, window_tokens=128_000, window_is_certain=False) == (VerdictKind.EMPTY, False)
    assert answered() == (VerdictKind.EMPTY, False)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "usage": {"prompt_tokens": 9000, "completion_tokens": 0}},
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        {"type": "ping"},
    ],
)
def test_usage_and_empty_messages_are_answers(body):
    for raw in (json.dumps(body), f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"):
        assert judge(200, [], raw.encode(), estimate_tokens=9000, window_tokens=9000).kind is VerdictKind.ACCEPTED


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error": {"code": 400, "message": ""}}', b"  \n"])
@pytest.mark.parametrize("status", [400, 413])
def test_a_refusal_without_a_word_is_suspect_only_of_a_long_request_to_a_model_nobody_knows(status: int, body: bytes):
    def is_suspect(tokens: int, *, certain: bool) -> bool:
        verdict = judge(status, [], body, estimate_tokens=tokens, window_tokens=128_000, window_is_certain=certain)
        assert verdict.kind is VerdictKind.UNKNOWN
        return verdict.is_suspect

    assert is_suspect(40_000, certain=False)
    assert not is_suspect(1_000, certain=False)
    assert not is_suspect(127_000, certain=True)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, b"", []),
        (422, b"", []),
        (404, b"", []),
        (400, b"", [(b"retry-after", b"1")]),
        (400, b"Bad Request", []),
        (400, b'{"error": {"code": "invalid_value", "message": ""}}', []),
    ],
)
def test_a_refusal_with_a_word_or_of_another_kind_is_not_suspect(status: int, body: bytes, headers):
    assert not judge(status, headers, body, estimate_tokens=40_000, window_is_certain=False).is_suspect


PLAIN = [
    "Prompt is too long",
    "Your input exceeds the context window of this model.",
    "the input length exceeds the context length",
    "Prompt exceeds max length",
]


@pytest.mark.parametrize("words", PLAIN)
@pytest.mark.parametrize("certain", [True, False])
def test_plain_words_are_believed_whatever_the_estimate_is(words: str, certain: bool):
    body = json.dumps({"error": {"message": words}}).encode()
    for tokens in (100, 10_000, 100_000):
        assert judge(
            400, [], body, estimate_tokens=tokens, window_tokens=128_000, window_is_certain=certain
        ).is_overflow


@pytest.mark.parametrize(
    "words", ["Token limit exceeded", "The text is too long", "length limit exceeded", "超过最大长度"]
)
def test_vague_words_are_doubted_far_below_what_the_model_surely_takes(words: str):
    body = json.dumps({"error": {"message": words}}).encode()

    def is_overflow(tokens: int, *, certain: bool) -> bool:
        return judge(
            400, [], body, estimate_tokens=tokens, window_tokens=128_000, window_is_certain=certain
        ).is_overflow

    assert not is_overflow(10_000, certain=True)
    assert is_overflow(100_000, certain=True)
    assert is_overflow(10_000, certain=False), "a window that nobody states is no evidence"
    assert not is_overflow(500, certain=False)
    proven = json.dumps({"error": {"message": words, "code": "context_length_exceeded"}}).encode()
    assert judge(400, [], proven, estimate_tokens=500, window_tokens=128_000).is_overflow


TPM = (
    "Request too large for model `m` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): "
    "Limit {limit}, Requested {requested}, please reduce your message size and try again."
)
"""https://github.com/continuedev/continue/issues/10218"""


@pytest.mark.parametrize("status", [413, 429, 200])
def test_a_request_that_is_over_a_rate_by_itself_says_by_how_much_and_teaches_nothing(status: int):
    body = json.dumps({"error": {"message": TPM.format(limit=6000, requested=14810), "type": "tokens"}}).encode()
    verdict = judge(status, [], body, estimate_tokens=14_000, window_tokens=128_000)
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


def test_a_limit_far_over_our_tokens_and_under_our_characters_is_one_of_characters():
    def read(text: str, tokens: int, chars: int | None) -> tuple[int | None, Unit | None, bool]:
        body = json.dumps({"error": {"message": text}}).encode()
        verdict = judge(400, [], body, estimate_tokens=tokens, chars=chars, window_is_certain=False)
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
    body = json.dumps({"error": {"message": TOO_LONG}}).encode()
    far_above = judge(400, [], body, estimate_tokens=10_000)
    assert (far_above.is_overflow, far_above.limit, far_above.prompt, far_above.limit_is_learnable) == (
        True,
        None,
        None,
        False,
    )
    far_below = judge(400, [], body, estimate_tokens=1_000_000)
    assert (far_below.limit, far_below.prompt) == (131072, None)
    near = judge(400, [], body, estimate_tokens=120_000)
    assert (near.limit, near.prompt) == (131072, 140012)
    no_size = judge(400, [], b'{"error":"Prompt exceeds maximum context length 4096"}', estimate_tokens=5_000)
    assert (no_size.limit, no_size.prompt) == (4096, None)


def test_characters_are_not_held_against_an_estimate_in_tokens():
    body = b'{"error":"Input exceeds the maximum length of 1048576 characters."}'
    verdict = judge(400, [], body, estimate_tokens=1_000)
    assert (verdict.limit, verdict.unit) == (1048576, Unit.CHARS)
