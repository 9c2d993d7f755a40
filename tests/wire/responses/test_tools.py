from __future__ import annotations

import json

import pytest

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS, SPEC
from proxy.core.text import jsontext
from proxy.wire.responses.tools import forces_a_call, is_kept, is_true, tool_for, tool_names, with_tool


def members(tools=None, **others):
    made = {"store": False, **others} if tools is None else {"store": False, "tools": tools, **others}
    return {name: json.dumps(found).encode() for name, found in made.items()}


def tool(name):
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def namespace(*tools):
    return {"type": "namespace", "name": "n", "tools": list(tools)}


WEATHER = [tool("weather"), tool("search_web")]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (WEATHER, {"auto", "always"}),
        ([namespace(*WEATHER)], {"auto", "always"}),
        ([tool("shell")], {"always"}),
        ([namespace(tool("read_file")), tool("weather")], {"auto", "always"}),
        ([tool("weather"), {"type": "local_shell"}], {"always"}),
        ([], {"always"}),
        (None, {"always"}),
        ([*WEATHER, tool(RETRIEVAL_TOOL)], set()),
        ([*WEATHER, namespace(tool(RETRIEVAL_TOOL))], set()),
        ("weather", set()),
    ],
)
@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_who_is_offered_the_tool(tools, offered, policy):
    assert (with_tool(members(tools), policy) is not None) == (policy in offered)


@pytest.mark.parametrize(
    ("others", "offered"),
    [
        ({}, True),
        ({"store": True}, True),
        ({"store": None}, True),
        ({"background": False}, True),
        ({"background": True}, False),
        ({"store": True, "previous_response_id": "resp_1"}, True),
        ({"store": False, "previous_response_id": "resp_1"}, False),
        ({"store": False, "previous_response_id": None}, True),
        ({"conversation": "conv_1"}, False),
        ({"conversation": {"id": "conv_1"}}, False),
        ({"conversation": None, "truncation": "disabled"}, True),
        ({"truncation": "auto"}, False),
    ],
)
def test_the_tool_is_offered_where_its_calls_can_be_hidden(others, offered):
    assert (with_tool(members(WEATHER, **others), "always") is not None) == offered


@pytest.mark.parametrize(("store", "kept"), [({}, True), ({"store": None}, True), ({"store": False}, False)])
def test_a_response_is_kept_unless_the_client_says_otherwise(store, kept):
    assert is_kept({name: json.dumps(found).encode() for name, found in store.items()}) is kept


@pytest.mark.parametrize("written", [b'[ {"name":"weather"} , {"x":1.0} ]', b"[ ]", b"[]"])
def test_what_the_client_wrote_keeps_its_bytes(written):
    made = jsontext.items(with_tool(members() | {"tools": written}, "always"))
    assert [bytes(raw) for raw in made] == [*map(bytes, jsontext.items(written)), tool_for(SPEC)]


def test_where_there_is_no_list_ours_is_the_only_tool():
    assert with_tool(members(), "always") == b"[" + tool_for(SPEC) + b"]"


def test_our_tool_says_that_not_all_of_its_properties_are_required():
    found = json.loads(tool_for(SPEC))
    assert (found["type"], found["name"], found["strict"]) == ("function", RETRIEVAL_TOOL, False)
    assert found["parameters"]["required"] == ["id"]


def test_a_long_tool_list_is_offered_the_tool_too():
    assert with_tool(members([tool(f"weather_{number}" + "x" * 5_000) for number in range(100)]), "auto") is not None


@pytest.mark.parametrize(("count", "offered"), [(MAX_TOOLS - 1, True), (MAX_TOOLS, False), (2_000, False)])
def test_our_tool_is_never_one_too_many(count, offered):
    tools = [namespace(*(tool(f"weather_{number}") for number in range(count)))]
    assert (with_tool(members(tools), "always") is not None) == offered


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (b"", []),
        (b"null", []),
        (b'{"name": "ls"}', []),
        (b'[{"type":"web_search"},{"name":"ls","type":"custom"},{"type":7},7]', ["web_search", "ls", "", ""]),
        (json.dumps([namespace(tool("a"), namespace(tool("b"))), tool("c")]).encode(), ["a", "b", "c"]),
        (json.dumps([tool("x")] * 1_001).encode(), ["x"] * 1_000),
    ],
)
def test_tools_are_named_by_their_names_or_else_by_their_types(tools, names):
    assert tool_names(tools) == names


def test_namespaces_are_opened_only_a_few_levels_deep():
    nested = tool("deep")
    for _ in range(5):
        nested = namespace(nested)
    assert tool_names(json.dumps([nested]).encode()) == ["n"]
    assert tool_names(json.dumps(nested["tools"]).encode()) == ["deep"]


@pytest.mark.parametrize(("raw", "found"), [(b"true", True), (b"false", False), (b'"true"', False), (None, False)])
def test_only_true_is_true(raw, found):
    assert is_true(raw) is found


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_choice_that_is_left_to_the_model_forces_nothing(choice):
    assert not forces_a_call(members(WEATHER, tool_choice=choice))
    assert not forces_a_call(members(WEATHER))


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "something new",
        {"type": "function", "name": "weather"},
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    ],
)
def test_a_choice_that_demands_or_names_tools_forces_a_call(choice):
    assert forces_a_call(members(WEATHER, tool_choice=choice))
