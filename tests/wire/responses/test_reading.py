"""Which items of an input belong together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.wire.request import Request
from proxy.wire.responses.wire import PART_UNSEEN, RESPONSES, SHAPE

USER = {"role": "user", "content": "go"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}


def call(name: str = "a", kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "name": "ls", "arguments": "{}"}


def output(name: str = "a", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "output": f"of {name}"}


def read(*items: Any, **members: Any) -> Request:
    return RESPONSES.parse(json.dumps({"model": "m", "input": items, **members}).encode())


def told(*items: Any) -> list[tuple[str, int]]:
    """Role and number of items of each message."""
    return [(message.role, len(message.items())) for message in read(*items).conversation]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([THOUGHT, call(), output()], [("assistant", 2), ("tool", 1)]),
        ([THOUGHT, WORDS, call(), call("b"), output("b"), output()], [("assistant", 4), ("tool", 1), ("tool", 1)]),
        ([call(), THOUGHT, call("b"), output(), output("b")], [("assistant", 3), ("tool", 1), ("tool", 1)]),
        ([THOUGHT, SEARCH, THOUGHT, WORDS], [("assistant", 2), ("assistant", 2)]),
        ([SEARCH, SEARCH, WORDS], [("assistant", 1)] * 3),
        ([THOUGHT, SEARCH, SEARCH, WORDS], [("assistant", 4)]),
        ([WORDS, call(), output()], [("assistant", 2), ("tool", 1)]),
        ([THOUGHT, {"type": "hologram"}, WORDS], [("assistant", 3)]),
        ([WORDS, {"type": "hologram"}, WORDS], [("assistant", 1), ("item", 1), ("assistant", 1)]),
        ([{"id": "msg_1"}, {"type": "compaction"}], [("reference", 1), ("reference", 1)]),
        ([{"type": "additional_tools", "tools": []}, {"type": "configuration_update"}], [("developer", 1)] * 2),
    ],
)
def test_what_the_model_did_in_one_go_is_one_message(items: list[Any], messages: list[tuple[str, int]]) -> None:
    assert told(USER, *items) == [("user", 1), *messages]


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        (call(kind="local_shell_call") | {"id": "lsh_1"}, {"type": "local_shell_call_output", "id": "lsh_1"}),
        ({"type": "mcp_approval_request", "id": "m"}, {"type": "mcp_approval_response", "approval_request_id": "m"}),
        (call(kind="teleport_call"), output(kind="teleport_call_output")),
    ],
)
def test_an_output_names_its_call_in_the_way_of_its_kind(asks: Any, answers: Any) -> None:
    messages = read(USER, asks, answers).conversation
    assert messages[1].calls[0].id == messages[2].answers != ""


def test_what_stands_between_a_call_and_its_outputs_goes_with_them() -> None:
    messages = read(USER, call(), call("p", "program"), output("p", "program_output"), WORDS, output()).conversation
    assert [message.is_companion for message in messages] == [False, False, False, True, False]


def test_what_a_person_says_there_keeps_all_of_it() -> None:
    messages = read(USER, call(), USER, output(), call("b"), output("b")).conversation
    assert [message.must_stay for message in messages] == [False, True, True, True, False, False]


def test_an_id_that_is_used_again_is_another_call() -> None:
    messages = read(USER, call(), output(), USER, call(), output()).conversation
    assert not any(message.must_stay or message.is_companion for message in messages)


def test_an_output_that_comes_late_makes_the_whole_be_read_again() -> None:
    items = [USER, call(kind="custom_tool_call"), output(kind="custom_tool_call_output"), USER]
    known = read(*items)
    later = [*items, output(kind="custom_tool_call_output"), USER]
    body = json.dumps({"model": "m", "input": later}).encode()
    shared = known.shared_messages(body)
    request = RESPONSES.parse(body, known, shared)
    assert shared == 4
    assert request.conversation == read(*later).conversation
    assert request.conversation[1] is not known.conversation[1]


@pytest.mark.parametrize("items", [[USER, {"type": "item_reference", "id": "x"}], [USER, {"id": "x"}]])
def test_what_only_the_server_knows_is_no_measure(items: list[Any]) -> None:
    assert read(*items).shape is PART_UNSEEN
    assert read(USER).shape is SHAPE
    assert read(USER, prompt={"id": "p"}).shape is PART_UNSEEN
    longer = json.dumps({"model": "m", "input": [*items, call(), output()]}).encode()
    known = read(*items, call(), output())
    assert RESPONSES.parse(longer, known, known.shared_messages(longer)).shape is PART_UNSEEN


def test_tools_that_come_as_items_count_as_tools() -> None:
    tools = [{"type": "namespace", "name": "fs", "tools": [{"name": "cat"}]}, {"type": "custom", "name": "exec"}]
    request = read({"type": "additional_tools", "role": "developer", "tools": tools}, USER, tools=[{"name": "ls"}])
    assert RESPONSES.tool_names(RESPONSES.tools(request)) == ["ls", "cat", "exec"]
    assert request.conversation[0].text() == ""


def test_sealed_thoughts_count_about_as_much_as_they_hold() -> None:
    sealed = {**THOUGHT, "encrypted_content": "g" * 8_000}
    assert len(read(USER, sealed, call(), output()).conversation[1].text()) > 2_000
    assert read(USER, {**THOUGHT, "content": [{"text": "hm"}]}, WORDS).conversation[1].text() == "hm\nso"


def test_what_cannot_be_told_counts_by_its_bytes() -> None:
    assert read({"type": "hologram", "light": 7}).conversation[0].text() == '{"type": "hologram", "light": 7}'


def test_an_image_that_the_model_has_made_counts_as_one() -> None:
    (message,) = read({"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo="}).conversation
    assert message.images == 1
    assert "iVBOR" not in message.text()
    assert RESPONSES.may_hold_images(message.raw)
