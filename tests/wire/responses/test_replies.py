from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.errors import ContextOverflow
from proxy.wire import error_body
from proxy.wire.responses.replies import (
    CONTENT,
    ResponseUsage,
    error_in_stream,
    is_own_call,
    missing_result,
    reply_in,
    result_of,
    written,
)

# Counts

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(
    lambda prompt, reply, cached: {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": reply,
        "output_tokens_details": {"reasoning_tokens": reply // 2},
        "total_tokens": prompt + reply,
    },
    COUNTS, COUNTS, COUNTS,
)  # fmt: skip
ROUNDS = st.lists(USAGES, min_size=1, max_size=4)


def over(rounds):
    usage = ResponseUsage()
    for one in rounds:
        usage.add(one)
    return usage


@given(ROUNDS)
def test_usage_covers_the_clients_own_prompt_and_everything_the_model_wrote(rounds):
    written = sum(one["output_tokens"] for one in rounds)
    assert over(rounds[:-1]).for_client(rounds[-1]) == {
        "input_tokens": rounds[0]["input_tokens"],
        "input_tokens_details": rounds[0]["input_tokens_details"],
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": sum(one["output_tokens"] // 2 for one in rounds)},
        "total_tokens": rounds[0]["input_tokens"] + written,
    }


@given(ROUNDS)
def test_the_record_holds_the_tokens_of_all_rounds_under_the_names_that_it_has_for_every_wire(rounds):
    assert over(rounds[:-1]).totals(rounds[-1]) == {
        "prompt_tokens": sum(one["input_tokens"] for one in rounds),
        "completion_tokens": sum(one["output_tokens"] for one in rounds),
        "total_tokens": sum(one["total_tokens"] for one in rounds),
    }


# Errors


def event_data(status, body):
    """The data of both events, which stand under their names."""
    first, second, rest = error_in_stream(status, body).split(b"\n\n")
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
    first, second = event_data(503, json.dumps({"error": error}).encode())
    assert (first["code"], first["message"]) == (code, message)
    assert second["response"]["error"] == {"code": failed_with, "message": message}


@given(st.integers(400, 599), st.binary(max_size=60))
def test_whatever_an_upstream_sent_the_stream_ends_with_its_words(status, body):
    first, second = event_data(status, b"?" + body)
    assert first["code"] == str(status)
    assert first["message"] == second["response"]["error"]["message"] == (b"?" + body).decode("utf-8", "replace")


def test_an_event_is_listed_by_its_name():
    assert (
        written({"type": "error", "message": "é\n"})
        == 'event: error\ndata: {"type":"error","message":"é\\n"}\n\n'.encode()
    )


# The model's message


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ({"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}, "function_call_output"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "ls"}, "custom_tool_call_output"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {}}, "apply_patch_call_output"),
        ({"type": "shell_call", "call_id": "c", "action": {}}, "shell_call_output"),
        ({"type": "local_shell_call", "id": "c", "action": {}}, "local_shell_call_output"),
        ({"type": "local_shell_call", "id": "x", "call_id": "c", "action": {}}, "function_call_output"),
    ],
)
def test_a_call_that_lacks_its_result_gets_one_of_the_type_that_belongs_to_it(call, answer):
    other = {"type": "function_call", "call_id": "other", "name": "ls", "arguments": "{}"}
    made = json.loads(missing_result(f"{json.dumps(other)},{json.dumps(call)}".encode(), "c", "interrupted"))
    assert made["type"] == answer
    assert made.get("call_id", made.get("id")) == "c"
    assert "interrupted" in json.dumps(made["output"])


def items(*made):
    return [json.dumps(item).encode() for item in made]


def parsed_reply(*made, is_stored=False):
    return reply_in(items(*made), is_stored=is_stored)


OWN = {"type": "function_call", "call_id": "o", "name": RETRIEVAL_TOOL, "arguments": '{"id": "x"}'}
FETCH = {"type": "function_call", "call_id": "f", "name": "fetch", "arguments": '{"n": 1}'}
EXEC = {"type": "custom_tool_call", "call_id": "e", "name": "exec", "input": "ls"}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
NAMED = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1"}


def words(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_our_calls_are_separated_from_the_clients_by_their_place_among_all_calls():
    found = parsed_reply(SEALED, FETCH, SEARCH, OWN, EXEC)
    assert [(call.position, call.id, call.arguments) for call in found.own] == [(1, "o", '{"id": "x"}')]
    assert [call.raw for call in found.own] == items(OWN)
    assert list(found.others) == items(FETCH, EXEC)
    assert found.others_meant == [["f", "fetch", {"n": 1}], ["e", "exec", "ls"]]
    assert found.is_mixed
    assert found.message == b",".join(items(SEALED, FETCH, SEARCH, OWN, EXEC))


@pytest.mark.parametrize(
    "item", [{**EXEC, "name": RETRIEVAL_TOOL}, {**OWN, "name": "read_artifacts"}, {**OWN, "type": 7}, "x", None]
)
def test_a_call_is_ours_only_as_a_function_with_the_very_name(item):
    assert not is_own_call(item)
    assert parsed_reply(item).own == ()
    assert is_own_call(OWN)


def test_reasoning_that_only_its_server_knows_is_sent_back_to_no_server_that_keeps_nothing():
    plain = {"type": "reasoning", "id": "rs_3", "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert parsed_reply(SEALED, NAMED, plain, OWN).message == b",".join(items(SEALED, plain, OWN))
    assert parsed_reply(SEALED, NAMED, OWN, is_stored=True).message == b",".join(items(SEALED, NAMED, OWN))


def test_what_a_person_may_read_is_the_words_of_all_messages():
    assert parsed_reply(NAMED, words("a"), OWN, words("b")).texts == {CONTENT: "a\n\nb"}
    assert parsed_reply(NAMED, words(""), OWN).texts == {}


@pytest.mark.parametrize(("arguments", "read"), [({"id": "x"}, '{"id":"x"}'), (None, "null")])
def test_arguments_that_are_no_text_are_written_as_json(arguments, read):
    assert [call.arguments for call in parsed_reply({**OWN, "arguments": arguments}).own] == [read]


def test_a_result_names_its_call():
    assert json.loads(result_of("c", "é")) == {"type": "function_call_output", "call_id": "c", "output": "é"}


def test_a_call_that_is_not_there_or_unknown_gets_the_result_of_a_function():
    for calls in (b"", b'7,{"type":"teleport_call","call_id":"c"}', json.dumps(FETCH).encode()):
        assert missing_result(calls, "c", "interrupted") == result_of("c", "interrupted")


def test_a_patch_that_has_no_result_has_failed_and_so_has_a_command():
    patch, shell = (
        json.loads(missing_result(json.dumps({"type": kind, "call_id": "c"}).encode(), "c", "x"))
        for kind in ("apply_patch_call", "shell_call")
    )
    assert patch["status"] == "failed"
    assert shell["output"] == [{"stdout": "", "stderr": "x", "outcome": {"type": "exit", "exit_code": 1}}]
