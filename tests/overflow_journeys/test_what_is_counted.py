"""All prompt content besides the messages is counted; a request that the upstream counts otherwise teaches nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import (
    conversation,
    counted,
    counting,
    estimate,
    times,
    too_long,
    window,
    without_numbers,
)
from support.upstream.scenes import accepting, saying

SETTINGS = window(16_000)

LONG = "every field of the form has a description; " * 2_400
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": LONG}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
MEMBERS: Mapping[str, Any] = {
    "response_format": FORMAT,
    "functions": [{"name": "ask", "parameters": SCHEMA}],
    "prediction": {"type": "content", "content": LONG},
    "documents": [{"text": LONG}],
}


@pytest.mark.parametrize("name", MEMBERS)
async def test_a_refusal_for_length_names_the_member_that_takes_the_room(stage: Stage, name: str) -> None:
    stage.model.plays(saying(400, too_long(16_000, 25_000)))
    body = {"model": "m", "messages": [{"role": "user", "content": "What is it?"}], name: MEMBERS[name]}
    answer = await stage.ask(json.dumps(body).encode())
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 400
    assert f"have to stay: the member {name} (3" in message


async def test_a_refusal_of_a_response_names_the_format_of_its_text(stage: Stage) -> None:
    stage.model.plays(saying(400, too_long(16_000, 25_000)))
    text = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
    body = {"model": "m", "input": [{"role": "user", "content": "What is it?"}], "text": text}
    stage.url = stage.url.replace("/chat/completions", "/responses")
    answer = await stage.ask(json.dumps(body).encode())
    assert answer.status == 400
    assert "have to stay: the member text (3" in json.loads(answer.body)["error"]["message"]


async def test_a_long_schema_takes_its_place_from_old_messages(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(44_000)) as stage:
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(16_000, response_format=FORMAT))
        assert (answer.status, answer.attempts) == (200, "1")
        assert estimate(stage.model.bodies[0]) < 14_000


async def test_a_long_schema_that_the_upstream_does_not_count_refuses_nothing(stage: Stage) -> None:
    """vLLM guides the reply by it and keeps it out of the prompt."""
    stage.model.plays(accepting)
    answer = await stage.ask(conversation(1_000, model="gpt-4o", response_format=FORMAT))
    assert answer.status == 200


@pytest.mark.parametrize(
    "members",
    [
        {"response_format": FORMAT},
        {"web_search_options": {"search_context_size": "high"}},
        {"tools": [{"type": "web_search"}]},
        {"plugins": [{"id": "web"}]},
    ],
    ids=["a schema", "a search", "a tool of the server", "a plugin"],
)
async def test_a_count_that_holds_more_than_the_messages_teaches_no_ratio(
    tmp_path: Path, members: dict[str, Any]
) -> None:
    async with staged(tmp_path, **window(40_000)) as stage:
        for _ in range(4):
            stage.model.plays(counting(count=times(2.5)))
            assert (await stage.ask(conversation(8_000, **members))).status == 200
        stage.model.plays(accepting)
        await stage.ask(conversation(20_000))
        assert estimate(stage.model.bodies[0]) > 19_000


async def test_a_request_with_a_file_teaches_no_ratio(tmp_path: Path) -> None:
    async with staged(tmp_path, models=[{"match": "*", "context_window": 40_000, "input": ["text", "file"]}]) as stage:
        for _ in range(4):
            body = json.loads(conversation(8_000))
            part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}}
            body["messages"][1]["content"] = [{"type": "text", "text": "Read it."}, part]
            stage.model.plays(counted(20_000))
            assert (await stage.ask(json.dumps(body).encode())).status == 200
        stage.model.plays(accepting)
        await stage.ask(conversation(20_000))
        assert estimate(stage.model.bodies[0]) > 19_000


async def test_a_refusal_without_a_number_of_what_cannot_be_counted_infers_no_window(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(64_000)) as stage:
        for _ in range(3):
            stage.model.plays(saying(400, without_numbers()), accepting)
            await stage.ask(conversation(8_000, web_search_options={"search_context_size": "high"}))
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(8_000))
        assert (answer.attempts, estimate(stage.model.bodies[0]) > 7_900) == ("1", True)
