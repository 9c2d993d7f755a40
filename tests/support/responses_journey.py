"""An agent that works over the Responses API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.journey import World

PATH = "/responses"
Items = list[dict[str, Any]]
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("read_log", "shell")]


def request(items: object, **members: Any) -> dict[str, Any]:
    """As Codex writes it: the input before the tools, nothing stored."""
    return {"model": "m", "input": items, "tools": TOOLS, "store": False, **members}


def completed(text: str) -> dict[str, Any]:
    """The response that a stream ends with."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    last: dict[str, Any] = json.loads(data[-1])
    assert last["type"] == "response.completed", last
    found: dict[str, Any] = last["response"]
    return found


def output_of(world: World, body: Mapping[str, Any], proxy: int = 0) -> Items:
    """What the model says."""
    answer = world.ask(dict(body), path=PATH, proxy=proxy)
    assert answer.status_code == 200, answer.text
    response = completed(answer.text) if body.get("stream") else answer.json()
    found: Items = response["output"]
    return found


def results_of(output: Sequence[Mapping[str, Any]], text: str) -> Items:
    """An output for each call."""
    calls = [item for item in output if item.get("type") == "function_call"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": text} for call in calls]


def work(world: World, turns: int, text: Any, start: Items | None = None, **members: Any) -> Items:
    """An agent that answers every call with `text(turn)`; its items."""
    items = list(start or [{"role": "developer", "content": "Be careful."}, {"role": "user", "content": "Read all."}])
    for turn in range(turns):
        output = output_of(world, request(items, **members))
        items = [*items, *output, *results_of(output, text(turn))]
    return items
