"""`may_be_echoed`: what a client wrote is no evidence, however its upstream repeats it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import judge, may_be_echoed

SENTENCE = "This model's maximum context length is {limit} tokens. However, your messages resulted in {count} tokens."


def echoed(request: object, text: str = SENTENCE.format(limit=4096, count=9000)) -> bool:
    verdict = judge(400, [], json.dumps({"error": {"message": text}}).encode())
    assert verdict.limit == 4096
    return may_be_echoed(verdict, request if isinstance(request, bytes) else json.dumps(request).encode())


def test_numbers_that_only_the_upstream_wrote_are_its_own():
    assert not echoed({"messages": [{"role": "user", "content": "Why 4096, and not 9000? The length is 2048 tokens."}]})
    assert not may_be_echoed(judge(400, [], b'{"error": "prompt is too long"}'), b'{"model": "prompt is too long"}')


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
@pytest.mark.parametrize("ascii_only", [True, False])
def test_numbers_with_a_word_beside_them_that_stand_in_the_request_may_be_the_clients(content: str, ascii_only: bool):
    body = {"messages": [{"role": "user", "content": content}]}
    assert echoed(json.dumps(body, ensure_ascii=ascii_only).encode())


def test_grouped_numbers_are_looked_for_as_they_were_printed():
    text = "maximum context length is 4,096 tokens, you sent 9,000"
    assert echoed({"model": "of 4,096 tokens,"}, text)
    assert not echoed({"model": "of 4096 tokens,"}, text)


@pytest.mark.parametrize("ascii_only", [True, False])
def test_numbers_beside_a_word_beyond_ascii_are_found_however_they_were_escaped(ascii_only: bool):
    body = json.dumps({"error": {"message": "输入 9000 tokens 超过上限 4096 tokens"}}).encode()
    request = json.dumps({"content": "超过上限 4096"}, ensure_ascii=ascii_only).encode()
    assert judge(400, [], body, request=request).may_be_echo


def test_a_word_that_is_no_text_beside_a_number_is_no_error():
    text = "maximum context length is 4096 \ud800 tokens, but the prompt has 9000 tokens"
    assert judge(400, [], json.dumps({"error": {"message": text}}).encode(), request=b"{}").limit_is_learnable


def test_escapes_that_hide_plain_letters_or_digits_are_taken_for_anything():
    assert echoed(b'{"model": "\\u0034096 tokens"}')
    assert not echoed(b'{"model": "a \\u003c b \\u0026 c"}'), "Go escapes these"


@given(st.integers(1_000, 10**7), st.integers(1, 10**6), st.text(max_size=20), st.text(max_size=20))
def test_a_refusal_that_was_copied_into_the_request_is_always_found(limit, more, before, after):
    text = SENTENCE.format(limit=limit, count=limit + more)
    verdict = judge(400, [], json.dumps({"error": {"message": text}}).encode())
    assert verdict.limit == limit
    for ascii_only in (True, False):
        request = json.dumps({"content": before + text + after}, ensure_ascii=ascii_only)
        assert may_be_echoed(verdict, request.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("title", ["Error", "\x00", "E4"])
def test_a_short_word_beside_a_refusal_is_no_echo(title: str):
    text = SENTENCE.format(limit=4_096, count=9_000)
    body = json.dumps({"title": title, "detail": text}).encode()
    assert judge(400, [], body, request=b'{"model": "m", "messages": []}').limit_is_learnable
