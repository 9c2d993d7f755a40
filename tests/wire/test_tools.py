"""Our tool in the tools of a request, on every API: who is offered it, and that the client's bytes stay."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from proxy.core.retrieval_tool import RETRIEVAL_TOOL, SPEC
from proxy.core.text import jsontext
from proxy.wire import Wire
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES

UNSTATED: Final = object()
ON_EVERY_WIRE = pytest.mark.parametrize(
    "wire", [CHAT_COMPLETIONS, MESSAGES, RESPONSES, OLLAMA], ids=lambda wire: wire.path
)


def tool(wire: Wire, name: str) -> dict[str, Any]:
    if wire is MESSAGES:
        return {"name": name, "input_schema": {"type": "object"}}
    function = {"name": name, "parameters": {"type": "object"}}
    return {"type": "function", **(function if wire is RESPONSES else {"function": function})}


def offering(wire: Wire, tools: Any = UNSTATED, policy: Any = "always", **members: Any) -> bytes | None:
    """The tools of a request with ours; None if ours is not offered. `tools`: bytes, or what they spell."""
    listed = "input" if wire is RESPONSES else "messages"
    members = {"store": False, **members} if wire is RESPONSES else members
    request = wire.parse(json.dumps({"model": "m", listed: [{"role": "user", "content": "go"}], **members}).encode())
    if tools is not UNSTATED:
        spelled = tools if isinstance(tools, bytes) else json.dumps(tools).encode()
        request = wire.parse(request.body[:-1] + b',"tools":' + spelled + b"}")
    return wire.with_tool(request, policy)


def namespace(*tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "n", "tools": list(tools)}


WEATHER = ["weather", "search_web"]
EVERYBODY, ONLY_WHERE_ALWAYS = {"auto", "always"}, {"always"}


@ON_EVERY_WIRE
@pytest.mark.parametrize(
    ("names", "offered"),
    [
        (WEATHER, EVERYBODY),
        (["weather", "read_file"], EVERYBODY),
        (["task"], EVERYBODY),
        (["bash"], ONLY_WHERE_ALWAYS),
        ([], EVERYBODY),
        (None, EVERYBODY),
        (UNSTATED, EVERYBODY),
        ([*WEATHER, RETRIEVAL_TOOL], set()),
        ("weather", set()),
    ],
    ids=["no shell", "reader", "sub-agent", "shell", "empty", "null", "none", "the same name", "no list"],
)
@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_who_is_offered_the_tool(wire: Wire, names: Any, offered: set[str], policy: str) -> None:
    tools = [tool(wire, name) for name in names] if isinstance(names, list) else names
    assert (offering(wire, tools, policy) is not None) == (policy in offered)


@pytest.mark.parametrize(
    ("wire", "tools", "offered"),
    [
        (MESSAGES, [{"type": "bash_20250124", "name": "bash"}], ONLY_WHERE_ALWAYS),
        (RESPONSES, [tool(RESPONSES, "weather"), {"type": "local_shell"}], ONLY_WHERE_ALWAYS),
        (RESPONSES, [namespace(tool(RESPONSES, "weather"))], EVERYBODY),
        (RESPONSES, [namespace(tool(RESPONSES, "read_file")), tool(RESPONSES, "weather")], EVERYBODY),
        (RESPONSES, [tool(RESPONSES, "weather"), namespace(tool(RESPONSES, RETRIEVAL_TOOL))], set()),
    ],
)
def test_tools_of_an_api_count_by_their_own_types(wire: Wire, tools: Any, offered: set[str]) -> None:
    assert {policy for policy in ("auto", "always") if offering(wire, tools, policy)} == offered


@ON_EVERY_WIRE
@pytest.mark.parametrize("written", [b'[ {"name" : "weather"} , {"x":1.0} ]', b"[ ]", b"[]", b"null"])
def test_the_clients_bytes_stay_and_ours_follow(wire: Wire, written: bytes) -> None:
    theirs = [] if written == b"null" else jsontext.items(written)
    *before, own = jsontext.items(offering(wire, written) or b"[]")
    assert list(map(bytes, before)) == list(map(bytes, theirs))
    found = json.loads(bytes(own))
    assert found.get("strict", False) is False, "not all of its properties are required"
    said = found.get("function", found)
    assert (said["name"], said["description"]) == (SPEC.name, SPEC.description)
    assert said.get("parameters", said.get("input_schema")) == SPEC.schema
    assert len(own) <= 540, "120 tokens, which small windows pay in every turn"


@ON_EVERY_WIRE
def test_a_list_too_long_to_be_remembered_is_offered_the_tool_too(wire: Wire) -> None:
    long = [tool(wire, f"weather_{number}" + "x" * 5_000) for number in range(100)]
    assert json.loads(offering(wire, long, "auto") or b"")[:-1] == long


@ON_EVERY_WIRE
@pytest.mark.parametrize(("count", "offered"), [(127, True), (128, False), (2_000, False)])
def test_our_tool_is_never_one_too_many(wire: Wire, count: int, offered: bool) -> None:
    tools = [tool(wire, f"weather_{number}") for number in range(count)]
    assert (offering(wire, tools) is not None) == offered
    assert wire is not RESPONSES or (offering(wire, [namespace(*tools)]) is not None) == offered


@pytest.mark.parametrize(
    ("wire", "members", "offered"),
    [
        *((CHAT_COMPLETIONS, members, False) for members in ({"n": 2}, {"functions": []})),
        *((CHAT_COMPLETIONS, {"n": one}, True) for one in (1, None, "2", True)),
        (MESSAGES, {"thread": {"type": "continue"}}, False),
        (OLLAMA, {"messages": []}, False),
        (RESPONSES, {}, True),
        (RESPONSES, {"store": True}, False),
        (RESPONSES, {"store": None}, False),
        (RESPONSES, {"previous_response_id": "resp_1"}, False),
        (RESPONSES, {"previous_response_id": None}, True),
        (RESPONSES, {"prompt": {"id": "p"}}, True),
        (RESPONSES, {"conversation": "conv_1"}, False),
        (RESPONSES, {"conversation": {"id": "conv_1"}}, False),
        (RESPONSES, {"conversation": None, "truncation": "disabled"}, True),
        (RESPONSES, {"truncation": "auto"}, False),
        *((CHAT_COMPLETIONS, {"response_format": form}, False) for form in ({"type": "json_object"}, "x", 7)),
        *((CHAT_COMPLETIONS, {"response_format": form}, True) for form in ({"type": "text"}, None, {})),
        (MESSAGES, {"output_format": {"type": "json_schema"}}, False),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema"}}}, False),
        (MESSAGES, {"output_config": {"effort": "low"}}, True),
        (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, False),
        (RESPONSES, {"text": {"format": {"type": "text"}, "verbosity": "low"}}, True),
        (OLLAMA, {"format": "json"}, False),
        (OLLAMA, {"format": ""}, True),
    ],
)
def test_the_tool_is_offered_where_its_calls_can_be_hidden(wire: Wire, members: Any, offered: bool) -> None:
    assert (offering(wire, [tool(wire, "weather")], **members) is not None) == offered


ALLOWED = {"mode": "auto", "tools": [{"type": "function", "name": "weather"}]}


@pytest.mark.parametrize(
    ("wire", "choices", "forces"),
    [
        (CHAT_COMPLETIONS, [UNSTATED, None, "auto", "none"], False),
        (CHAT_COMPLETIONS, ["required", "any", "something new", {"type": "function", "function": {}}], True),
        (CHAT_COMPLETIONS, [{"type": "custom"}, {"type": "allowed_tools", "allowed_tools": ALLOWED}], True),
        (MESSAGES, [UNSTATED, None, "any", {}, {"type": "auto"}, {"type": "none"}, {"type": None}], False),
        (MESSAGES, [{"type": "any"}, {"type": "tool", "name": "weather"}], True),
        (RESPONSES, [UNSTATED, None, "auto", "none"], False),
        (RESPONSES, ["required", "something new", {"type": "function", "name": "weather"}], True),
        (RESPONSES, [{"type": "web_search"}, {"type": "allowed_tools", **ALLOWED}], True),
        (OLLAMA, [UNSTATED, "required"], False),
    ],
)
def test_a_choice_that_demands_or_names_a_tool_forces_a_call(wire: Wire, choices: list[Any], forces: bool) -> None:
    for choice in choices:
        members = {} if choice is UNSTATED else {"tool_choice": json.dumps(choice).encode()}
        assert wire.forces_a_call(members) is forces, choice


def nested(levels: int) -> Any:
    return namespace(nested(levels - 1)) if levels else {"name": "deep"}


@pytest.mark.parametrize(
    ("wire", "tools", "names"),
    [
        (OLLAMA, [tool(OLLAMA, "weather")], ["weather"]),
        (MESSAGES, [{"name": "bash"}, {"type": "mcp_toolset"}, {"name": 7}, 7], ["bash", "", "", ""]),
        (MESSAGES, [tool(MESSAGES, "a")] * 5_000, ["a"] * 1_000),
        (RESPONSES, [tool(RESPONSES, "a")] * 5_000, ["a"] * 1_000),
        (RESPONSES, [{"type": "web_search"}, {"name": "ls"}, {"type": 7}, 7], ["web_search", "ls", "", ""]),
        (RESPONSES, [namespace({"name": "a"}, namespace({"name": "b"})), {"name": "c"}], ["a", "b", "c"]),
        (RESPONSES, [nested(4)], ["deep"]),
        (RESPONSES, [nested(5)], ["n"]),
    ],
)
def test_tools_have_the_names_that_their_api_gives_them(wire: Wire, tools: Any, names: list[str]) -> None:
    assert wire.tool_names(json.dumps(tools).encode()) == names


@ON_EVERY_WIRE
@pytest.mark.parametrize("odd", [b"", b"[", b"null", b'{"name":"a"}'])
def test_what_is_no_list_names_no_tools(wire: Wire, odd: bytes) -> None:
    assert wire.tool_names(odd) == []


@pytest.mark.parametrize(("length", "times"), [(10, 1), (300 * 1024, 2)])
def test_a_list_of_everyday_size_is_read_once_for_all_requests_of_its_agent(length: int, times: int) -> None:
    read = []

    def names_in(tools: bytes) -> Any:
        read.append(tools)
        return json.loads(tools)

    own = type(MESSAGES.own_tool)(b'{"ours":1}', names_in)
    tools = {"tools": json.dumps(["w" * length]).encode()}
    assert own.appended(tools, "never") is None
    assert read == []
    assert own.appended(tools, "auto") == own.appended(dict(tools), "auto")
    assert len(read) == times
