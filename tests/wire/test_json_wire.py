from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.overflow import VerdictKind
from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS
from proxy.errors import BodyTooLarge, ContextOverflow
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.json_wire import JsonWire, OwnTool, error_body, error_in_body
from proxy.wire.messages.wire import MESSAGES
from proxy.wire.responses.wire import RESPONSES

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


LONG = "a" * 2_000


def asked(wire, **members):
    listed = "input" if wire is RESPONSES else "messages"
    return wire.parse(json.dumps({"model": "m", **{listed: []}, **members}).encode())


@pytest.mark.parametrize("wire", [CHAT_COMPLETIONS, MESSAGES, RESPONSES], ids=lambda wire: wire.path)
def test_long_members_are_those_that_nothing_else_counts(wire):
    request = asked(
        wire,
        tools=[{"name": LONG}],
        metadata={"a": LONG},
        client_metadata={"a": LONG},
        user="x",
        a_new_one={"a": LONG},
    )
    assert list(wire.long_members(request)) == ["a_new_one"]
    assert wire.long_members(request)["a_new_one"] == json.dumps({"a": LONG}).encode()


@pytest.mark.parametrize(("wire", "name"), [(MESSAGES, "system"), (RESPONSES, "instructions")])
def test_a_system_text_is_no_other_member(wire, name):
    assert not wire.long_members(asked(wire, **{name: LONG}))


@pytest.mark.parametrize(
    ("wire", "members"),
    [
        (CHAT_COMPLETIONS, {"web_search_options": {"search_context_size": "low"}}),
        (CHAT_COMPLETIONS, {"search_parameters": {"mode": "auto"}}),
        (CHAT_COMPLETIONS, {"enable_search": True}),
        (CHAT_COMPLETIONS, {"plugins": [{"id": "web"}]}),
        (CHAT_COMPLETIONS, {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "browser_search"}]}),
        (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (MESSAGES, {"tools": [{"type": "web_fetch_20250910", "name": LONG * 200}]}),
        (MESSAGES, {"mcp_servers": [{"type": "url", "url": "https://x"}]}),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
        (RESPONSES, {"tools": [{"type": "mcp", "server_label": "x"}]}),
        (RESPONSES, {"tools": [{"type": "file_search"}]}),
        (RESPONSES, {"previous_response_id": "resp_1"}),
    ],
)
def test_a_request_to_which_the_upstream_adds_is_known_by_its_members_and_tools(wire, members):
    assert wire.adds_to_prompt(asked(wire, **members))


@pytest.mark.parametrize(
    ("wire", "members"),
    [
        (CHAT_COMPLETIONS, {}),
        (CHAT_COMPLETIONS, {"tools": None, "web_search_options": None, "enable_search": False, "plugins": []}),
        (
            CHAT_COMPLETIONS,
            {"tools": [{"type": "function", "function": {"name": "search"}}, {"type": "custom"}, 7]},
        ),
        (CHAT_COMPLETIONS, {"tools": {"a": 1}}),
        (CHAT_COMPLETIONS, {"tools": [{"type": 7, "function": {}}]}),
        (MESSAGES, {"tools": [{"name": "ls", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]}),
        (MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}),
        (RESPONSES, {"tools": [{"type": "function", "name": "f"}, {"type": "local_shell"}]}),
    ],
)
def test_a_request_whose_tools_the_client_runs_is_the_whole_prompt(wire, members):
    assert not wire.adds_to_prompt(asked(wire, **members))


@pytest.mark.parametrize(
    ("wire", "content", "found"),
    [
        (CHAT_COMPLETIONS, [{"type": "file", "file": {"file_id": "f"}}], True),
        (CHAT_COMPLETIONS, '"file_id"', False),
        (MESSAGES, [{"type": "document", "source": {}}], True),
        (MESSAGES, [{"type": "image", "source": {}}], False),
        (RESPONSES, [{"type": "input_file"}], True),
        (RESPONSES, [{"type": "input_text", "text": "an input_file"}], False),
    ],
)
def test_the_cost_of_a_file_is_unknown_in_all_later_turns_too(wire, content, found):
    name = "input" if wire is RESPONSES else "messages"
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "x"}]
    first = asked(wire, **{name: messages})
    assert wire.adds_to_prompt(first) is found
    body = json.dumps({"model": "m", name: [*messages, {"role": "user", "content": "go on"}]}).encode()
    shared = first.shared_messages(body)
    assert shared
    assert wire.adds_to_prompt(wire.parse(body, first, shared)) is found


def test_on_other_wires_no_header_lifts_the_window():
    assert not CHAT_COMPLETIONS.asks_for_a_longer_window([(b"anthropic-beta", b"context-1m-2025-08-07")])


@pytest.mark.parametrize(
    ("model", "is_lifted", "known_as"), [("c", False, "c"), ("c", True, "c[1m]"), ("c[1m]", True, "c[1m]")]
)
def test_lessons_about_a_lifted_model_have_a_name_of_their_own(model, is_lifted, known_as):
    request = MESSAGES.parse(json.dumps({"model": model, "messages": []}).encode())
    assert replace(request, is_lifted=is_lifted).known_as == known_as


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
