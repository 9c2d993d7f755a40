"""`judge_answer`: bodies as upstreams send them, and requests that some of them repeat."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import Scope, Sent, Verdict, VerdictKind
from proxy.wire.error_bodies import judge_answer
from proxy.wire.error_bodies.judging import RequestText

TOO_LONG = "The input (140012 tokens) is longer than the model's context length (131072 tokens)."
SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


def refused(message: str, request: bytes = b"", status: int = 400, **members: object) -> Verdict:
    return judge_answer(status, [], json.dumps({"error": {"message": message, **members}}).encode(), request=request)


def test_a_success_is_accepted_and_its_errors_are_not():
    answer = {"choices": [{"message": {"content": TOO_LONG}, "finish_reason": "stop"}]}
    assert judge_answer(200, [], json.dumps(answer).encode()).kind is VerdictKind.ACCEPTED
    first_event = f"data: {json.dumps({'error': {'message': TOO_LONG}})}\n\n".encode()
    assert judge_answer(200, [], first_event).limit == 131072


def test_a_success_in_plain_text_needs_strong_words_and_few():
    text = "An error occurred (validationException): Input is too long for requested model."
    assert judge_answer(200, [], text.encode()).is_overflow
    assert judge_answer(200, [], b"Token limit exceeded").kind is VerdictKind.ACCEPTED
    assert judge_answer(200, [], text.encode() * 99).kind is VerdictKind.ACCEPTED


def test_members_of_an_error_are_taken_for_what_they_are():
    verdict = refused("no room left", n_ctx=8192, n_prompt_tokens=9001)
    assert (verdict.kind, verdict.limit, verdict.limit_scope, verdict.evidence) == (
        VerdictKind.PROMPT,
        8192,
        Scope.WINDOW,
        "error.n_ctx",
    )
    code = "string_above_max_length"
    assert refused("A string too long", code=code, param="messages[0].content").kind is VerdictKind.PROMPT
    assert refused("A string too long", code=code, param="messages[0].tool_calls[0].id").kind is VerdictKind.FIELD
    assert refused(TOO_LONG, param="messages[0].role").kind is VerdictKind.FIELD
    assert not refused(TOO_LONG, status=429, code="rate_limit_exceeded").is_overflow


def test_an_ending_that_means_a_full_window():
    body = {"choices": [{"finish_reason": "model_context_window_exceeded"}], "usage": {"prompt_tokens": 8190}}
    verdict = judge_answer(200, [], json.dumps(body).encode())
    assert (verdict.kind, verdict.prompt, verdict.evidence) == (VerdictKind.PROMPT, 8190, "finish_reason")


NOTHINGS = [
    b"",
    b"data: [DONE]\n\n",
    b"{}",
    b'{"choices": []}',
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\ndata: [DONE]\n\n',
    b": hi\n\n",
]
"""llama-cpp-python refuses like this: https://github.com/abetlen/llama-cpp-python/issues/1498"""


@pytest.mark.parametrize("body", NOTHINGS)
def test_a_success_that_holds_nothing_is_suspect_when_the_request_is_long(body: bytes):
    def is_suspect(tokens: int) -> bool:
        verdict = judge_answer(200, [], body, sent=Sent(tokens, window_tokens=8192))
        assert verdict.kind is VerdictKind.EMPTY
        return verdict.is_suspect

    assert is_suspect(8000)
    assert not is_suspect(4000)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "usage": {"prompt_tokens": 9000, "completion_tokens": 0}},
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"type": "ping"},
    ],
)
def test_usage_and_empty_messages_are_answers(body):
    for raw in (json.dumps(body), f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"):
        assert judge_answer(200, [], raw.encode(), sent=Sent(9000, window_tokens=9000)).kind is VerdictKind.ACCEPTED


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error": {"code": 400, "message": ""}}', b"  \n"])
@pytest.mark.parametrize("status", [400, 413])
def test_a_refusal_without_a_word_is_suspect_of_a_long_request_to_a_model_nobody_knows(status: int, body: bytes):
    verdict = judge_answer(status, [], body, sent=Sent(40_000, window_is_certain=False))
    assert (verdict.kind, verdict.is_suspect) == (VerdictKind.UNKNOWN, True)


def test_numbers_that_only_the_upstream_wrote_are_its_own():
    text = SENTENCE.format(limit=4096, count=9000)
    words = {"messages": [{"role": "user", "content": "Why 4096, and not 9000? The length is 2048 tokens."}]}
    assert not refused(text, json.dumps(words).encode()).may_be_echo


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("content", [SENTENCE.format(limit=4096, count=9000), "中文 4096 tokens. 中文"])
def test_numbers_that_stand_in_the_request_may_be_the_clients(content: str, ascii_only: bool):
    request = json.dumps({"content": content}, ensure_ascii=ascii_only).encode()
    verdict = refused(SENTENCE.format(limit=4096, count=9000), request)
    assert (verdict.limit, verdict.may_be_echo, verdict.limit_is_learnable) == (4096, True, False)


@pytest.mark.parametrize("ascii_only", [True, False])
def test_numbers_beside_a_word_beyond_ascii_are_found_however_they_were_escaped(ascii_only: bool):
    request = json.dumps({"content": "超过上限 4096"}, ensure_ascii=ascii_only).encode()
    assert refused("输入 9000 tokens 超过上限 4096 tokens", request).may_be_echo


def test_escapes_that_hide_plain_letters_or_digits_are_taken_for_anything():
    text = SENTENCE.format(limit=4096, count=9000)
    assert refused(text, b'{"model": "\\u0034096 tokens"}').may_be_echo
    assert not refused(text, b'{"model": "a \\u003c b \\u0026 c"}').may_be_echo, "Go escapes these"


def test_a_word_that_is_no_text_beside_a_number_is_no_error():
    text = "maximum context length is 4096 \ud800 tokens, but the prompt has 9000 tokens"
    assert refused(text, b'{"model": "m"}').limit_is_learnable


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    for ascii_only in (True, False):
        request = json.dumps({"content": before + text + after}, ensure_ascii=ascii_only)
        assert RequestText(request.encode("utf-8", "surrogatepass")).holds(text)
        assert refused(text, request.encode("utf-8", "surrogatepass")).may_be_echo


@pytest.mark.parametrize("title", ["Error", "\x00", "E4"])
def test_a_short_word_beside_a_refusal_is_no_echo(title: str):
    body = json.dumps({"title": title, "detail": SENTENCE.format(limit=4_096, count=9_000)}).encode()
    assert judge_answer(400, [], body, request=b'{"model": "m", "messages": []}').limit_is_learnable
