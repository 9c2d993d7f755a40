from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import (
    ArtifactStoreUnavailable,
    BodyTooLarge,
    ContextOverflow,
    MalformedRequest,
    MissingKey,
    UnknownPath,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.wire.messages.errors import error_body, error_in_body, error_in_stream


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MalformedRequest("x"), "invalid_request_error"),
        (MissingKey("x"), "authentication_error"),
        (UnknownPath("x"), "not_found_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (UpstreamUnreachable("x"), "api_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (ArtifactStoreUnavailable("x"), "overloaded_error"),
    ],
)
def test_errors_of_the_proxy_have_the_types_of_the_api(error, kind):
    body = json.loads(error_body(error, "req-1"))
    assert body == {"type": "error", "error": {"type": kind, "message": "x"}, "request_id": "req-1"}


def test_a_request_without_a_number_is_given_none():
    assert "request_id" not in json.loads(error_body(MalformedRequest("x")))


def test_an_overflow_is_told_in_the_one_sentence_that_clients_know():
    error = ContextOverflow("words", sizes=(9, 7), advice="Shorten it.")
    told = json.loads(error_body(error))["error"]
    assert told == {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 7 maximum. Shorten it."}


def test_an_overflow_of_which_no_size_is_known_is_told_in_its_own_words():
    assert json.loads(error_body(ContextOverflow("words")))["error"]["message"] == "words"


OWN = b'{"type": "error", "error": {"type": "x",\n "message": "y"}}'


@pytest.mark.parametrize(("status", "body"), [(400, OWN), (529, b" " + OWN), (200, b'{"type":"message"}')])
def test_an_error_of_the_api_and_a_message_stay_the_very_bytes(status, body):
    assert error_in_body(status, body) is body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"no","type":"BadRequestError"}}', "no"),
        (b'{"error":"no"}', "no"),
        (b'{"message":"no"}', "no"),
        (b'{"detail":"no"}', '{"detail":"no"}'),
        (b"<html>no</html>", "<html>no</html>"),
        (b"", "HTTP 400"),
    ],
)
def test_what_is_no_error_of_the_api_becomes_one_with_the_same_words(body, message):
    assert json.loads(error_in_body(400, body)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
    }


def test_a_page_of_html_is_quoted_by_its_beginning():
    assert len(json.loads(error_in_body(502, b"<html>" * 10_000))["error"]["message"]) == 2_000


@given(st.integers(400, 599), st.one_of(st.binary(max_size=100), st.just(OWN)))
def test_an_error_ends_a_stream_as_one_event_in_one_line(status, body):
    name, data, *rest = error_in_stream(status, body).split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert b"\r" not in data
    assert json.loads(data.removeprefix(b"data: "))["type"] == "error"
