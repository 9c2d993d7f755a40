"""Which items of an input belong together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.conversation import Message
from proxy.wire.responses import RESPONSES

USER = {"role": "user", "content": "go"}
INSTRUCTIONS = {"role": "developer", "content": "be brief"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}


def call(name: str = "a", kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "name": "ls", "arguments": "{}"}


def output(name: str = "a", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "output": f"of {name}"}


def read(*items: Any, **members: Any) -> list[Message]:
    """The messages, which hold all the items."""
    found = list(RESPONSES.parse(json.dumps({"model": "m", "input": items, **members}).encode()).conversation)
    assert sum(len(message.items()) for message in found) == len(items)
    return found


def roles_and_sizes(*items: Any) -> list[tuple[str, int]]:
    """Role and number of items of each message."""
    return [(message.role, len(message.items())) for message in read(*items)]


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
        ([THOUGHT, {}, WORDS], [("assistant", 1), ("item", 1), ("assistant", 1)]),
        ([WORDS, {"type": "hologram"}, WORDS], [("assistant", 1), ("item", 1), ("assistant", 1)]),
        ([{"id": "msg_1"}, {"type": "compaction"}], [("reference", 1), ("reference", 1)]),
        ([{"type": "additional_tools", "tools": []}, {"type": "configuration_update"}], [("item", 1)] * 2),
    ],
)
def test_what_the_model_did_in_one_go_is_one_message(items: list[Any], messages: list[tuple[str, int]]) -> None:
    assert roles_and_sizes(USER, *items) == [("user", 1), *messages]


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        (call(kind="local_shell_call") | {"id": "lsh_1"}, {"type": "local_shell_call_output", "id": "lsh_1"}),
        ({"type": "mcp_approval_request", "id": "m"}, {"type": "mcp_approval_response", "approval_request_id": "m"}),
        (call(kind="teleport_call"), output(kind="teleport_call_output")),
    ],
)
def test_an_output_names_its_call_in_the_way_of_its_kind(asks: Any, answers: Any) -> None:
    messages = read(USER, asks, answers)
    assert messages[1].calls[0].id == messages[2].answers != ""


def test_items_between_a_call_and_its_outputs_go_with_them() -> None:
    messages = read(USER, call(), call("p", "program"), output("p", "program_output"), WORDS, output())
    assert [message.is_companion for message in messages] == [False, False, False, True, False]


def test_what_a_person_says_there_keeps_all_of_it() -> None:
    messages = read(USER, call(), USER, output(), call("b"), output("b"))
    assert [message.must_stay for message in messages] == [False, True, True, True, False, False]


def test_an_id_that_is_used_again_is_another_call() -> None:
    messages = read(USER, call(), output(), USER, call(), output())
    assert not any(message.must_stay or message.is_companion for message in messages)


def test_exchanges_that_overlap_are_one() -> None:
    messages = read(USER, call(), call("b"), output("b"), THOUGHT, call("c"), output(), WORDS, output("c"), WORDS)
    assert [index for index, message in enumerate(messages) if message.is_companion] == [3, 5]
    assert len(messages) == 8


def test_what_a_person_says_in_one_of_them_keeps_all_of_them() -> None:
    messages = read(call(), call("b"), output("b"), call("c"), output(), USER, output("c"), WORDS)
    assert [message.must_stay for message in messages] == [True] * 6 + [False]


def test_a_word_of_the_model_behind_an_exchange_is_its_own() -> None:
    messages = read(USER, call(), output(), WORDS)
    assert not any(message.must_stay or message.is_companion for message in messages)


def test_an_unknown_item_belongs_to_the_message_before_it() -> None:
    messages = read(USER, {"type": "hologram"}, call(), {"type": "hologram"}, output())
    assert [message.is_companion for message in messages] == [False, True, False, True, False]
    assert not any(message.must_stay for message in messages)


@pytest.mark.parametrize(
    ("items", "goes_on"),
    [
        ([USER, WORDS, USER], [False, True, False]),
        ([USER, call(), output(), USER], [False, True, False, False]),
        ([USER, call(), USER, USER], [False, True, True, True]),
        ([USER, call(), output("other"), USER], [False, True, True, True]),
    ],
)
def test_reading_begins_anew_only_where_no_call_is_open_and_the_model_has_ended(
    items: list[Any], goes_on: list[bool]
) -> None:
    assert [message.may_continue for message in read(*items)] == goes_on


def test_an_output_that_names_a_local_shell_by_its_item_belongs_to_its_call() -> None:
    asks = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c"}
    messages = read(asks, {"type": "local_shell_call_output", "id": "lsh_1"}, USER)
    assert messages[1].answers == messages[0].calls[0].id == "c"
    assert [message.may_continue for message in messages] == [True, False, False]


def test_where_the_upstream_holds_the_rest_all_but_instructions_is_one_exchange() -> None:
    messages = read(INSTRUCTIONS, output(), INSTRUCTIONS, call("b"), USER, output("b"), previous_response_id="resp_1")
    assert [message.is_companion for message in messages] == [False, False, True, True, True, True]
    assert not any(message.must_stay for message in messages)


def test_no_items_are_no_messages() -> None:
    assert read() == read(previous_response_id="resp_1") == []
