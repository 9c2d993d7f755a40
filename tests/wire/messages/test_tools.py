from __future__ import annotations

import json

import pytest

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS, SPEC
from proxy.core.text import jsontext
from proxy.wire.messages.tools import forces_a_call, tool_names, with_tool


def members(tools=None, **others):
    made = dict(others) if tools is None else {"tools": tools, **others}
    return {name: json.dumps(found).encode() for name, found in made.items()}


def tool(name, **more):
    return {"name": name, "input_schema": {"type": "object"}, **more}


WEATHER = [tool("weather"), tool("search_web", cache_control={"type": "ephemeral"})]
OWN = {"name": SPEC.name, "description": SPEC.description, "input_schema": SPEC.schema}


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (WEATHER, {"auto", "always"}),
        ([{"type": "bash_20250124", "name": "bash"}], {"always"}),
        ([tool("weather"), tool("Read")], {"auto", "always"}),
        ([], {"always"}),
        (None, {"always"}),
        ([*WEATHER, tool(RETRIEVAL_TOOL)], set()),
        ("weather", set()),
    ],
    ids=["no shell", "shell", "reader", "empty", "none", "the same name", "no list"],
)
@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_who_is_offered_the_tool(tools, offered, policy):
    assert (with_tool(members(tools), policy) is not None) == (policy in offered)


@pytest.mark.parametrize("written", [b'[ {"name" : "weather"} , {"x":1.0} ]', b"[ ]", b"[]", b"null"])
def test_what_the_client_wrote_keeps_its_bytes_and_ours_stands_behind_it(written):
    theirs = [] if written == b"null" else jsontext.items(written)
    *before, own = jsontext.items(with_tool({"tools": written}, "always"))
    assert list(map(bytes, before)) == list(map(bytes, theirs))
    assert json.loads(bytes(own)) == OWN


def test_a_tool_list_too_long_to_be_remembered_is_offered_the_tool_too():
    long = [tool(f"weather_{number}" + "x" * 5_000) for number in range(100)]
    assert json.loads(with_tool(members(long), "auto")) == [*long, OWN]


@pytest.mark.parametrize(("count", "offered"), [(MAX_TOOLS - 1, True), (MAX_TOOLS, False), (2_000, False)])
def test_our_tool_is_never_one_too_many(count, offered):
    made = with_tool(members([tool(f"weather_{number}") for number in range(count)]), "always")
    assert (made is not None) == offered


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (b'[{"type":"bash_20250124","name":"bash"},{"type":"mcp_toolset"},{"name":7},7]', ["bash", "", "", ""]),
        (b'{"name":"a"}', []),
        (b"[", []),
        (None, []),
    ],
)
def test_a_tool_has_a_name_or_an_empty_one(tools, names):
    assert tool_names(tools) == names


def test_of_an_endless_list_the_first_names_are_read():
    assert len(tool_names(json.dumps([tool("a")] * 5_000).encode())) == 1_000


@pytest.mark.parametrize("choice", [None, "any", {"type": "auto"}, {"type": "none"}, {}, {"type": None}])
def test_a_choice_that_is_left_to_the_model_forces_nothing(choice):
    assert not forces_a_call(members(WEATHER, tool_choice=choice))


def test_no_choice_forces_nothing():
    assert not forces_a_call(members(WEATHER))


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_choice_that_demands_or_names_a_tool_forces_a_call(choice):
    assert forces_a_call(members(WEATHER, tool_choice=choice))
