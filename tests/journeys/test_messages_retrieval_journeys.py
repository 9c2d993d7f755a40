"""The proxy's own tool on the Messages API: calls that the agent never sees, answered on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.journey import World, long_text
from support.messages_journey import MARK, marked, request, said_by
from support.upstream import Reply, Says, ScriptedModel, Usage, in_turn

LONG = long_text(5_000)
FETCH = {"name": "fetch", "input_schema": {"type": "object"}, "cache_control": MARK}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
THOUGHT = {"type": "thinking", "thinking": "I need the middle.", "signature": "EuYB=="}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(name: str, number: int, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}_{number}", "name": name, "input": given}


def saying(*contents: list[dict[str, Any]]) -> Says:
    """Play these contents in order, the last one for ever."""
    return in_turn(*(Reply("", content=content) for content in contents))


def history(result: str = LONG) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Look at the log."},
        {"role": "assistant", "content": [use("fetch", 1)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_fetch_1", "content": result}]},
    ]


def request_with_tool(messages: Any = None, **members: Any) -> dict[str, Any]:
    return request(marked(messages or history()), tools=[FETCH], **members)


def learnt(build: Any, **stated: Any) -> tuple[World, str]:
    world = build(behind=ScriptedModel(says=saying([text("Hm.")]), reports=Usage(100, 40, 7)), **stated)
    said_by(world, request_with_tool())
    world.upstream.sent.clear()
    return world, next(name for name in world.kept if name.startswith("tool_fetch_"))


def teach(world: World, *contents: list[dict[str, Any]]) -> None:
    world.upstream.says = saying(*contents)


@STREAMED
def test_a_call_is_answered_on_the_way_and_never_reaches_the_agent(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    teach(
        world,
        [THOUGHT, text("Let me look."), use("read_artifact", 1, id=name, lines="2500-2502")],
        [text("It is 42.")],
    )
    reported = said_by(world, request_with_tool(stream=stream))
    assert reported["content"] == [THOUGHT, text("Let me look."), text("It is 42.")]
    assert reported["stop_reason"] == "end_turn"
    assert reported["usage"]["output_tokens"] == 14
    assert reported["usage"]["cache_read_input_tokens"] == 40
    assert world.upstream.complaints == []
    first, second = (json.loads(received.body) for received in world.upstream.sent)
    assert second["messages"][:3] == first["messages"]
    call, page = second["messages"][3:]
    assert call["content"] == [
        THOUGHT,
        text("Let me look."),
        use("read_artifact", 1, id=name, lines="2500-2502"),
    ]
    assert page["content"][0]["tool_use_id"] == "toolu_read_artifact_1"
    assert "line 2500: value" in page["content"][0]["content"]
    (line,) = world.logged("request_done", 2)[-1:]
    assert line["retrieval_rounds"] == 1


@STREAMED
def test_what_was_called_beside_a_call_of_the_client_is_read_in_the_next_turn(stream: bool, build: Any) -> None:
    world, name = learnt(build)
    teach(
        world,
        [text("Both."), use("read_artifact", 1, id=name, lines="1-2"), use("fetch", 2, page=2)],
        [text("Done.")],
    )
    reply = said_by(world, request_with_tool(stream=stream))
    assert reply["content"] == [text("Both."), use("fetch", 2, page=2)]
    assert reply["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": "toolu_fetch_2", "content": "page two"}
    after = [*history(), {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": [result]}]
    said_by(world, request_with_tool(after, stream=stream))
    sent = json.loads(world.upstream.last.body)["messages"]
    assert "read_artifact" not in json.dumps(sent[3])
    assert "line 0: value" in json.dumps(sent[-1])
    assert world.upstream.complaints == []
