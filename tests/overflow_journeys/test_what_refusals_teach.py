"""A limit that a refusal printed is kept: the next request of that model is cut before it is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from overflow_stage import COMPLETION, Scene, Stage, accepting, saying, serving, staged
from overflow_words import conversation, estimate, too_long, without_numbers

WINDOW = {"defaults": {"context_window": 20_000}}
"""What is believed of every model; a refusal knows better."""


async def asked(stage: Stage, *scenes: Scene, model: str = "m") -> str | None:
    """Sends that a long request needed, when the upstream plays these scenes."""
    stage.model.plays(*scenes)
    answer = await stage.ask(conversation(15_000, model=model))
    assert answer.status == 200
    return answer.attempts


async def test_the_next_request_of_the_model_is_not_refused(tmp_path: Path) -> None:
    async with staged(tmp_path, **WINDOW) as stage:
        assert await asked(stage, saying(400, too_long(12_000, 15_000)), accepting) == "2"
        assert await asked(stage, accepting) == "1"
        assert estimate(stage.model.bodies[0]) < 12_000


async def test_what_is_learned_of_one_model_does_not_touch_another(tmp_path: Path) -> None:
    async with staged(tmp_path, **WINDOW) as stage:
        assert await asked(stage, saying(400, too_long(12_000, 15_000)), accepting) == "2"
        assert await asked(stage, accepting, model="other") == "1"
        assert estimate(stage.model.bodies[0]) > 12_000


async def test_a_limit_under_half_of_what_is_believed_needs_two_sightings(tmp_path: Path) -> None:
    async with staged(tmp_path, **WINDOW) as stage:
        refusal = saying(400, too_long(6_000, 15_000))
        assert await asked(stage, refusal, accepting) == "2"
        assert await asked(stage, refusal, accepting) == "2"
        assert estimate(stage.model.bodies[0]) > 12_000
        assert await asked(stage, accepting) == "1"
        assert estimate(stage.model.bodies[0]) < 6_000


async def test_one_refusal_without_numbers_teaches_nothing_and_two_bound_what_is_sent(tmp_path: Path) -> None:
    async with staged(tmp_path, **WINDOW) as stage:
        assert await asked(stage, saying(400, without_numbers()), accepting) == "2"
        assert await asked(stage, saying(400, without_numbers()), accepting) == "2"
        refused = estimate(stage.model.bodies[0])
        assert refused > 12_000
        assert await asked(stage, accepting) == "1"
        assert estimate(stage.model.bodies[0]) <= refused * 0.9


async def test_refusals_of_a_large_wish_for_a_reply_without_numbers_do_not_shrink_the_prompt(tmp_path: Path) -> None:
    async with staged(tmp_path, defaults={"context_window": 64_000}) as stage:
        for _ in range(2):
            stage.model.plays(saying(400, without_numbers()), accepting)
            await stage.ask(conversation(6_000, model="m", max_tokens=40_000))
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(6_000, model="m", max_tokens=1_000))
        assert answer.attempts == "1"
        assert estimate(stage.model.bodies[0]) > 5_500


async def test_a_learned_limit_survives_a_restart(tmp_path: Path) -> None:
    async with staged(tmp_path, **WINDOW) as stage:
        assert await asked(stage, saying(400, too_long(12_000, 15_000)), accepting) == "2"
        async with serving(stage.settings) as url:
            stage.url = url
            assert await asked(stage, accepting) == "1"
            assert estimate(stage.model.bodies[0]) < 12_000


def counting(prompt_tokens: int) -> Scene:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 2, "total_tokens": prompt_tokens + 2}
    return saying(200, json.dumps({**json.loads(COMPLETION), "usage": usage}).encode())


@pytest.mark.parametrize("calibrated", [True, False])
async def test_a_count_far_under_the_estimate_is_reported_as_silent_truncation_and_cured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], calibrated: bool
) -> None:
    async with staged(tmp_path, **WINDOW, log={"format": "json"}) as stage:
        for _ in range(3 if calibrated else 0):
            assert await asked(stage, counting(14_000)) == "1"
        assert "upstream_truncated_silently" not in capfd.readouterr().out
        assert await asked(stage, counting(4_096), accepting) == "2"
        assert estimate(stage.model.bodies[1]) < 4_096
        warning = next(line for line in capfd.readouterr().out.splitlines() if "upstream_truncated_silently" in line)
        assert json.loads(warning)["prompt_tokens"] == 4_096
