"""Agents of the Responses API: every request is answered, in the API's own words, and what is sent is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agent_model import AgentModel, Refuses
from support.journey import Received, World, long_text
from support.responses_answers import REFUSALS
from support.responses_journey import PATH, ResponsesServer, output_of, request, results_of, work

WINDOW = 8_000
NOTHING_LEARNED = {"enabled": False}
"""For what holds between two lessons: a new ratio moves the cuts once."""
THINKS = {"include": ["reasoning.encrypted_content"]}


def log_of(turn: int) -> str:
    return long_text(60 + turn % 7 * 20, f"build-{turn}")


def inputs(world: World) -> list[list[dict[str, Any]]]:
    return [json.loads(received.body)["input"] for received in world.upstream.received]


@pytest.mark.parametrize("stream", [False, True])
def test_forty_turns_over_a_small_window_are_all_answered_and_valid(build: Any, stream: bool) -> None:
    server = ResponsesServer(AgentModel(1_000, Refuses("openai", limit=WINDOW)))
    world = build(WINDOW, answer=server)
    items = work(world, 40, log_of, stream=stream, **THINKS)
    assert server.model.complaints == []
    assert server.model.refusals == 0
    assert len(server.model.seen) == 40
    assert len(json.dumps(items)) > 5 * WINDOW * 4
    for sent in inputs(world):
        assert sent[:1] == items[:1]
        assert sent[1]["content"].endswith("Read all.")
    assert "earlier messages" in world.upstream.last.body.decode()
