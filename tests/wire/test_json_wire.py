from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS
from proxy.errors import BodyTooLarge, ContextOverflow
from proxy.wire.json_wire import OwnTool, error_body, error_in_body

# Tool lists

DEFINITION = b'{"ours":1}'


class Reader:
    """Reads a list of names, and counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, tools):
        self.asked += 1
        return json.loads(tools) or []


def own_tool():
    reader = Reader()
    return OwnTool(DEFINITION, reader), reader


@pytest.mark.parametrize(
    ("tools", "made"),
    [
        (b'["weather"]', b'["weather",{"ours":1}]'),
        (b'[ "weather" , "x" ]', b'["weather" , "x",{"ours":1}]'),
        (b"[ ]", b'[{"ours":1}]'),
        (b"null", b'[{"ours":1}]'),
        (b'"weather"', None),
    ],
)
def test_the_tool_stands_at_the_end_and_what_the_client_wrote_keeps_its_bytes(tools, made):
    assert own_tool()[0].appended({"tools": tools}, "always") == made


@pytest.mark.parametrize("tools", [b"null", b"[]"])
def test_an_agent_without_tools_is_given_ours_only_where_it_always_is(tools):
    assert own_tool()[0].appended({"tools": tools}, "auto") is None
    assert own_tool()[0].appended({}, "auto") is None
    assert own_tool()[0].appended({}, "always") == b'[{"ours":1}]'


def test_an_operator_who_wants_no_tool_gets_none():
    own, reader = own_tool()
    assert own.appended({"tools": b'["weather"]'}, "never") is None
    assert reader.asked == 0


def test_the_tool_is_never_one_too_many_nor_beside_one_of_its_name():
    def appended(names):
        return own_tool()[0].appended({"tools": json.dumps(names).encode()}, "always")

    assert appended([RETRIEVAL_TOOL]) is None
    assert appended([f"weather_{number}" for number in range(MAX_TOOLS)]) is None
    assert appended([f"weather_{number}" for number in range(MAX_TOOLS - 1)]) is not None


@pytest.mark.parametrize(("length", "times"), [(10, 1), (300 * 1024, 2)])
def test_a_list_of_everyday_size_is_read_once_for_all_requests_of_its_agent(length, times):
    own, reader = own_tool()
    members = {"tools": json.dumps(["w" * length]).encode()}
    assert own.appended(members, "auto") == own.appended(dict(members), "auto")
    assert reader.asked == times


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
