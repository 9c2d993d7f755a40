"""The model's message that goes back upstream with the results of our calls, and errors in a stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import read

from proxy.core.conversation import ToolCall
from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.errors import ContextOverflow
from proxy.wire import error_body
from proxy.wire.responses import RESPONSES, ReplyBody, ResponsesMessage

# Errors


def event_data(status, body):
    """The data of both events, which stand under their names."""
    first, second, rest = RESPONSES.error_in_stream(status, body).split(b"\n\n")
    assert rest == b""
    found = []
    for one in (first, second):
        name, data = one.split(b"\n")
        found.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


def test_an_error_in_a_stream_reaches_every_kind_of_client():
    error = ContextOverflow("too long", param="input")
    first, second = event_data(400, error_body(error))
    assert (first["type"], first["code"], first["param"]) == ("error", "context_length_exceeded", "input")
    assert first["message"] == second["response"]["error"]["message"] == "too long"
    assert (second["type"], second["response"]["status"]) == ("response.failed", "failed")
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
    first, second = event_data(503, json.dumps({"error": error}).encode())
    assert (first["code"], first["message"]) == (code, message)
    assert second["response"]["error"] == {"code": failed_with, "message": message}


@given(st.integers(400, 599), st.binary(max_size=60))
def test_whatever_an_upstream_sent_the_stream_ends_with_its_words(status, body):
    first, second = event_data(status, b"?" + body)
    assert first["code"] == str(status)
    assert first["message"] == second["response"]["error"]["message"] == (b"?" + body).decode("utf-8", "replace")


# Results that are missing


def missing_result(*calls):
    message = ResponsesMessage.read(b", ".join(json.dumps(call).encode() for call in calls))
    return json.loads(RESPONSES.missing_result(message, message.calls[-1], "interrupted"))


FETCH = {"type": "function_call", "call_id": "f", "name": "fetch", "arguments": '{"n": 1}'}
FAILED = {"stdout": "", "stderr": "interrupted", "outcome": {"type": "exit", "exit_code": 1}}


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"type": "function_call", "name": "ls", "arguments": "{}"}, {"type": "function_call_output"}),
        ({"type": "custom_tool_call", "name": "exec", "input": "ls"}, {"type": "custom_tool_call_output"}),
        ({"type": "apply_patch_call", "operation": {}}, {"type": "apply_patch_call_output", "status": "failed"}),
        ({"type": "shell_call", "action": {}}, {"type": "shell_call_output", "output": [FAILED]}),
        ({"type": "teleport_call"}, {"type": "function_call_output"}),
        ({"type": "local_shell_call", "id": "x", "action": {}}, {"type": "function_call_output"}),
    ],
)
def test_a_call_that_lacks_its_result_gets_one_of_the_type_that_belongs_to_it(call, answer):
    assert missing_result(FETCH, {**call, "call_id": "c"}) == {"call_id": "c", "output": "interrupted", **answer}


def test_a_local_shell_without_a_call_id_is_answered_by_its_item():
    answer = {"type": "local_shell_call_output", "id": "c", "output": "interrupted"}
    assert missing_result({"type": "local_shell_call", "id": "c", "action": {}}) == answer


def test_a_call_that_is_not_there_gets_the_result_of_a_function():
    made = RESPONSES.missing_result(RESPONSES.message(b"{}"), ToolCall("c", "ls"), "interrupted")
    assert json.loads(made) == {"type": "function_call_output", "call_id": "c", "output": "interrupted"}


# The model's message

OWN = {"type": "function_call", "call_id": "o", "name": RETRIEVAL_TOOL, "arguments": '{"id": "x"}'}
EXEC = {"type": "custom_tool_call", "call_id": "e", "name": "exec", "input": "ls"}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
NAMED = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]}
PLAIN = {"type": "reasoning", "id": "rs_3", "content": [{"type": "reasoning_text", "text": "hm"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1"}


def items(*made):
    return [json.dumps(item).encode() for item in made]


def said(*made):
    return read(ReplyBody(), json.dumps({"status": "completed", "output": made}).encode())


def words(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_our_calls_are_separated_from_the_clients():
    found = said(SEALED, FETCH, SEARCH, OWN, EXEC)
    assert [(call.id, call.arguments) for call in found.own] == [("o", '{"id": "x"}')]
    assert list(found.others) == items(FETCH, EXEC)
    assert found.message == b",".join(items(SEALED, FETCH, SEARCH, OWN, EXEC))


@pytest.mark.parametrize(
    "item", [{**EXEC, "name": RETRIEVAL_TOOL}, {**OWN, "name": "read_artifacts"}, {**OWN, "type": 7}, "x", None]
)
def test_a_call_is_ours_only_as_a_function_with_the_very_name(item):
    assert said(item) is None
    assert [call.id for call in said(item, OWN).own] == ["o"]


def test_reasoning_that_only_its_server_knows_is_not_sent_back_as_the_server_keeps_nothing():
    assert said(SEALED, NAMED, PLAIN, OWN).message == b",".join(items(SEALED, PLAIN, OWN))


def test_what_a_person_may_read_is_the_words_of_all_messages():
    assert said(NAMED, words("a"), OWN, words("b")).texts == {"content": "a\n\nb"}
    assert said(NAMED, words(""), OWN).texts == {}


@pytest.mark.parametrize(("arguments", "read"), [({"id": "x"}, '{"id":"x"}'), (None, "null")])
def test_arguments_that_are_no_text_are_written_as_json(arguments, read):
    assert [call.arguments for call in said({**OWN, "arguments": arguments}).own] == [read]
