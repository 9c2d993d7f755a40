"""The last user message reaches the model, however it begins: pipelines open every message with the same line."""

from __future__ import annotations

from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.upstream import Sent

from proxy.core.notices import MARK

WINDOW = 12_000
OPENINGS = {
    "retrieval": "Use the following context to answer.",
    "summaries": "Please summarise the following document.",
    "code": "```python",
    "results": "Results:",
}
ALIKE = pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)


def document(opening: str, turn: int, rows: int) -> str:
    return f"{opening}\n{long_text(rows, f'row-{turn}')}\nWhat is the value of row {turn}?"


def chat(world: World, opening: str, turns: int, rows: int = 1_500) -> list[Sent]:
    """What reaches the upstream of a chat without tools in which every user message begins alike: its answer to each
    turn."""
    messages: list[dict[str, Any]] = []
    answered = []
    for turn in range(turns):
        messages.append({"role": "user", "content": document(opening, turn, rows)})
        answer = world.ask({"model": "m", "messages": messages})
        assert answer.status_code == 200, answer.text
        answered.append(world.upstream.last)
        messages.append({"role": "assistant", "content": f"It is {turn}."})
    return answered


@ALIKE
def test_of_messages_that_begin_alike_the_newest_is_as_whole_as_the_room_allows(opening: str, build: Any) -> None:
    for turn, received in enumerate(chat(build(WINDOW), opening, 6)):
        newest, first = (received.messages[at]["content"] for at in (-1, 0))
        assert newest.startswith(opening)
        assert f"\nWhat is the value of row {turn}?" in newest
        assert newest.count(f"row-{turn} ") > 600
        assert first.count("row-0 ") < 150 or not turn


@ALIKE
def test_a_newest_message_that_fits_is_whole_however_it_begins(opening: str, build: Any) -> None:
    for turn, received in enumerate(chat(build(WINDOW), opening, 8, rows=300)):
        assert received.messages[-1]["content"].startswith(document(opening, turn, 300))


@ALIKE
def test_a_newest_message_that_a_call_follows_is_whole_however_it_begins(opening: str, build: Any) -> None:
    world = build(WINDOW)
    messages: list[dict[str, Any]] = []
    for turn in range(3):
        messages.append({"role": "user", "content": document(opening, turn, 100)})
        messages.append({"role": "assistant", "content": f"It is {turn}."})
    messages[-1] = call(0)
    for turn in range(1, 12):
        messages += [result(turn - 1, long_text(200, f"log-{turn}"))]
        assert world.ask({"model": "m", "messages": messages}).status_code == 200
        assert document(opening, 2, 100) in [message["content"] for message in world.upstream.last.messages]
        messages += [call(turn)]
    assert any(MARK in message["content"] for message in world.upstream.last.messages if message["content"])
