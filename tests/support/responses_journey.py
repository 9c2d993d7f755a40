"""A model server of the Responses API as a journey's upstream, and an agent that works with it.

Rule: the server refuses in the API's words what is not valid, and what is over its window, really tokenised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from support import scripted_upstream
from support.agent_model import AgentModel
from support.journey import Received, World

PATH = "/responses"
Items = list[dict[str, Any]]
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("read_log", "shell")]


@dataclass
class ResponsesServer:
    """`build(answer=…)`: what is asked is answered by a model that works step by step."""

    model: AgentModel = field(default_factory=lambda: AgentModel(steps=1_000))

    async def __call__(self, request: Received, send: Send) -> bool:
        received = scripted_upstream.Request(b"", list(request.headers.items()), request.body)
        answer = self.model.answer("POST", "/v1/responses", received)
        headers = [(b"content-type", answer.content_type.encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        pieces = [answer.body]
        if answer.content_type.startswith("text/event-stream"):
            pieces = [event + b"\n\n" for event in answer.body.split(b"\n\n")[:-1]]
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return True


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
