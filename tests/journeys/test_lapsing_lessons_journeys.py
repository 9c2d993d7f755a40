"""A session that outlives what its upstream has taught: over 26 hours, by three processes, on each API."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.chat_as import SPELLED
from support.journey import Day, call, long_text, result
from support.state_server import StateServer, needs_state_server
from support.upstream import Over, ScriptedModel, Sent
from support.upstream.keeping import without_our_tool

pytestmark = needs_state_server

TURNS, HOURS = 60, 26
LIMIT = 12_000
TOOL = {"type": "function", "function": {"name": "read_log", "parameters": {"type": "object", "properties": {}}}}
SAID = {
    "with numbers": "This model's maximum context length is {limit} tokens, but the request has {seen} tokens.",
    "without": "The prompt is too long for this model.",
}


def grown(turn: int) -> dict[str, Any]:
    """The conversation of this turn; the first is over the limit already."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You find out why the build is red."},
        {"role": "user", "content": "Why is build 4711 red? Look at every log until you know."},
    ]
    for number in range(20 + turn):
        messages += [call(number, "read_log"), result(number, long_text(60 + number % 7 * 20, f"build-{number}"))]
    return {"model": "m", "messages": messages, "tools": [TOOL], "max_tokens": 500}


def breaks(accepted: list[Sent]) -> int:
    """How often the messages of a request do not begin with those of the one before it."""
    items = [sent.face.items(sent.json) for sent in accepted]
    return sum(after[: len(before)] != before for before, after in pairwise(items))


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("api", SPELLED)
def test_sixty_turns_over_26_hours_meet_each_limit_once_a_day(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, said: str
) -> None:
    monkeypatch.setattr("proxy.shell.models.shared_state.COMPARE_SECONDS", 0.02)
    server, day = StateServer(tmp_path), Day(monkeypatch)
    server.start()
    limit = Over("prompt", LIMIT, SAID[said])
    model = ScriptedModel([without_our_tool(), limit])
    try:
        world = build(
            behind=model,
            defaults={},
            artifacts={"folder": tmp_path / "artifacts", "retrieval_tool": "always"},
            state={"url": server.url},
            server={"secret": "5e" * 32},
            proxies=[{"data_dir": tmp_path / name} for name in ("one", "one", "two")],
        )
        path, spelled = SPELLED[api]
        for turn in range(TURNS):
            day.pass_to(turn * HOURS / (TURNS - 1))
            # One process, the one that is started after it, and another replica, each for hours; then in turns.
            proxy = turn // 12 if turn < 36 else turn % 3
            answer = world.ask(spelled(grown(turn)), path=path, proxy=proxy, **{"anthropic_version": "2023-06-01"})
            assert answer.status_code == 200, (turn, answer.text)
    finally:
        server.stop()
    tools = [sent.face.tools(sent.json) for sent in model.accepted]
    lost = breaks(model.accepted)
    print(f"{api}, {said}: {len(model.sent)} sends, {model.refusals} refused, {lost} breaks of the prefix")
    assert len(model.accepted) == TURNS
    assert model.refusals - limit.refused <= 2, "our tool, once a day"
    assert limit.refused <= 2 + (said == "without"), "once a day, and a search may meet it from above"
    assert sum(one != other for one, other in pairwise(tools)) <= 1
    assert lost <= 18, "about one cut in four turns, as the room fills"
