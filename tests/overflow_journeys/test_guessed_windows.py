"""A window not stated for this upstream is a guess: it causes no refusal and no omission."""

from __future__ import annotations

import json
from pathlib import Path

from support.overflow_stage import Stage, staged
from support.overflow_words import assert_valid, conversation, estimate, too_long
from support.upstream.scenes import accepting, saying

AT_ANOTHER_PROVIDER = "llama3.1:8b"
"""32 000 tokens at Cerebras, 128 000 elsewhere: a self-hosted server may allow any number."""


async def test_a_request_over_a_guessed_window_goes_up_as_the_very_bytes_that_came(tmp_path: Path) -> None:
    body = conversation(45_000, model=AT_ANOTHER_PROVIDER, exchanges=60)
    longer = conversation(150_000, model="nobody-knows-1", exchanges=60)
    async with staged(tmp_path, tool_output={"max_bytes": 100_000}) as stage:
        for request in (body, longer):
            stage.model.plays(accepting)
            answer = await stage.ask(request)
            assert (answer.status, answer.attempts) == (200, "1")
            assert answer.headers["x-context-proxy-tokens"].endswith(";room=unknown")
            assert stage.model.bodies == [request]


async def test_the_limits_at_arrival_hold_all_the_same(tmp_path: Path) -> None:
    async with staged(tmp_path, tool_output={"max_bytes": 2_000}) as stage:
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(45_000, model=AT_ANOTHER_PROVIDER))
        assert "truncate_tool_output=" in answer.headers["x-context-proxy-edits"]


async def test_a_refusal_teaches_the_window_and_is_healed_unseen(stage: Stage) -> None:
    body = conversation(45_000, model=AT_ANOTHER_PROVIDER)
    stage.model.plays(saying(400, too_long(16_000, 45_000)), accepting)
    first = await stage.ask(body)
    assert (first.status, first.attempts) == (200, "2")
    assert_valid(stage.model.bodies[1])
    stage.model.plays(accepting)
    second = await stage.ask(body)
    assert (second.status, second.attempts) == (200, "1")
    assert estimate(stage.model.bodies[0]) < 16_000
    assert second.tokens("room") < 16_000


async def test_a_refusal_that_names_the_very_guess_makes_it_certain(stage: Stage) -> None:
    body = conversation(150_000, model="nobody-knows-1", exchanges=60)
    stage.model.plays(saying(400, too_long(128_000, 150_000)), accepting)
    assert (await stage.ask(body)).attempts == "2"
    stage.model.plays(accepting)
    assert (await stage.ask(body)).attempts == "1"


async def test_a_wish_for_a_reply_over_a_guessed_window_is_not_lowered(stage: Stage) -> None:
    stage.model.plays(accepting)
    await stage.ask(conversation(9_000, model="nobody-knows-1", max_tokens=200_000))
    assert json.loads(stage.model.bodies[0])["max_tokens"] == 200_000


async def test_limits_in_characters_hold_beside_a_guessed_window(tmp_path: Path) -> None:
    async with staged(tmp_path, defaults={"max_request_chars": 40_000}) as stage:
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(30_000, model="nobody-knows-1"))
        assert answer.status == 200
        assert (
            sum(len(message.get("content") or "") for message in json.loads(stage.model.bodies[0])["messages"]) < 40_000
        )
