"""Histories that agents leave behind when a run is interrupted: refused by the upstream, and healed unseen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.journey import call, long_text, result
from support.responses_journey import PATH
from support.upstream import Answer, ScriptedModel, valid
from support.upstream.keeping import keeping

TASK = {"role": "user", "content": "Look at the log."}
ABORTED = {"model": "m", "messages": [TASK, call(1), {"role": "user", "content": "Stop. Try again."}]}
ORPHANED = {
    "model": "m",
    "messages": [TASK, result(7, "of a call that is gone"), {"role": "user", "content": "Go on."}],
}


def test_a_call_without_a_result_gets_one_after_the_refusal(build: Any) -> None:
    world = build()
    answer = world.ask(ABORTED)
    assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "2")
    assert answer.headers["x-context-proxy-edits"] == "history_healed=1"
    assert [json.loads(one.body) == ABORTED for one in world.upstream.sent] == [True, False]
    found = world.upstream.last.messages
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "user"]
    assert (found[2]["tool_call_id"], "no result" in found[2]["content"]) == ("call_1", True)
    assert [found[0], found[1], found[3]] == ABORTED["messages"]
    assert [line["cure"] for line in world.logged("history_healed")] == ["repaired"]


def test_a_result_of_no_call_is_left_out_after_the_refusal(build: Any) -> None:
    world = build(language="zh")
    answer = world.ask(ORPHANED)
    assert (answer.status_code, world.upstream.last.messages) == (200, [TASK, ORPHANED["messages"][2]])


@pytest.mark.parametrize("members", [{"store": False}, {}])
def test_items_are_healed_after_the_words_of_openai(build: Any, members: dict[str, Any]) -> None:
    lacking = {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}"}
    orphan = {"type": "function_call_output", "call_id": "call_2", "output": "of a call that is gone"}
    for items, healed in (([TASK, lacking], ["call_1"]), ([TASK, orphan], [])):
        server = keeping()
        answer = build(behind=server).ask({"model": "m", "input": items, **members}, path=PATH)
        assert (answer.status_code, server.refusals) == (200, 1)
        assert [item["call_id"] for item in json.loads(server.bodies[-1])["input"] if "output" in item] == healed


@pytest.mark.parametrize("settings", [{"history": "off"}, {"overflow": {"retry": False}}])
def test_the_refusal_passes_where_nothing_is_to_be_healed(build: Any, settings: dict[str, Any]) -> None:
    world = build(**settings)
    answer = world.ask(ABORTED)
    assert (answer.status_code, len(world.upstream.sent)) == (400, 1)
    assert "must be followed by tool messages" in answer.json()["error"]["message"]


def test_what_the_upstream_takes_is_never_repaired(build: Any) -> None:
    body = b'{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}'
    world = build(128_000, lambda _: Answer(200, body))
    assert world.ask(ABORTED).status_code == 200
    assert [json.loads(one.body) for one in world.upstream.sent] == [ABORTED]


def test_a_history_that_is_cut_besides_is_healed_and_cut(build: Any) -> None:
    """The first send has an excerpt in it; the second one, too."""
    world = build()
    body = {"model": "m", "messages": [TASK, call(1), result(1, long_text(5_000)), call(2), TASK]}
    answer = world.ask(body)
    assert answer.status_code == 200
    assert answer.headers["x-context-proxy-edits"] == "history_healed=1;retrieval_tool=1;truncate_tool_output=1"
    sent = [one.messages for one in world.upstream.sent]
    assert sent[0][2] == sent[1][2]
    assert len(sent[1]) == len(sent[0]) + 1


def use(number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {}}


def answered(number: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "good"}]}


def apart(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """Neighbouring assistant messages, which the API merges."""
    return [{"role": "assistant", "content": [block]} for block in blocks]


LOOKING = {"type": "text", "text": "Let me look."}


@pytest.mark.parametrize(
    ("history", "healed"),
    [
        ([*apart(LOOKING, use(1)), answered(1), *apart(LOOKING, use(2))], 1),
        ([*apart(use(1), LOOKING), answered(1), *apart(use(2), LOOKING)], 1),
        ([*apart(use(1), use(2)), answered(1)], 1),
        ([*apart(use(1), LOOKING, use(2))], 2),
        ([*apart(LOOKING, use(1)), answered(1), answered(7), *apart(LOOKING)], 1),
    ],
)
def test_what_the_api_merges_is_one_message_for_pairing(history: Any, healed: int, build: Any) -> None:
    world = build(behind=ScriptedModel([valid]))
    messages = [TASK, *history, {"role": "user", "content": "Stop. Try again."}]
    for _ in range(2):
        answer = world.ask({"model": "m", "max_tokens": 100, "messages": messages}, path="/messages")
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-context-proxy-edits"] == f"history_healed={healed}"
        assert world.upstream.last.messages.count(answered(1)) == history.count(answered(1)), "good results stay"
