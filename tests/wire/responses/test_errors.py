from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ContextOverflow
from proxy.wire.openai_errors import error_body
from proxy.wire.responses.errors import error_in_stream, event


def told(status, body):
    """The data of both events, which stand under their names."""
    first, second, rest = error_in_stream(status, body).split(b"\n\n")
    assert rest == b""
    found = []
    for one in (first, second):
        name, data = one.split(b"\n")
        found.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


def test_an_error_in_a_stream_is_told_to_all_kinds_of_clients():
    error = ContextOverflow("too long", param="input")
    first, second = told(400, error_body(error))
    assert (first["type"], first["code"], first["param"]) == ("error", "context_length_exceeded", "input")
    assert first["message"] == second["response"]["error"]["message"] == "too long"
    assert second["type"] == "response.failed"
    assert second["response"]["status"] == "failed"
    assert second["response"]["error"]["code"] == "context_length_exceeded"
    assert [first["sequence_number"], second["sequence_number"]] == [0, 1]


@pytest.mark.parametrize(
    ("error", "code", "failed_with", "message"),
    [
        ({"code": "rate_limit", "message": "slow down"}, "rate_limit", "rate_limit", "slow down"),
        ({"code": 429, "message": "slow down"}, "429", "server_error", "slow down"),
        ({"code": None}, "503", "server_error", "HTTP 503"),
        ({"code": ["x"], "message": {"y": 1}}, "503", "server_error", "HTTP 503"),
        ("full", "503", "server_error", "full"),
    ],
)
def test_a_response_fails_with_a_code_of_the_api_and_never_with_a_number(error, code, failed_with, message):
    first, second = told(503, json.dumps({"error": error}).encode())
    assert (first["code"], first["message"]) == (code, message)
    assert second["response"]["error"] == {"code": failed_with, "message": message}


@given(st.integers(400, 599), st.binary(max_size=60))
def test_whatever_an_upstream_sent_the_stream_ends_with_its_words(status, body):
    first, second = told(status, b"?" + body)
    assert first["code"] == str(status)
    assert first["message"] == second["response"]["error"]["message"] == (b"?" + body).decode("utf-8", "replace")


def test_an_event_stands_under_its_name():
    assert (
        event({"type": "error", "message": "é\n"})
        == 'event: error\ndata: {"type":"error","message":"é\\n"}\n\n'.encode()
    )
