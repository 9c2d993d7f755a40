"""Words that leave no doubt are believed whatever window is assumed; what is over a rate by itself is made smaller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.journey import Day
from support.overflow_stage import Received, Stage, staged
from support.overflow_words import (
    assert_valid,
    conversation,
    counted,
    estimate,
    limited,
    tokens_per_minute,
    too_long_with_reply,
    window,
)
from support.upstream import Scene
from support.upstream.scenes import COMPLETION, accepting, saying


def allowing(limit: int, ratio: float = 1.0, *, counts_reply: bool = True) -> Scene:
    """A model server with that rate, of which nothing is used up yet; it counts so many tokens for one of ours."""

    def count(body: bytes) -> int:
        reply = json.loads(body).get("max_tokens") or 0
        return int(estimate(body) * ratio) + (reply if counts_reply else 0)

    return limited(limit, lambda n: saying(413, tokens_per_minute(limit, f"Requested {n}")), count=count)


@pytest.mark.parametrize("reply", [None, 1_000, 5_000])
async def test_a_request_that_alone_exceeds_a_rate_is_made_smaller(stage: Stage, reply: int | None) -> None:
    stage.model.plays(allowing(6_000), allowing(6_000))
    answer = await stage.ask(conversation(9_500, **({"max_tokens": reply} if reply else {})))
    assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
    assert_valid(stage.model.bodies[1])


async def test_a_reply_that_takes_the_rate_is_lowered_and_the_prompt_stays(stage: Stage) -> None:
    """https://github.com/zeeyado/koassistant.koplugin/issues/106"""
    stage.model.plays(allowing(8_000), allowing(8_000))
    answer = await stage.ask(conversation(3_000, max_tokens=32_000))
    first, second = (json.loads(body) for body in stage.model.bodies)
    assert (answer.status, answer.attempts) == (200, "2")
    assert second["messages"] == first["messages"]
    assert 4_500 < second["max_tokens"] < 5_100


async def answer_to(stage: Stage, body: bytes, limit: int, key: str = "one", ratio: float = 1.0) -> Received:
    stage.model.plays(*[allowing(limit, ratio)] * 2)
    return await stage.ask(body, authorization=f"Bearer {key}")


@pytest.mark.parametrize("ratio", [1.0, 1.3])
@pytest.mark.parametrize("reply", [None, 1_000, 5_000, 32_000])
@pytest.mark.parametrize("stated", [{}, window(200_000)], ids=["guessed", "stated"])
async def test_a_growing_session_over_a_rate_is_sent_twice_once_and_again_when_a_day_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: int | None, ratio: float, stated: dict[str, Any]
) -> None:
    day = Day(monkeypatch)
    more = {} if reply is None else {"max_tokens": reply}
    async with staged(tmp_path, **stated) as stage:

        async def turns(count: int, start: int) -> list[str | None]:
            seen = []
            for turn in range(count):
                answer = await answer_to(stage, conversation(start + 400 * turn, **more), 12_000, ratio=ratio)
                assert (answer.status, answer.body) == (200, COMPLETION)
                assert_valid(stage.model.bodies[-1])
                seen.append(answer.attempts)
            return seen

        assert await turns(12, 14_000) == ["2"] + ["1"] * 11
        day.pass_to(23)
        assert await turns(1, 18_800) == ["1"]
        day.pass_to(24.1)
        assert await turns(3, 18_800) == ["2", "1", "1"]


async def test_a_rate_never_makes_the_proxy_refuse_and_what_was_accepted_over_it_refutes_it(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(200_000)) as stage:
        await answer_to(stage, conversation(9_500), 6_000)
        hopeless = json.dumps(
            {"model": "snug/m", "messages": [{"role": "system", "content": "a word " * 9_000}]}
        ).encode()
        stage.model.plays(saying(413, tokens_per_minute(6_000, "Requested 9000")))
        refused = await stage.ask(hopeless, authorization="Bearer one")
        assert (refused.status, stage.model.bodies) == (413, [hopeless]), "the upstream decides"
        stage.model.plays(counted(9_000))
        assert (await stage.ask(hopeless, authorization="Bearer one")).status == 200
        body = conversation(9_500)
        assert (await answer_to(stage, body, 20_000)).attempts == "1"
        assert stage.model.bodies == [body]


async def test_a_rate_binds_the_key_that_met_it(stage: Stage) -> None:
    body = conversation(9_500)
    assert [(await answer_to(stage, body, 6_000, key)).attempts for key in ("one", "one")] == ["2", "1"]
    assert (await answer_to(stage, body, 6_000, "two")).attempts == "2"
    assert (await answer_to(stage, body, 20_000, "three")).attempts == "1"
    assert stage.model.bodies == [body]


async def test_a_request_that_holds_the_words_of_a_rate_teaches_none(stage: Stage) -> None:
    refusal = tokens_per_minute(6_000, "Requested 14810")
    body = conversation(9_500, user="TPM): Limit 6000, Requested 14810, please")
    stage.model.plays(saying(413, refusal), accepting)
    assert (await stage.ask(body)).attempts == "2"
    stage.model.plays(accepting)
    await stage.ask(body)
    assert stage.model.bodies == [body]


@pytest.mark.parametrize("clamps", [True, False])
@pytest.mark.parametrize("stated", [{}, window(200_000)], ids=["guessed", "stated"])
@pytest.mark.parametrize("reply", [5_000, 9_000])
async def test_a_rate_that_does_not_count_replies_bounds_the_prompt_alone(
    tmp_path: Path, reply: int, stated: dict[str, Any], clamps: bool
) -> None:
    async with staged(tmp_path, **stated, budget={"clamp_reply": clamps}) as stage:
        seen = []
        for turn in range(12):
            stage.model.plays(*[allowing(8_000, counts_reply=False)] * 2)
            answer = await stage.ask(conversation(9_500 + 200 * turn, max_tokens=reply))
            assert answer.status == 200
            seen.append(answer.attempts)
        assert seen == ["2"] + ["1"] * 11
        assert json.loads(stage.model.bodies[-1])["max_tokens"] == reply
        body = conversation(3_000, max_tokens=reply)
        stage.model.plays(accepting)
        await stage.ask(body)
        assert stage.model.bodies == [body], "the reply keeps its limit"


async def test_the_send_after_a_rate_is_the_plan_of_the_next_turn(stage: Stage) -> None:
    sent = []
    for _ in range(3):
        await answer_to(stage, conversation(9_500, exchanges=60), 8_000)
        sent.append(estimate(stage.model.bodies[-1]))
    assert min(sent) > 0.7 * 8_000
    assert max(sent) - min(sent) < 400


@pytest.mark.parametrize("is_rate", [True, False], ids=["rate", "window"])
@pytest.mark.parametrize("reply", [5_000, 9_000])
async def test_a_second_send_has_a_reply_that_fits_whatever_the_settings_leave(
    tmp_path: Path, reply: int, is_rate: bool
) -> None:
    """Without `clamp_reply` the first send keeps the client's limit; one that alone fills what was shown is lowered."""
    refused = saying(400, too_long_with_reply(8_000, 9_500, reply))
    within = limited(8_000, lambda _: refused, count=lambda body: estimate(body) + json.loads(body)["max_tokens"])

    async with staged(tmp_path, budget={"clamp_reply": False}) as stage:
        for turn in range(4):
            stage.model.plays(*[allowing(8_000) if is_rate else within] * 2)
            answer = await stage.ask(conversation(9_500, max_tokens=reply))
            assert answer.status == 200
            assert answer.attempts == "1" or turn == 0 or reply < 8_000


async def test_a_rate_is_no_evidence_of_a_full_window(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(200_000)) as stage:
        await answer_to(stage, conversation(9_500), 6_000)
        empty = json.dumps(json.loads(COMPLETION) | {"choices": []}).encode()
        stage.model.plays(saying(200, empty))
        answer = await stage.ask(conversation(5_300), authorization="Bearer one")
        assert answer.tokens("after") > 0.93 * answer.tokens("room"), "the rate is nearly used up"
        assert (answer.body, answer.attempts) == (empty, "1")
