from __future__ import annotations

import json

import pytest

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS, SPEC
from proxy.core.text import jsontext
from proxy.wire.chat_completions.tools import forces_a_call, tool_for, with_tool


def members(tools=None, **others):
    made = dict(others) if tools is None else {"tools": tools, **others}
    return {name: json.dumps(found).encode() for name, found in made.items()}


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


WEATHER = [tool("weather"), tool("search_web")]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (WEATHER, {"auto", "always"}),
        ([tool("bash")], {"always"}),
        ([tool("weather"), tool("read_file")], {"auto", "always"}),
        ([tool("task")], {"auto", "always"}),
        ([], {"always"}),
        (None, {"always"}),
        ([*WEATHER, tool(RETRIEVAL_TOOL)], set()),
        ("weather", set()),
    ],
    ids=["no shell", "shell", "reader", "sub-agent", "empty", "none", "the same name", "no list"],
)
@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_who_is_offered_the_tool(tools, offered, policy):
    assert (with_tool(members(tools), policy) is not None) == (policy in offered)


@pytest.mark.parametrize("others", [{"n": 2}, {"functions": []}])
def test_no_tool_where_nobody_could_answer_its_calls(others):
    assert with_tool(members(WEATHER, **others), "always") is None


@pytest.mark.parametrize("n", [b"1", b"null", b'"2"', b"true", b"[" * 100_000 + b"]" * 100_000])
def test_one_answer_is_what_everybody_means(n):
    assert with_tool(members(WEATHER) | {"n": n}, "auto") is not None


@pytest.mark.parametrize("written", [b'[ {"function" : {"name":"weather"}} , {"x":1.0} ]', b"[ ]", b"[]"])
def test_what_the_client_wrote_keeps_its_bytes(written):
    given_tools = jsontext.items(written)
    made = jsontext.items(with_tool({"tools": written}, "always"))
    assert [bytes(raw) for raw in made] == [*map(bytes, given_tools), tool_for(SPEC)]


def test_a_long_tool_list_is_offered_the_tool_too():
    assert with_tool(members([tool(f"weather_{number}" + "x" * 5_000) for number in range(100)]), "auto") is not None


@pytest.mark.parametrize("policy", ["auto", "always"])
@pytest.mark.parametrize(("count", "offered"), [(MAX_TOOLS - 1, True), (MAX_TOOLS, False), (2_000, False)])
def test_our_tool_is_never_one_too_many(count, offered, policy):
    made = with_tool(members([tool(f"weather_{number}") for number in range(count)]), policy)
    assert (made is not None) == offered
    assert made is None or len(jsontext.items(made)) <= 128


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_choice_that_is_left_to_the_model_forces_nothing(choice):
    assert not forces_a_call(members(WEATHER, tool_choice=choice))


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "any",
        "something new",
        {"type": "function", "function": {"name": "weather"}},
        {"type": "custom", "custom": {"name": "weather"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("weather")]}},
    ],
)
def test_a_choice_that_demands_or_names_tools_forces_a_call(choice):
    assert forces_a_call(members(WEATHER, tool_choice=choice))
