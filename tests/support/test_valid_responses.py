"""Each rule of the Responses API once kept and once broken, with the words that the API has for it."""

from __future__ import annotations

from typing import Any

import pytest

from support.valid_responses import PAIRS, complaints

USER = {"role": "user", "content": "Look."}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA1"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}


def call(name: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "ls", "arguments": "{}", **more}


def result(name: str = "call_1", output: Any = "a.py", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output, **more}


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    content = list(parts) or [{"type": "output_text", "text": "a.py"}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def body(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **more}


def shell(**piece: Any) -> list[dict[str, Any]]:
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    return [USER, call, {"type": "shell_call_output", "call_id": "c", "output": [piece]}]


def seen(output: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}}
    return [USER, call, {"type": "computer_call_output", "call_id": "c", "output": output}]


RULES = {
    "a model is named": (body(USER), {"input": "Look."}, "Missing required parameter: 'model'."),
    "there is an input": (body(USER), body(), "Missing required parameter: 'input'."),
    "the history is held in one place": (
        body(USER, previous_response_id="resp_1"),
        body(USER, previous_response_id="resp_1", conversation="conv_1"),
        "Mutually exclusive parameters: Ensure you are only providing one of: 'previous_response_id' or "
        "'conversation'.",
    ),
    "a role is known": (
        body({"role": "developer", "content": "Be brief."}, USER),
        body({"role": "tool", "content": "a.py"}),
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
    ),
    "the assistant says output": (
        body(USER, message()),
        body(USER, message({"type": "input_text", "text": "a.py"})),
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
    ),
    "the user says input": (
        body({"role": "user", "content": [{"type": "input_text", "text": "Look."}]}),
        body({"role": "user", "content": [{"type": "text", "text": "Look."}]}),
        "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_file' and 'input_audio'.",
    ),
    "a result is a text or parts": (
        body(USER, call(), result(output=[PICTURE])),
        body(USER, call(), result(output=[{"type": "output_text", "text": "a.py"}])),
        "Invalid value: 'output_text'.",
    ),
    "a picture has an address": (
        body({"role": "user", "content": [PICTURE]}),
        body({"role": "user", "content": [PICTURE | {"image_url": "iVBORw0KGgo="}]}),
        "Invalid 'input[0].content[0].image_url'. Expected a valid URL, but got a value with an invalid format.",
    ),
    "a call has its id": (
        body(USER, call(), result()),
        body(USER, call("")),
        "Missing required parameter: 'input[1].call_id'.",
    ),
    "a result has an output": (
        body(USER, call(), result()),
        body(USER, call(), {"type": "function_call_output", "call_id": "call_1"}),
        "Missing required parameter: 'input[2].output'.",
    ),
    "an id of a call is short": (
        body(USER, call("c" * 64), result("c" * 64)),
        body(USER, call("c" * 65), result("c" * 65)),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with "
        "length 65 instead.",
    ),
    "an id begins as its kind": (
        body(USER, call(id="fc_1"), result()),
        body(USER, call(id="call_1"), result()),
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
    ),
    "an id is there once": (
        body(USER, message(id="msg_1"), message(id="msg_2")),
        body(USER, message(id="msg_1"), message(id="msg_1")),
        "Duplicate item found with id msg_1. Remove duplicate items from your input and try again.",
    ),
    "a call is there once": (
        body(USER, call("call_1"), call("call_2"), result("call_1"), result("call_2")),
        body(USER, call("call_1"), call("call_1"), result("call_1")),
        "Duplicate 'call_id': call_1",
    ),
    "a result follows its call": (
        body(USER, call(), result()),
        body(USER, result(), call(), result()),
        "No tool call found for function call output with call_id call_1.",
    ),
    "a result comes without its call only if the server holds it": (
        body(result(), previous_response_id="resp_1"),
        body(result()),
        "No tool call found for function call output with call_id call_1.",
    ),
    "a result is of its call's kind": (
        body({"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1"}, result()),
        body({"type": "custom_tool_call", "call_id": "call_1", "name": "exec", "input": "1"}, result()),
        "No tool call found for function call output with call_id call_1.",
    ),
    "a custom tool may have two results": (
        body(
            {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "1"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "2"},
        ),
        body({"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "1"}),
        "No tool output found for custom tool call c.",
    ),
    "a piece of a shell's output is whole": (
        body(*shell(stdout="a.py", stderr="", outcome={"type": "exit", "exit_code": 0})),
        body(*shell(stdout="a.py")),
        "Missing required parameter: 'input[2].output[0].stderr'.",
    ),
    "what a computer shows is a picture": (
        body(*seen({"type": "computer_screenshot", "image_url": PICTURE["image_url"]})),
        body(*seen({"type": "input_text", "text": "[a picture]"})),
        "Invalid value: 'input_text'. Supported values are: 'computer_screenshot'.",
    ),
    "reasoning has what follows it": (
        body(USER, THOUGHT, call(), result()),
        body(USER, THOUGHT, USER),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning does not end": (
        body(USER, THOUGHT, message()),
        body(USER, THOUGHT),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "what a program calls has its program": (
        body(
            {"type": "program", "call_id": "p", "code": "ls()"},
            call(caller={"type": "program", "caller_id": "p"}),
            result(caller={"type": "program", "caller_id": "p"}),
            {"type": "program_output", "call_id": "p", "result": "a.py"},
        ),
        body(call(caller={"type": "program", "caller_id": "p"}), result()),
        "No program found for function_call with caller_id p.",
    ),
    "what asks for a summary is last": (
        body(USER, {"type": "compaction_trigger"}),
        body({"type": "compaction_trigger"}, USER),
        "'compaction_trigger' must be the last item of 'input'.",
    ),
}


@pytest.mark.parametrize(("valid", "broken", "words"), RULES.values(), ids=RULES)
def test_a_broken_rule_is_reported(valid, broken, words):
    assert complaints(valid) == []
    assert [reported for reported in complaints(broken) if reported.startswith(words)], complaints(broken)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.call)
def test_a_call_of_any_kind_has_its_result(pair):
    call = {"type": pair.call, "id": "x_1", "call_id": "c"}
    answer = {"type": pair.result, "call_id": "c", "output": "a.py"}
    answer |= {pair.result_key: "x_1"} if pair.result_key == "id" else {}
    answer |= {"output": [{"stdout": "", "stderr": "", "outcome": {}}]} if pair.call == "shell_call" else {}
    answer |= {"output": {"type": "computer_screenshot"}} if pair.call == "computer_call" else {}
    named = call | {"id": {"function_call": "fc_1", "custom_tool_call": "ctc_1"}.get(pair.call, "x_1")}
    assert complaints(body(USER, named, answer)) == []
    assert complaints(body(USER, named)) == [f"No tool output found for {pair.what} c."]
    alone = answer[pair.result_key]
    assert complaints(body(USER, answer)) == [f"No tool call found for {pair.what} output with call_id {alone}."]


def test_a_search_for_tools_may_have_no_id():
    found = [
        {"type": "tool_search_call", "call_id": None},
        {"type": "tool_search_output", "call_id": None, "tools": []},
    ]
    assert complaints(body(USER, *found)) == []


SAID = [[THOUGHT, call(id="fc_1")]]


def test_reasoning_goes_with_the_call_that_it_led_to():
    assert complaints(body(USER, *SAID[0], result()), SAID) == []
    assert complaints(body(USER), SAID) == []
    assert complaints(body(USER, call(id="fc_1"), result()), SAID) == [
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."
    ]


def test_what_reasoning_hides_comes_back_as_it_was():
    changed = THOUGHT | {"encrypted_content": "gAAAA2"}
    assert (
        "The encrypted content gAAAA2... could not be verified. Reason: Encrypted content could not be decrypted or "
        "parsed." in complaints(body(USER, changed, call(id="fc_1"), result()), SAID)
    )
