"""The proxy's own tool on the Responses API: calls that the agent never sees, answered on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.journey import World, long_text
from support.responses_journey import PATH
from support.upstream import Call, Reply, ScriptedModel, Usage, in_turn

LONG = long_text(5_000)
FETCH = {"type": "function", "name": "fetch", "parameters": {"type": "object"}, "strict": False}
SHELL = {**FETCH, "name": "bash"}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
THINKS = {"include": ["reasoning.encrypted_content"]}


def request(**members: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c", "name": "fetch", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": LONG}
    items = [{"role": "user", "content": "Look."}, call, result]
    return {"model": "m", "input": items, "tools": [FETCH], "store": False, **members}


def reads(world: World, **query: Any) -> Call:
    """A call for the artifact of the long result."""
    world.ask(request(), path=PATH)
    world.upstream.sent.clear()
    name = next(name for name in world.kept if name.startswith("tool_fetch_"))
    return Call("read_artifact", {"id": name, **query})


def answer_to(world: World, **members: Any) -> dict[str, Any]:
    """The answer as a client parses it; a stream's events must be numbered without a gap."""
    answer = world.ask(request(**members), path=PATH)
    assert answer.status_code == 200, answer.text
    if not members.get("stream"):
        found: dict[str, Any] = answer.json()
        return found
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == list(range(len(done)))
    response: dict[str, Any] = events[-1]["response"]
    assert [event["item"] for event in done] == response["output"]
    return response


def spoken(output: Sequence[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in output if item["type"] == "message"]


@STREAMED
def test_a_call_of_ours_is_answered_on_the_way(build: Any, stream: bool) -> None:
    world = build(128_000, behind=ScriptedModel(reports=Usage(100, 0, 10)))
    call = reads(world, lines="400-401")
    world.upstream.says = in_turn(Reply("Let me look.", (call,), thought="hm"), Reply("It is 401.", thought="ah"))
    response = answer_to(world, stream=stream, **THINKS)
    assert spoken(response["output"]) == ["Let me look.", "It is 401."]
    assert "read_artifact" not in json.dumps(response["output"])
    assert response["usage"]["input_tokens"] == 100
    assert response["usage"]["output_tokens"] == 20
    first, second = (json.loads(received.body) for received in world.upstream.sent)
    assert [tool["name"] for tool in first["tools"]] == ["fetch", "read_artifact"]
    assert second["input"][: len(first["input"])] == first["input"]
    assert [item["type"] for item in second["input"][3:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert "line 400: value" in second["input"][-1]["output"]
    assert world.upstream.complaints == []


@STREAMED
@pytest.mark.parametrize("spoken", [0, 2])
def test_what_was_called_beside_calls_of_the_client_is_read_in_the_next_turn(
    build: Any, stream: bool, spoken: int
) -> None:
    world = build(128_000, behind=ScriptedModel(reports=Usage(100, 0, 10)))
    call = reads(world, lines="7-8")
    world.upstream.says = in_turn(
        *[Reply("Look.", (call,), thought="ah")] * spoken,
        Reply("Both.", (call, Call("fetch", {"n": 1})), thought="hm"),
        Reply("Done."),
    )
    output = answer_to(world, stream=stream, **THINKS)["output"]
    assert [item.get("name") for item in output if item["type"] == "function_call"] == ["fetch"]
    theirs = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "fetched"}
    history = [*request()["input"], *output, theirs]
    assert world.ask(request(input=history, **THINKS), path=PATH).status_code == 200
    *known, page = json.loads(world.upstream.last.body)["input"]
    assert [item.get("name") for item in known if item.get("type") == "function_call"] == ["fetch", "fetch"]
    assert page["role"] == "user"
    assert "line 7: value" in json.dumps(page)
    assert not any(sent.face.complaints(sent.json) for sent in world.upstream.sent)


@pytest.mark.parametrize(
    "members",
    [
        {"store": True},
        {"store": None},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"truncation": "auto"},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        {"tools": [{"type": "function", "name": "shell"}]},
        {"tools": [FETCH, {"type": "local_shell"}]},
    ],
)
def test_it_is_not_offered(build: Any, members: dict[str, Any]) -> None:
    world = build(128_000, behind=ScriptedModel(reports=Usage(100, 0, 10)))
    body = {name: value for name, value in request(**members).items() if value is not None}
    world.ask(body, path=PATH)
    assert "read_artifact" not in json.dumps(json.loads(world.upstream.last.body).get("tools"))


@pytest.mark.parametrize(
    ("members", "is_told"),
    [({"store": True}, True), ({"store": None}, True), ({}, False), ({"store": True, "tools": [SHELL]}, False)],
)
def test_where_the_server_keeps_the_response_the_notice_says_how_to_get_the_tool(
    build: Any, members: dict[str, Any], is_told: bool
) -> None:
    world = build(128_000)
    world.ask(request(**members), path=PATH)
    assert ("A client that sends `store: false` gets a tool" in world.upstream.last.body.decode()) == is_told


def test_it_is_not_offered_where_tools_are_an_item(build: Any) -> None:
    world = build(128_000, behind=ScriptedModel(reports=Usage(100, 0, 10)))
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    world.ask(request(input=[added, *request()["input"]]), path=PATH)
    assert "read_artifact" not in world.upstream.last.body.decode().split('"input"')[1].split("tools")[-1]
    assert [tool["name"] for tool in json.loads(world.upstream.last.body)["tools"]] == ["fetch"]
