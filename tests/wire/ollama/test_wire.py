from __future__ import annotations

import json

import pytest

from proxy.core.overflow import Sent, VerdictKind
from proxy.errors import MalformedRequest
from proxy.wire.ollama import OLLAMA

TASK = {"role": "user", "content": "Go."}


def parsed(**members):
    return OLLAMA.parse(json.dumps({"model": "m", "messages": [TASK], **members}).encode())


def test_a_missing_result_names_its_tool_and_cites_an_id_only_if_there_is_one():
    calls = (
        [{"function": {"name": "a", "arguments": {}}}],
        [{"id": "call_1", "function": {"name": "a", "arguments": {}}}],
    )
    for written, cited in zip(calls, ({}, {"tool_call_id": "call_1"}), strict=True):
        message = parsed(messages=[{"role": "assistant", "tool_calls": written}]).conversation[0]
        found = json.loads(OLLAMA.missing_result(message, message.calls[0], "none"))
        assert found == {"role": "tool", "tool_name": "a", **cited, "content": "none"}


END = (
    b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
    b'"prompt_eval_count":26,"eval_count":5}\n'
)
WORD = b'{"model":"m","message":{"role":"assistant","content":"Hi"},"done":false}\n'


SENT = Sent(20_000, 80_000, 8_000, True, has_user_text=True)
NATIVE = json.dumps(
    {
        "error": {
            "code": 400,
            "message": "request (26528 tokens) exceeds the available context size (16384 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 26528,
            "n_ctx": 16384,
        }
    }
)


@pytest.mark.parametrize(
    ("status", "reported", "kind"),
    [
        (200, WORD + END, VerdictKind.ACCEPTED),
        (200, WORD.replace(b"Hi", b"the prompt is too long: it exceeds the context length"), VerdictKind.ACCEPTED),
        (200, b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}', VerdictKind.ACCEPTED),
        (200, b'{"error":"prompt too long; exceeded max context length by 451 tokens"}\n', VerdictKind.PROMPT),
        (400, json.dumps({"error": NATIVE}).encode(), VerdictKind.PROMPT),
        (500, b'{"error":"no user query found in messages"}', VerdictKind.PROMPT),
        (404, b'{"error":"model \'x\' not found"}', VerdictKind.NOT_FOUND),
    ],
)
def test_a_response_is_judged_by_its_words_and_never_by_the_models(status, reported, kind):
    assert OLLAMA.judged(status, [], reported, sent=SENT, request=b"{}").kind is kind


def test_a_limit_in_a_string_in_a_string_is_read():
    reported = json.dumps({"error": NATIVE}).encode()
    assert OLLAMA.judged(400, [], reported, sent=SENT, request=b"{}").limit == 16_384


def test_an_error_is_a_text_whatever_it_was():
    assert json.loads(OLLAMA.error(MalformedRequest("no"))) == {"error": "no"}
    assert OLLAMA.error_in_body(400, b'{"error":"no"}') == b'{"error":"no"}'
    assert OLLAMA.error_in_body(400, b'{"error":{"message":"no"}}') == b'{"error":"no"}'
    assert OLLAMA.error_in_body(503, b"") == b'{"error":"HTTP 503"}'
    assert OLLAMA.error_in_body(200, END) == END
    assert OLLAMA.error_in_stream(502, b"Bad\nGateway") == b'{"error":"Bad\\nGateway"}\n'


def test_messages_that_are_null_stay_null():
    request = parsed(messages=None)
    members = {"options": b'{"num_ctx": 9}'}
    assert json.loads(OLLAMA.render(request, request.conversation.messages, members)) == {
        "model": "m",
        "messages": None,
        "options": {"num_ctx": 9},
    }
