"""Refusals that are not about length, of requests that the proxy has edited: the original is tried once, whatever the
status says of it, because an edit may be the cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.overflow_stage import staged
from support.overflow_words import conversation, openai_error, window
from support.upstream.scenes import COMPLETION, accepting, saying

NO_JSON = pytest.mark.parametrize(
    "words",
    [
        "Failed to parse tool result as JSON",
        "invalid JSON in function response",
        "Unexpected token in JSON at position 12",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ],
)


def cut_on_arrival(**more: object) -> bytes:
    """A request of which the newest result is cut, for a client with or without a way to open files."""
    body = json.loads(conversation(1_000))
    rows = [{"row": number, "name": f"name {number}"} for number in range(9_000)]
    body["messages"][-1]["content"] = json.dumps(rows)
    return json.dumps(body | more).encode()


SHELL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


@NO_JSON
@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("tools", [[], [SHELL]], ids=["no tools", "a shell"])
async def test_a_cut_result_that_does_not_parse_goes_up_as_it_came(
    tmp_path: Path, words: str, status: int, tools: list[object]
) -> None:
    body = cut_on_arrival(tools=tools) if tools else cut_on_arrival()
    async with staged(tmp_path, **window(200_000)) as stage:
        stage.model.plays(saying(status, openai_error(words)), accepting)
        answer = await stage.ask(body)
        assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
        edited, original = stage.model.bodies
        assert len(edited) < len(body)
        assert original == body
        stage.model.plays(accepting)
        assert (await stage.ask(body)).attempts == "1", "the next turn pays no second send"
        assert len(stage.model.bodies[0]) >= len(body)


async def test_an_unknown_refusal_is_tried_without_our_tool_and_then_as_it_came(tmp_path: Path) -> None:
    """Which of the edits is the cause nobody says; what did not help teaches nothing."""
    body, refusal = cut_on_arrival(tools=[SHELL]), saying(400, openai_error("This is not what we like."))
    async with staged(tmp_path, **window(200_000), artifacts={"retrieval_tool": "always"}) as stage:
        for _ in range(2):
            stage.model.plays(refusal, refusal, accepting)
            answer = await stage.ask(body)
            assert (answer.status, answer.attempts) == (200, "3")
            first, without_tool, original = stage.model.bodies
            assert [b"read_artifact" in one for one in (first, without_tool)] == [True, False]
            assert original == body
        stage.model.plays(refusal, refusal, refusal)
        assert (await stage.ask(body)).status == 400
