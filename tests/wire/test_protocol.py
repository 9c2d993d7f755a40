from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.errors import ContextOverflow
from proxy.wire import error_body, error_in_body, repaired
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.responses import RESPONSES

CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ORPHAN = {"role": "tool", "tool_call_id": "c2", "content": "of no call"}
ASKED = {"role": "user", "content": "go on"}


def test_a_call_that_only_the_upstream_has_is_answered_by_the_id_in_its_refusal():
    body = {"model": "m", "previous_response_id": "resp_1", "input": [{"role": "user", "content": "go on"}]}
    request = RESPONSES.parse(json.dumps(body).encode())
    healed = repaired(RESPONSES, request, "No tool output found for function call call_7.", "it was interrupted")
    first = json.loads(healed.body)["input"][0]
    assert (first["type"], first["call_id"], first["output"]) == (
        "function_call_output",
        "call_7",
        "it was interrupted",
    )
    assert healed.healed == (0,)
    assert json.loads(healed.body)["previous_response_id"] == "resp_1"


def test_a_second_result_of_one_call_stays_only_where_the_wire_allows_several():
    again = {"role": "tool", "tool_call_id": "c1", "content": "once more"}
    once = {"role": "tool", "tool_call_id": "c1", "content": "first"}
    chat = CHAT_COMPLETIONS.parse(json.dumps({"messages": [ASKED, CALLED, once, again, ORPHAN]}).encode())
    messages = repaired(CHAT_COMPLETIONS, chat, "", "it was interrupted").conversation.messages
    assert [message.text() for message in messages if message.role == "tool"] == ["first"]

    items = [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "first"},
        {"type": "function_call_output", "call_id": "c1", "output": "once more"},
        {"type": "function_call_output", "call_id": "c2", "output": "of no call"},
    ]
    responses = RESPONSES.parse(json.dumps({"input": items}).encode())
    messages = repaired(RESPONSES, responses, "", "it was interrupted").conversation.messages
    assert messages == responses.conversation.messages[:3]


@pytest.mark.parametrize("wire", [CHAT_COMPLETIONS, RESPONSES])
def test_a_key_is_a_bearer_token(wire):
    assert wire.credentials("sk-1") == [(b"authorization", b"Bearer sk-1")]


@pytest.mark.parametrize(
    ("members", "tools"), [({"tools": [{"x": 1.0}]}, b'[{"x": 1.0}]'), ({}, b""), ({"tools": None}, b"null")]
)
def test_the_tool_list_is_the_member_as_the_client_wrote_it(members, tools):
    request = CHAT_COMPLETIONS.parse(json.dumps({"model": "m", "messages": [], **members}).encode())
    assert CHAT_COMPLETIONS.tools(request) == tools
    assert CHAT_COMPLETIONS.left_to_the_upstream(request) == {}


LONG = "a" * 2_000


def parsed(wire, **members):
    listed = "input" if wire is RESPONSES else "messages"
    return wire.parse(json.dumps({"model": "m", **{listed: []}, **members}).encode())


@pytest.mark.parametrize("wire", [CHAT_COMPLETIONS, MESSAGES, RESPONSES], ids=lambda wire: wire.path)
def test_long_members_are_those_that_nothing_else_counts(wire):
    request = parsed(
        wire, tools=[{"name": LONG}], metadata={"a": LONG}, client_metadata={"a": LONG}, user="x", a_new_one={"a": LONG}
    )
    assert list(wire.long_members(request)) == ["a_new_one"]
    assert wire.long_members(request)["a_new_one"] == json.dumps({"a": LONG}).encode()


@pytest.mark.parametrize(("wire", "name"), [(MESSAGES, "system"), (RESPONSES, "instructions")])
def test_a_system_text_is_no_other_member(wire, name):
    assert not wire.long_members(parsed(wire, **{name: LONG}))


RUN_BY_THE_CLIENT = {"type": "function", "function": {"name": "search"}}


@pytest.mark.parametrize(
    ("adds", "wire", "members"),
    [
        (True, CHAT_COMPLETIONS, {"web_search_options": {"search_context_size": "low"}}),
        (True, CHAT_COMPLETIONS, {"search_parameters": {"mode": "auto"}}),
        (True, CHAT_COMPLETIONS, {"enable_search": True}),
        (True, CHAT_COMPLETIONS, {"plugins": [{"id": "web"}]}),
        (
            True,
            CHAT_COMPLETIONS,
            {"tools": [RUN_BY_THE_CLIENT, {"type": "browser_search"}]},
        ),
        (True, MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (True, MESSAGES, {"tools": [{"type": "web_fetch_20250910", "name": LONG * 200}]}),
        (True, MESSAGES, {"mcp_servers": [{"type": "url", "url": "https://x"}]}),
        (True, MESSAGES, {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
        (True, RESPONSES, {"tools": [{"type": "mcp", "server_label": "x"}]}),
        (True, RESPONSES, {"tools": [{"type": "file_search"}]}),
        (True, RESPONSES, {"previous_response_id": "resp_1"}),
        (False, CHAT_COMPLETIONS, {}),
        (False, CHAT_COMPLETIONS, {"tools": None, "web_search_options": None, "enable_search": False, "plugins": []}),
        (
            False,
            CHAT_COMPLETIONS,
            {"tools": [RUN_BY_THE_CLIENT, {"type": "custom"}, 7]},
        ),
        (False, CHAT_COMPLETIONS, {"tools": {"a": 1}}),
        (False, CHAT_COMPLETIONS, {"tools": [{"type": 7, "function": {}}]}),
        (False, MESSAGES, {"tools": [{"name": "ls", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]}),
        (False, MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}),
        (False, RESPONSES, {"tools": [{"type": "function", "name": "f"}, {"type": "local_shell"}]}),
    ],
)
def test_a_request_to_which_the_upstream_adds_is_known_by_its_members_and_tools(adds, wire, members):
    assert wire.adds_to_prompt(parsed(wire, **members)) is adds


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
    first = parsed(wire, **{name: messages})
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


@pytest.mark.parametrize(
    ("wire", "listed", "most"),
    [
        (CHAT_COMPLETIONS, "messages", "max_tokens"),
        (MESSAGES, "messages", "max_tokens"),
        (RESPONSES, "input", "max_output_tokens"),
    ],
    ids=["chat", "messages", "responses"],
)
def test_given_members_replace_received_ones_and_the_others_keep_their_bytes(wire, listed, most):
    request = wire.parse(f'{{"model": "m", "{listed}": [{{"role":"user"}}], "seed":  7.0, "{most}": 9}}'.encode())
    assert request.reply_tokens == 9
    rendered = wire.render(request, [], {most: b"5"})
    assert json.loads(rendered) == {"model": "m", listed: [], "seed": 7.0, most: 5}
    assert b"7.0" in rendered
