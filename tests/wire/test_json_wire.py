from __future__ import annotations

import json

import pytest

from proxy.core.overflow import VerdictKind
from proxy.errors import ContextOverflow
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.json_wire import JsonWire

WIRE = JsonWire()


def test_a_key_is_a_bearer_token():
    assert WIRE.credentials("sk-1") == [(b"authorization", b"Bearer sk-1")]


@pytest.mark.parametrize(
    ("members", "tools"),
    [({"tools": [{"x": 1.0}]}, b'[{"x": 1.0}]'), ({}, b""), ({"tools": None}, b"null")],
)
def test_the_tool_list_is_the_member_as_the_client_wrote_it(members, tools):
    request = CHAT_COMPLETIONS.parse(json.dumps({"model": "m", "messages": [], **members}).encode())
    assert WIRE.tools(request) == tools
    assert WIRE.left_to_the_upstream(request) == {}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
            VerdictKind.PROMPT,
        ),
        ("prompt is too long: 5000 tokens > 4096 maximum", VerdictKind.PROMPT),
        ("Incorrect API key provided", VerdictKind.AUTH),
    ],
)
def test_a_refusal_is_known_by_the_words_of_any_server(message, kind):
    body = json.dumps({"error": {"message": message}}).encode()
    assert WIRE.judged(400, [], body, sent=None, request=b"{}").kind is kind


def test_errors_have_the_shape_of_openai():
    assert json.loads(WIRE.error(ContextOverflow("too long"), "id"))["error"]["code"] == "context_length_exceeded"
    assert json.loads(WIRE.error_in_body(502, b"<html>"))["error"]["message"] == "<html>"
