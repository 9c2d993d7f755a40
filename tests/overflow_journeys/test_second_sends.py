"""The second send: its content, when there is none, and the client's answer if it did not help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import (
    assert_valid,
    at_least,
    conversation,
    estimate,
    openai_error,
    raw_messages,
    too_long,
    too_long_with_reply,
    window,
    without_messages,
)
from support.upstream.scenes import COMPLETION, JSON, accepting, saying

from proxy.shell.models import counter_for

SETTINGS = window(64_000)


@pytest.mark.parametrize("named", ["max_tokens", "max_completion_tokens"])
async def test_only_the_reply_limit_is_lowered_when_the_prompt_fits(stage: Stage, named: str) -> None:
    body = conversation(9_000, **{named: 9_000})
    stage.model.plays(saying(400, too_long_with_reply(16_384, 9_100, 9_000)), accepting)
    answer = await stage.ask(body)
    first, second = stage.model.bodies
    assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
    assert raw_messages(second) == raw_messages(first)
    assert without_messages(second, named) == without_messages(first, named)
    assert json.loads(second)[named] == 16_384 - 9_100 - 16


async def test_a_reply_limit_under_what_the_upstream_names_is_not_raised(stage: Stage) -> None:
    stage.model.plays(saying(400, too_long_with_reply(16_384, 9_100, 9_000)), accepting)
    answer = await stage.ask(conversation(9_000, max_tokens=500))
    assert answer.status == 200
    assert json.loads(stage.model.bodies[1])["max_tokens"] == 500
    assert estimate(stage.model.bodies[1]) < 0.9 * estimate(stage.model.bodies[0])


@pytest.mark.parametrize("max_tokens", [4_096, 8_000])
async def test_the_reply_of_a_second_send_fits_beside_its_prompt(tmp_path: Path, max_tokens: int) -> None:
    async with staged(tmp_path, defaults={"context_window": 16_000}) as stage:
        stage.model.plays(saying(400, too_long(8_192, 9_000)), accepting)
        await stage.ask(conversation(9_000, max_tokens=max_tokens))
        second = stage.model.bodies[1]
        reply = json.loads(second)["max_tokens"]
        assert 512 <= reply < max_tokens
        assert estimate(second) * 9_000 / estimate(stage.model.bodies[0]) + reply <= 8_192


@pytest.mark.parametrize(
    ("model", "share", "denser"), [("gpt-4o", 0.7, 1.0), ("m", 0.8, 1.1)], ids=["counted roughly", "now denser"]
)
async def test_the_reply_of_a_second_send_fits_beside_a_prompt_that_has_more_tokens_than_estimated(
    tmp_path: Path, model: str, share: float, denser: float
) -> None:
    counter = counter_for(None, model)

    def count(body: bytes) -> int:
        return int(1.3 * sum(4 + counter.count(json.dumps(message)) for message in json.loads(body)["messages"]))

    async with staged(tmp_path) as stage:
        limit = int(share * count(conversation(30_000, model=model)))
        body = conversation(30_000, model=model, max_tokens=limit // 2)
        stage.model.plays(saying(400, too_long(limit, count(body))), accepting)
        assert (await stage.ask(body)).status == 200
        second = stage.model.bodies[1]
        assert count(second) * denser + json.loads(second)["max_tokens"] <= limit


@pytest.mark.parametrize("limit", [8_000, 9_400])
async def test_a_count_that_stops_at_the_limit_leads_to_six_tenths_of_the_limit(tmp_path: Path, limit: int) -> None:
    async with staged(tmp_path, **window(12_000)) as stage:
        stage.model.plays(saying(400, at_least(limit)), accepting)
        assert (await stage.ask(conversation(9_500))).status == 200
        assert estimate(stage.model.bodies[1]) <= 0.6 * limit
        assert_valid(stage.model.bodies[1])


async def test_a_limit_in_characters_is_met(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(12_000)) as stage:
        stage.model.plays(
            saying(400, openai_error("the max input characters is 9000", "characters_too_long")), accepting
        )
        assert (await stage.ask(conversation(9_500))).status == 200
        texts = [message["content"] or "" for message in json.loads(stage.model.bodies[1])["messages"]]
        assert sum(map(len, texts)) < 9_000


async def test_a_second_send_is_smaller_whatever_the_first_was_counted_with(tmp_path: Path) -> None:
    """Cohere's sum: https://github.com/cohere-ai/sandbox-topically/issues/4"""
    async with staged(tmp_path) as stage:
        message = (
            "too many tokens: total number of tokens (prompt and prediction) cannot exceed 60000 - received 70000."
        )
        stage.model.plays(saying(400, openai_error(message)), accepting)
        answer = await stage.ask(conversation(30_000, model="gpt-4o", max_tokens=40_000))
        first, second = stage.model.bodies
        assert answer.status == 200
        assert len(second) < 0.9 * len(first)


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", ("refused this request as too long", "shorten", "larger window")), ("zh", ("再次被拒绝", "请缩短"))],
)
async def test_a_second_refusal_is_an_error_in_openai_s_shape_that_a_person_can_act_on(
    tmp_path: Path, language: str, words: tuple[str, ...]
) -> None:
    async with staged(tmp_path, **window(12_000, language=language)) as stage:
        stage.model.plays(saying(400, too_long(8_000, 9_500)), saying(400, too_long(1_000, 4_800)))
        answer = await stage.ask(conversation(9_500))
        error = json.loads(answer.body)["error"]
        assert (answer.status, answer.attempts, answer.headers["content-type"]) == (400, "2", JSON)
        assert {name: error[name] for name in ("type", "param", "code")} == {
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
        assert all(word in error["message"] for word in words)
        assert "resulted in 4800 tokens" in error["upstream"]["message"]


@pytest.mark.parametrize(("language", "words"), [("en", "The largest"), ("zh", "最大")])
async def test_a_request_that_cannot_be_made_smaller_is_refused_with_what_takes_the_room(
    tmp_path: Path, language: str, words: str
) -> None:
    async with staged(tmp_path, **window(12_000, language=language)) as stage:
        rules = {"role": "system", "content": "Mind all of this. " + "Nothing is to be left out of it. " * 800}
        question = {"role": "user", "content": "What does this mean?"}
        stage.model.plays(saying(400, too_long(4_000, 9_000)))
        answer = await stage.ask(json.dumps({"model": "m", "messages": [rules, question]}).encode())
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"], answer.attempts) == (400, "context_length_exceeded", "1")
        assert words in error["message"]
        assert "messages[0]" in error["message"]
        assert "Nothing is to be left out" not in error["message"]
        assert "4000 tokens" in error["upstream"]["message"]


@pytest.mark.parametrize("reply", [None, 4_000])
@pytest.mark.parametrize("rules", [17_000, 20_000, 22_000])
async def test_where_the_share_of_an_emergency_cannot_be_reached_the_true_limit_is_what_counts(
    stage: Stage, rules: int, reply: int | None
) -> None:
    words = "Mind this rule. "
    system = {"role": "system", "content": words * (rules // 4)}
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in range(2)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"row {n} of it\n" * 1_400} for n in range(2)]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    body = {"model": "m", "messages": [system, {"role": "user", "content": "Go."}, called, *results]}
    if reply is not None:
        body["max_tokens"] = reply
    stage.model.plays(saying(400, too_long(32_000, rules + 17_000)), accepting)
    answer = await stage.ask(json.dumps(body).encode())
    assert (answer.status, answer.attempts) == (200, "2"), answer.body
    second = json.loads(stage.model.bodies[1])
    assert second["messages"][0] == system
    assert len(json.dumps(second)) < len(json.dumps(body))
    assert reply is None or second["max_tokens"] <= (reply if rules == 17_000 else 32_000 - 29_600)


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_a_proxy_that_only_watches_passes_the_refusal_and_the_request_untouched(
    tmp_path: Path, mode: str
) -> None:
    async with staged(tmp_path, **window(12_000)) as stage:
        body = conversation(20_000)
        stage.model.plays(saying(400, too_long(8_000, 9_500)))
        answer = await stage.ask(body, x_context_proxy_mode=mode)
        assert (answer.status, answer.body, stage.model.bodies) == (400, too_long(8_000, 9_500), [body])
