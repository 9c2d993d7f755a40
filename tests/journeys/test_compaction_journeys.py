"""An agent's own request for a compaction: the longest of its session, and it never fails because of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.journey import World, long_text
from support.responses_journey import PATH, completed, request
from support.upstream import FACES, Over, Reply, ScriptedModel, in_turn

LIMIT = 12_000
"""More than half of what is asked: some refusals state no number."""
TRIGGER = {"type": "compaction_trigger", "internal": {"why": "auto"}}
SUMMARY = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" * 50}
EARLIER = {"type": "compaction", "id": "cmp_0", "encrypted_content": "gBBB" * 50}


def compactor(limit: int | None = LIMIT, form: str = "openai") -> ScriptedModel:
    """Answers with one compaction item; refuses what is over its limit in one form, if it has a limit."""
    rules = [] if limit is None else [Over("prompt", limit, form)]
    return ScriptedModel(rules, in_turn(Reply("", content=[SUMMARY])))


def history(turns: int, lines: int = 60) -> list[dict[str, Any]]:
    """A Codex request after an earlier compaction."""
    items = [{"role": "developer", "content": "Be careful."}, EARLIER, {"role": "user", "content": "Read all logs."}]
    for turn in range(turns):
        items += [
            {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": f"gCCC{turn}" * 20},
            {"type": "function_call", "call_id": f"c{turn}", "name": "shell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": long_text(lines, f"build-{turn}")},
        ]
    return items


def sent(world: World) -> list[dict[str, Any]]:
    return [json.loads(received.body) for received in world.upstream.sent]


def output_of(world: World, body: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The output that the client gets."""
    answer = world.ask(dict(body), path=f"{PATH}/compact" if kind == "compact" else PATH)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = (completed(answer.text) if body.get("stream") else answer.json())["output"]
    return found


def wish(items: list[dict[str, Any]], kind: str, **members: Any) -> dict[str, Any]:
    return request(items if kind == "compact" else [*items, TRIGGER], **members)


KINDS = pytest.mark.parametrize(
    ("kind", "stream"), [("trigger", False), ("trigger", True), ("compact", False)], ids=["whole", "stream", "compact"]
)


@KINDS
def test_it_passes_untouched_whatever_its_size_as_long_as_it_is_taken(build: Any, kind: str, stream: bool) -> None:
    world = build(2_000, behind=compactor(limit=None))
    body = json.dumps(wish(history(30, 4_000), kind, stream=stream), indent=1).encode()
    answer = world.ask(body, path=f"{PATH}/compact" if kind == "compact" else PATH)
    assert answer.status_code == 200
    assert [received.body for received in world.upstream.sent] == [body]


@KINDS
@pytest.mark.parametrize("form", sorted(FACES["responses"].refusals))
def test_after_a_refusal_for_length_it_is_sent_once_more_and_fits(
    build: Any, form: str, kind: str, stream: bool
) -> None:
    world = build(1_000_000, behind=compactor(form=form), defaults={}, artifacts={"retrieval_tool": "always"})
    items = history(30)
    body = wish(items, kind, stream=stream, tools=[])
    assert output_of(world, body, kind) == [SUMMARY]
    first, second = sent(world)
    assert first == body
    kept = second["input"]
    assert kept[:2] == items[:2]
    assert (kept[-1] == TRIGGER) is (kind == "trigger")
    assert [item for item in kept if item.get("type") == "reasoning"][-1] == items[-3]
    assert "earlier messages" in json.dumps(kept)
    assert [tool.get("name") for tool in second["tools"]] == []
    calls = {item["call_id"] for item in kept if item.get("type") == "function_call"}
    assert calls == {item["call_id"] for item in kept if item.get("type") == "function_call_output"}


@KINDS
def test_long_outputs_are_cut_before_anything_is_left_out(build: Any, kind: str, stream: bool) -> None:
    world = build(1_000_000, behind=compactor(limit=45_000), defaults={})
    items = history(2, 3_000)
    assert output_of(world, wish(items, kind, stream=stream), kind) == [SUMMARY]
    kept = sent(world)[-1]["input"]
    assert [item.get("type") for item in kept if item != TRIGGER] == [item.get("type") for item in items]
    assert len(world.kept) == 2


def test_the_next_turn_after_it_is_planned_as_if_it_had_never_been(build: Any) -> None:
    """A request that passed uncut is not mistaken for the conversation's last send."""
    window = 12_000
    worlds = build(window, behind=compactor(limit=None), proxies=[{}, {}])
    items = history(20)
    for body in (wish(items[:30], "turn"), request(items)):
        worlds.ask(body, path=PATH, proxy=0)
    worlds.ask(request(items), path=PATH, proxy=1)
    assert sent(worlds)[-2] == sent(worlds)[-1]
    assert FACES["responses"].count(sent(worlds)[-1]) < window


def test_a_compaction_of_a_conversation_held_upstream_disables_truncation(build: Any) -> None:
    server = compactor(limit=40_000)
    server.held["resp_1"] = []
    world = build(1_000_000, behind=server, defaults={})
    body = wish(history(2, 3_000), "trigger", previous_response_id="resp_1")
    assert output_of(world, body, "trigger") == [SUMMARY]
    first, second = sent(world)
    assert first == body
    assert "truncation" not in second
    assert second["input"][-1] == TRIGGER


def test_one_that_cannot_be_made_to_fit_is_refused_in_the_apis_words(build: Any) -> None:
    world = build(1_000_000, behind=compactor(limit=50), defaults={})
    answer = world.ask(wish(history(2), "trigger"), path=PATH)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
