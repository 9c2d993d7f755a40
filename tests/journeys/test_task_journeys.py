"""The task reaches the model in every request, whatever protocol an agent speaks and whatever is said last."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.media_samples import png

WINDOW = 8_000
TASK = "Find out why build 4711 is red. Report the first commit that broke it. " + "Read every log. " * 20
Say = Callable[[int], tuple[str, str]]
"""Turn → what the agent says, and what its tool prints."""


def mini_swe(turn: int) -> tuple[str, str]:
    output = f"<returncode>0</returncode>\n<output>\n{long_text(40 + turn % 9 * 10, f'log-{turn}')}</output>"
    return f"THOUGHT: look at build {turn}.\n```bash\ncat build-{turn}.log\n```", output


def smolagents(turn: int) -> tuple[str, str]:
    return (
        f"Thought: next.\n<code>read({turn})</code>",
        f"Call id: {turn}\nObservation:\n{long_text(60, f'row-{turn}')}",
    )


def own_loop(turn: int) -> tuple[str, str]:
    return f"RUN read {turn}", f"[step {turn} has finished]\n{long_text(70, f'line-{turn}')}"


def bare(turn: int) -> tuple[str, str]:
    return f"cat log {turn}", long_text(70, f"only-{turn}")


def run_by_text(world: World, turns: int, say: Say) -> None:
    """An agent whose tools answer in user messages."""
    messages = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": TASK}]
    for turn in range(turns):
        answer = world.ask({"model": "m", "messages": messages})
        assert answer.status_code == 200, f"turn {turn}: {answer.text}"
        words, output = say(turn)
        messages += [{"role": "assistant", "content": words}, {"role": "user", "content": output}]


@pytest.mark.parametrize(("say", "turns"), [(mini_swe, 150), (smolagents, 60), (own_loop, 60), (bare, 60)])
def test_the_task_is_in_every_request_of_a_run_by_text_protocol(say: Say, turns: int, build: Any) -> None:
    world = build(WINDOW)
    run_by_text(world, turns, say)
    assert len(world.upstream.sent) == turns
    for received in world.upstream.sent:
        roles = [message["role"] for message in received.messages]
        assert received.messages[1]["content"].removeprefix("[context-proxy: ").endswith(TASK)
        assert roles[:2] == ["system", "user"]
        assert all(one != other for one, other in pairwise(roles[1:])), "roles by turns"


def test_the_task_is_in_every_request_of_a_run_with_calls_and_several_users(build: Any) -> None:
    world = build(WINDOW)
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for turn in range(130):
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
        messages += [call(turn, "read_log"), result(turn, long_text(50 + turn % 7 * 10, f"log-{turn}"))]
        if turn % 40 == 39:
            messages += [{"role": "assistant", "content": f"Part {turn} is done."}]
            messages += [{"role": "user", "content": f"And now look at part {turn}."}]
    for received in world.upstream.sent:
        assert received.messages[0]["content"].endswith(TASK)


def test_of_twelve_images_in_a_small_window_as_many_are_described_as_have_to_be(build: Any) -> None:
    world = build(WINDOW, models=[{"match": "m", "context_window": WINDOW, "input": ["text", "vision"]}])
    url = f"data:image/png;base64,{base64.b64encode(png(1_280, 800)).decode()}"
    shots = [{"type": "image_url", "image_url": {"url": url}} for _ in range(12)]
    messages = [{"role": "user", "content": [{"type": "text", "text": "What do they show?"}, *shots]}]
    answer = world.ask({"model": "m", "messages": messages})
    assert answer.status_code == 200
    sent = json.dumps(world.upstream.last.messages)
    assert "What do they show?" in sent
    described = sent.count("[cannot read]")
    assert 0 < described < 12, "the newest are shown while there is room"
    assert sent.count('"image_url": {') == 12 - described
    assert len(world.kept) == 1


def old_words(kind: str) -> list[dict[str, Any]]:
    """A first turn whose only exchange always stays, and is long."""
    arguments = json.dumps({"path": "a.py", "content": long_text(400, "old")}) if kind == "arguments" else "{}"
    write = call(0, "write", arguments) | ({"content": long_text(400, "old")} if kind == "text" else {})
    task = TASK + (long_text(900, "task") if kind == "task" else "")
    return [{"role": "user", "content": task}, write, result(0, "written"), {"role": "user", "content": "Now the log."}]


@pytest.mark.parametrize("kind", ["arguments", "text", "task"])
@pytest.mark.parametrize("window", [4_000, 8_000])
def test_the_newest_result_is_shown_before_what_is_old_stays_whole(kind: str, window: int, build: Any) -> None:
    world = build(window)
    messages = [*old_words(kind), call(1, "read_log"), result(1, long_text(58, "newest"))]
    assert world.ask({"model": "m", "messages": messages}).status_code == 200
    assert world.upstream.last.messages[-1]["content"].count("newest ") == 58
