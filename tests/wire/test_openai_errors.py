from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BodyTooLarge, ContextOverflow
from proxy.wire.openai_errors import error_body, error_in_body


def test_an_error_of_the_proxy_has_the_four_members_that_clients_of_openai_read():
    error = BodyTooLarge("100 bytes came, 10 are allowed")
    assert json.loads(error_body(error)) == {
        "error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    }


def test_a_second_refusal_carries_the_words_of_the_upstream():
    error = ContextOverflow("too long", upstream_message="say less")
    assert json.loads(error_body(error))["error"]["upstream"] == {"message": "say less"}
    assert "upstream" not in json.loads(error_body(ContextOverflow("too long")))["error"]


@pytest.mark.parametrize("body", [b'{"error": "x"}', b'{"error": {"message": "slow\\ndown"}, "more": 1}'])
def test_an_error_of_an_upstream_stays_the_very_bytes(body):
    assert error_in_body(429, body) is body


@given(st.integers(400, 599), st.binary(max_size=100))
def test_whatever_an_upstream_sent_the_client_gets_an_error_that_it_can_read(status, body):
    found = json.loads(error_in_body(status, b"?" + body))["error"]
    assert found["code"] == str(status)
    assert found["message"] == (b"?" + body).decode("utf-8", "replace")


def test_a_page_of_html_is_quoted_by_its_beginning():
    assert len(json.loads(error_in_body(502, b"<html>" * 10_000))["error"]["message"]) == 2_000
