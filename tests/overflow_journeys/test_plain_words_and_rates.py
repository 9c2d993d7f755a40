"""Words that leave no doubt are believed whatever window is assumed; what is over a rate by itself is made smaller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.overflow_stage import COMPLETION, Scene, accepting, saying, staged
from support.overflow_words import assert_valid, conversation, estimate, openai_error

ZAI = b'{"error": {"code": "1261", "message": "Prompt exceeds max length"}}'
KIMI = b'{"type":"error","error":{"type":"authentication_error","message":"k3-256k supports only 256K context."}}'


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, ZAI),  # https://github.com/zeroclaw-labs/zeroclaw/issues/4124
        (413, openai_error("Prompt is too long")),  # https://github.com/anthropics/claude-code/issues/2569
        (400, openai_error("Your input exceeds the context window of this model.")),  # onyx-dot-app/onyx/issues/6051
        (400, b'{"error": "the input length exceeds the context length"}'),  # nano-step/nano-brain/issues/208
        (401, KIMI),  # https://github.com/MoonshotAI/kimi-code/pull/2655
        (400, openai_error("超过最大长度")),
        (400, openai_error("length limit exceeded")),
    ],
)
@pytest.mark.parametrize("tokens", [4_500, 30_000])
async def test_plain_words_are_believed_far_under_the_default_window(
    tmp_path: Path, status: int, refusal: bytes, tokens: int
) -> None:
    async with staged(tmp_path) as stage:
        stage.model.plays(saying(status, refusal), accepting)
        answer = await stage.ask(conversation(tokens))
        assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
        assert estimate(stage.model.bodies[1]) <= 0.55 * estimate(stage.model.bodies[0])


async def test_a_parameter_of_vllm_over_its_window_passes_after_one_send(tmp_path: Path) -> None:
    """https://github.com/vllm-project/vllm/issues/22635"""
    async with staged(tmp_path) as stage:
        refusal = openai_error("truncate_prompt_tokens value (40000) is greater than max_model_len (32768).")
        stage.model.plays(saying(400, refusal))
        answer = await stage.ask(conversation(9_500))
        assert (answer.status, answer.body, answer.attempts) == (400, refusal, "1")


def tokens_per_minute(limit: int, requested: str) -> bytes:
    """Groq: https://github.com/continuedev/continue/issues/10218"""
    message = (
        "Request too large for model `m` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): "
        f"Limit {limit}, {requested}, please reduce your message size and try again."
    )
    return json.dumps({"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}}).encode()


def allowing(limit: int) -> Scene:
    """A model server with that rate, of which nothing is used up yet."""

    async def scene(connection, request) -> None:  # type: ignore[no-untyped-def]
        tokens = estimate(request.body) + (json.loads(request.body).get("max_tokens") or 0)
        refused = saying(413, tokens_per_minute(limit, f"Requested {tokens}"))
        await (refused if tokens > limit else accepting)(connection, request)

    return scene


@pytest.mark.parametrize("reply", [None, 1_000, 5_000])
async def test_a_request_over_a_rate_by_itself_is_made_smaller(tmp_path: Path, reply: int | None) -> None:
    async with staged(tmp_path) as stage:
        stage.model.plays(allowing(6_000), allowing(6_000))
        answer = await stage.ask(conversation(9_500, **({"max_tokens": reply} if reply else {})))
        assert (answer.status, answer.body, answer.attempts) == (200, COMPLETION, "2")
        assert_valid(stage.model.bodies[1])


async def test_a_reply_that_takes_the_rate_is_lowered_and_the_prompt_stays(tmp_path: Path) -> None:
    """https://github.com/zeeyado/koassistant.koplugin/issues/106"""
    async with staged(tmp_path) as stage:
        stage.model.plays(allowing(8_000), allowing(8_000))
        answer = await stage.ask(conversation(3_000, max_tokens=32_000))
        first, second = (json.loads(body) for body in stage.model.bodies)
        assert (answer.status, answer.attempts) == (200, "2")
        assert second["messages"] == first["messages"]
        assert 4_500 < second["max_tokens"] < 5_100


async def test_what_has_to_stay_and_is_over_a_rate_gets_the_upstreams_own_answer(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        refusal = tokens_per_minute(600, "Requested 9000")
        body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "a word " * 6_000}]}).encode()
        stage.model.plays(saying(413, refusal))
        answer = await stage.ask(body)
        assert (answer.status, answer.body, answer.attempts) == (413, refusal, "1")


@pytest.mark.parametrize(("status", "requested"), [(413, "Requested 5000"), (429, "Used 5034, Requested 1443")])
async def test_a_request_under_the_rate_waits_for_it(tmp_path: Path, status: int, requested: str) -> None:
    async with staged(tmp_path) as stage:
        refusal = tokens_per_minute(6_000, requested)
        stage.model.plays(saying(status, refusal, "application/json", "retry-after: 5"))
        answer = await stage.ask(conversation(5_000))
        assert (answer.status, answer.body, answer.attempts) == (status, refusal, "1")
        assert answer.headers["retry-after"] == "5"
