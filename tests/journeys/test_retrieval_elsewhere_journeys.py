"""The proxy's own tool on the Messages and the Responses API: calls that the agent never sees, answered on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.journey import World, long_text
from support.messages_journey import MARK, marked, message_of
from support.responses_journey import PATH, completed
from support.spellings import SPELLINGS, Items
from support.upstream import Call, Reply, ScriptedModel, Usage, in_turn

LONG = long_text(5_000)
FETCH = {"type": "function", "name": "fetch", "parameters": {"type": "object"}, "strict": False}
SHELL = {**FETCH, "name": "bash"}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
APIS = pytest.mark.parametrize("api", ["messages", "responses"])
THINKS = {
    "messages": {"thinking": {"type": "adaptive"}},
    "responses": {"include": ["reasoning.encrypted_content"], "store": False},
}
KINDS = {"messages": ("thinking", "text", "tool_use"), "responses": ("reasoning", "message", "function_call")}
"""Of a thought, a text and a call."""


def request(**members: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c", "name": "fetch", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": LONG}
    items = [{"role": "user", "content": "Look."}, call, result]
    return {"model": "m", "input": items, "tools": [FETCH], "store": False, **members}


def history(api: str) -> Items:
    spelling = SPELLINGS[api]
    return [*spelling.user("Look."), *spelling.called([("call_1", {})]), *spelling.results([("call_1", LONG)])]


def reply_to(world: World, api: str, items: Items, *, stream: bool) -> tuple[Items, dict[str, Any]]:
    """What the model says, and its usage; the events of a stream have to be numbered without a gap."""
    spelling = SPELLINGS[api]
    body = {"model": "m", **spelling.request("You help.", items, ["fetch"], 500), **THINKS[api], "stream": stream}
    if api == "messages":
        body |= {"messages": marked(items), "tools": [{**body["tools"][0], "cache_control": MARK}]}
    answer = world.ask(body, path=spelling.path.removeprefix("/v1"))
    assert answer.status_code == 200, answer.text
    if api == "messages":
        message = message_of(answer.text) if stream else answer.json()
        return message["content"], message["usage"]
    response = completed(answer.text) if stream else answer.json()
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        done = [event for event in events if event["type"] == "response.output_item.done"]
        assert [event["output_index"] for event in done] == list(range(len(done)))
        assert [event["item"] for event in done] == response["output"]
    return response["output"], response["usage"]


def learnt(build: Any, api: str, lines: str) -> tuple[World, Call]:
    """A world, and a call for the artifact of its long result."""
    world = build(128_000, behind=ScriptedModel(reports=Usage(100, 40, 10)))
    reply_to(world, api, history(api), stream=False)
    world.upstream.sent.clear()
    return world, Call("read_artifact", {"id": next(iter(world.kept)), "lines": lines})


@STREAMED
@APIS
def test_a_call_of_ours_is_answered_on_the_way(build: Any, api: str, stream: bool) -> None:
    world, call = learnt(build, api, "2500-2502")
    world.upstream.says = in_turn(Reply("Let me look.", (call,), thought="hm"), Reply("It is 42.", thought="ah"))
    said, usage = reply_to(world, api, history(api), stream=stream)
    thought, text, calls = KINDS[api]
    kinds = [item["type"] for item in said]
    assert [kind for kind in kinds if kind != thought] == [text, text]
    assert api == "responses" or kinds == [thought, text, thought, text]
    assert [words in json.dumps(said) for words in ("Let me look.", "It is 42.", "read_artifact")] == [
        True,
        True,
        False,
    ]
    assert usage["output_tokens"] == 20
    assert usage["cache_read_input_tokens" if api == "messages" else "input_tokens"] == (
        40 if api == "messages" else 100
    )
    first, second = world.upstream.sent
    assert [tool["name"] for tool in first.json["tools"]] == ["fetch", "read_artifact"]
    assert second.messages[: len(first.messages)] == first.messages
    *made, page = second.messages[len(first.messages) :]
    blocks = made[0]["content"] if api == "messages" else made
    assert [block["type"] for block in blocks] == [thought, text, calls]
    assert api == "responses" or blocks[:2] == said[:2], "the thought goes back as it was said"
    assert blocks[2]["call_id" if api == "responses" else "id"] in json.dumps(page)
    assert "line 2500: value" in json.dumps(page)
    assert world.upstream.complaints == []
    assert world.logged("request_done", 2)[-1]["retrieval_rounds"] == 1


@STREAMED
@pytest.mark.parametrize(("api", "readings"), [("messages", 0), ("responses", 0), ("responses", 2)])
def test_what_was_called_beside_calls_of_the_client_is_read_in_the_next_turn(
    build: Any, api: str, stream: bool, readings: int
) -> None:
    world, call = learnt(build, api, "7-8")
    world.upstream.says = in_turn(
        *[Reply("Look.", (call,), thought="ah")] * readings,
        Reply("Both.", (call, Call("fetch", {"n": 1})), thought="hm"),
        Reply("Done."),
    )
    said, _ = reply_to(world, api, history(api), stream=stream)
    made = [item for item in said if item["type"] == KINDS[api][2]]
    assert [item["name"] for item in made] == ["fetch"]
    spelling = SPELLINGS[api]
    theirs = spelling.results([(made[0]["call_id" if api == "responses" else "id"], "fetched")])
    mine = said if api == "responses" else [{"role": "assistant", "content": said}]
    reply_to(world, api, [*history(api), *mine, *theirs], stream=stream)
    *known, page = world.upstream.last.messages
    assert "read_artifact" not in json.dumps(known[len(history(api)) :])
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
