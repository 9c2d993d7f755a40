"""Sentences and what they weigh: which refusal one states, and how strongly."""

from __future__ import annotations

import pytest

from proxy.core.overflow import ErrorCode, ErrorReport, ErrorText, Figures, VerdictKind, judge
from proxy.core.overflow.sentences import Strength, normalised, read_sentences, weigh


def read(text: str) -> list[tuple[VerdictKind, Strength]]:
    return [(reading.kind, reading.strength) for reading in read_sentences(normalised(text))]


@pytest.mark.parametrize(
    ("sentence", "kind", "strength"),
    [
        ("Context size has been exceeded", VerdictKind.PROMPT, Strength.STRONG),
        ("CONTEXT LENGTH EXCEEDED", VerdictKind.PROMPT, Strength.STRONG),
        ("输入长度超出模型上限", VerdictKind.PROMPT, Strength.STRONG),
        ("context shift is disabled", VerdictKind.PROMPT, Strength.STRONG),
        ("could not find a kv cache slot", VerdictKind.PROMPT, Strength.STRONG),
        ("slot context full", VerdictKind.PROMPT, Strength.STRONG),
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
        (
            "thinking.budget_tokens: Input should be greater than or equal to 1024",
            VerdictKind.REPLY_ONLY,
            Strength.NONE,
        ),
        (
            "The format of the value at messages.3.content.1.toolUse.input is invalid",
            VerdictKind.ARGUMENTS,
            Strength.NONE,
        ),
        ("Failed to parse function call args: unexpected end", VerdictKind.ARGUMENTS, Strength.NONE),
        ("parse error at line 1, column 13: syntax error while parsing value", VerdictKind.ARGUMENTS, Strength.NONE),
        ("parse error at line 1, column 13: surrogate U+D800", VerdictKind.SURROGATES, Strength.NONE),
        ("工具调用参数不是有效的JSON格式", VerdictKind.ARGUMENTS, Strength.NONE),
        ("Cannot transcode invalid UTF-16 string to UTF-8 JSON text", VerdictKind.SURROGATES, Strength.NONE),
        ("invalid message tokens: must be at least 1 token long", VerdictKind.EMPTY_CONTENT, Strength.NONE),
        ("messages.3.content: Field required", VerdictKind.EMPTY_CONTENT, Strength.NONE),
        ("Empty assistant message at index 3", VerdictKind.EMPTY_CONTENT, Strength.NONE),
        ("Too many cache points: 5, maximum 4", VerdictKind.CACHE_MARKS, Strength.NONE),
        ("A conversation must alternate between user and assistant roles", VerdictKind.ROLE_ORDER, Strength.NONE),
        ("user message is not allowed directly after tool message", VerdictKind.ROLE_ORDER, Strength.NONE),
        ("Consecutive user messages are not allowed", VerdictKind.ROLE_ORDER, Strength.NONE),
        ("Base64 decoding failed for thought_signature", VerdictKind.SEAL, Strength.NONE),
        ("Unable to verify the signature of the thinking block", VerdictKind.SEAL, Strength.NONE),
        (
            "Item 'rs_1' of type 'reasoning' was provided without its required following item",
            VerdictKind.SEAL,
            Strength.NONE,
        ),
        ("messages.1.content.0.tool_use.name: String should match pattern", VerdictKind.CALL_NAMES, Strength.NONE),
        ("Invalid 'input[2].name': string too long", VerdictKind.CALL_NAMES, Strength.NONE),
        ("Invalid 'tools[0].function.name': string does not match pattern '^a$'", VerdictKind.UNKNOWN, Strength.NONE),
        ("tools.0.custom.name: String should match pattern '^[a-z]{1,128}$'", VerdictKind.UNKNOWN, Strength.NONE),
        ("Invalid 'tools[0].function.name': string too long", VerdictKind.FIELD, Strength.NONE),
        ("Invalid 'tool_choice.function.name': string too long", VerdictKind.FIELD, Strength.NONE),
        ("Invalid 'messages[0].name': string does not match pattern", VerdictKind.UNKNOWN, Strength.NONE),
        ("Unknown parameter: 'input[5].status'", VerdictKind.OTHER_MEMBERS, Strength.NONE),
        ("Unknown parameter: 'input'", VerdictKind.UNKNOWN, Strength.NONE),
        ("Unknown parameter: 'messages_format'", VerdictKind.UNKNOWN, Strength.NONE),
        ("Unknown parameter: 'tools[0].strict'", VerdictKind.UNKNOWN, Strength.NONE),
        ("tools.0.custom.strict: Extra inputs are not permitted", VerdictKind.UNKNOWN, Strength.NONE),
        ("Malformed input request: extraneous key [top_k] is not permitted", VerdictKind.UNKNOWN, Strength.NONE),
        ("Not the same number of function calls and responses", VerdictKind.PAIRING, Strength.NONE),
        ("Unexpected tool call id call_1 in tool results", VerdictKind.PAIRING, Strength.NONE),
        ("tool result's tool id(call_1) not found (2013)", VerdictKind.PAIRING, Strength.NONE),
        ("Missing corresponding tool call for tool response message", VerdictKind.PAIRING, Strength.NONE),
        (
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn",
            VerdictKind.PAIRING,
            Strength.NONE,
        ),
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


def judged(status, message):
    return judge(ErrorReport(status, texts=[ErrorText("error.message", message)]))


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (400, "Invalid content type. image_url is only supported by certain models.", {"vision"}),
        (404, "No endpoints found that support image input", {"vision"}),
        (404, "No endpoints found that support input audio", {"audio"}),
        (422, "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 120041", {"vision"}),
        (422, "unknown variant `file`, expected one of `text`, `image_url`", {"file"}),
        (400, "Invalid value: 'input_audio'. Supported values are: 'text', 'image_url'.", {"audio"}),
        (500, "image input is not supported - hint: you may need to provide the mmproj", {"vision"}),
        (500, "audio input is not supported - hint: you may need to provide the mmproj", {"audio"}),
        (400, "google/gemma-2b is not a multimodal model", set()),
        (400, "This model is text-only", set()),
        (400, "Model only supports text input", set()),
        (400, "The model `x` has no vision capability", {"vision"}),
        (400, "画像入力はサポートされていません", {"vision"}),
        (400, "Este modelo no admite imágenes", {"vision"}),
        (400, "Dieses Modell unterstützt keine Bilder", {"vision"}),
        (400, "At most 0 image(s) may be provided in one prompt.", {"vision"}),
        (400, "This model does not support image or video inputs.", {"vision", "video"}),
        (400, "This model does not support file inputs.", {"file"}),
        (415, "PDF documents are not supported", {"file"}),
        (400, "该模型不支持音频输入", {"audio"}),
    ],
)
def test_a_refusal_of_media_names_the_kinds_that_the_model_does_not_read(status, message, refused):
    verdict = judged(status, message)
    assert verdict.kind is VerdictKind.MEDIA
    assert {kind.value for kind in verdict.refused} == refused
    assert verdict.refuses_model


@pytest.mark.parametrize(
    "message",
    [
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "unsupported image format: image/tiff is not supported",
        "The image could not be processed: images in role 'tool' are not supported.",
        "Unsupported MIME type: image/x-icon; images of it are not supported",
    ],
)
def test_a_refusal_of_one_content_says_nothing_of_the_model(message):
    verdict = judged(400, message)
    assert verdict.kind is VerdictKind.MEDIA
    assert not verdict.refuses_model


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "At most 5 image(s) may be provided in one prompt.", VerdictKind.COUNT),
        (400, "Image is too large: 9000 pixels", VerdictKind.FIELD),
        (429, "Too many requests with images, which are not supported", VerdictKind.RATE),
    ],
)
def test_refusals_that_only_mention_media_stay_what_they_are(status, message, kind):
    assert judged(status, message).kind is kind


PROVEN = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
VAGUE = "The request is invalid."


def evidence_of(*texts: str, codes: tuple[str, ...] = (), stated: Figures = Figures()):  # noqa: B008 - it is frozen
    return weigh(
        ErrorReport(
            400,
            texts=[ErrorText(f"error.{number}", text) for number, text in enumerate(texts)],
            codes=[ErrorCode("error.code", code) for code in codes],
            stated=stated,
        )
    )


def test_the_most_informative_of_several_texts_wins_at_any_position():
    for texts in ((PROVEN, VAGUE), (VAGUE, PROVEN)):
        best = evidence_of(*texts).best
        assert best is not None
        assert best.source.text == PROVEN
        assert best.strength is Strength.STRONG
        assert best.figures.limit == 8_192


def test_a_text_that_every_relay_repeats_is_read_once():
    assert [text.source.path for text in evidence_of(PROVEN, PROVEN, VAGUE).texts] == ["error.0", "error.2"]


def test_texts_beyond_all_reason_are_not_read():
    assert evidence_of("x " * 10_000).texts == ()
    assert [text.source.text for text in evidence_of("too long " * 3_000, VAGUE).texts] == [VAGUE]


@pytest.mark.parametrize("named", ["context_length_exceeded", "ContextWindowExceededError"])
def test_a_code_proves_it_as_a_code_and_in_a_text(named):
    assert evidence_of(VAGUE, codes=(named,)).is_proven
    assert evidence_of(f"litellm.{named}: no").is_proven
    assert not evidence_of(VAGUE, codes=("invalid_request_error",)).is_proven


def test_sizes_that_an_answer_states_prove_it_where_they_break_the_limit():
    assert evidence_of(VAGUE, stated=Figures(limit=100, prompt=120)).is_proven
    assert not evidence_of(VAGUE, stated=Figures(limit=100, prompt=80)).is_proven
