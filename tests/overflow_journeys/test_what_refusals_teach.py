"""A limit that a refusal printed is kept: the next request of that model is cut before it is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.overflow_score import counted_in, load
from support.overflow_stage import Stage, serving, staged
from support.overflow_words import (
    conversation,
    counted,
    estimate,
    limited,
    openai_error,
    times,
    too_long,
    without_numbers,
)
from support.upstream import Scene
from support.upstream.scenes import accepting, saying

SETTINGS = {"defaults": {"context_window": 20_000}}
"""The assumed window of every model, which refusals correct."""


async def sends_needed(stage: Stage, *scenes: Scene, model: str = "m") -> str | None:
    """Sends that a long request needed, when the upstream plays these scenes."""
    stage.model.plays(*scenes)
    answer = await stage.ask(conversation(15_000, model=model))
    assert answer.status == 200
    return answer.attempts


async def test_what_is_learned_of_one_model_does_not_touch_another(stage: Stage) -> None:
    assert await sends_needed(stage, saying(400, too_long(12_000, 15_000)), accepting) == "2"
    assert await sends_needed(stage, accepting, model="other") == "1"
    assert estimate(stage.model.bodies[0]) > 12_000


@pytest.mark.parametrize("limit", [12_000, 6_000])
async def test_a_limit_teaches_at_once_even_one_under_half_of_what_was_believed(stage: Stage, limit: int) -> None:
    assert await sends_needed(stage, saying(400, too_long(limit, 15_000)), accepting) == "2"
    assert estimate(stage.model.bodies[0]) > 12_000
    assert await sends_needed(stage, accepting) == "1"
    assert estimate(stage.model.bodies[0]) < limit


def counted_by(limit: int, ratio: float) -> Scene:
    """A model server with that window, which counts so many tokens for one of ours."""
    return limited(limit, lambda tokens: saying(400, too_long(limit, tokens)), count=times(ratio))


async def test_after_one_exact_refusal_of_an_unknown_model_the_next_turns_fit_at_their_first_send(
    tmp_path: Path,
) -> None:
    """The upstream counts a third more than the proxy does, and its window is a fraction of the default."""
    async with staged(tmp_path) as stage:
        stage.model.plays(
            counted_by(12_000, 4 / 3),
            counted_by(12_000, 4 / 3),
        )
        assert (await stage.ask(conversation(10_000, exchanges=20, model="m"))).attempts == "2"
        kept: list[bytes] = []
        for exchanges in (21, 22, 23):
            stage.model.plays(counted_by(12_000, 4 / 3))
            answer = await stage.ask(conversation(10_000, exchanges=exchanges, model="m"))
            assert (answer.status, answer.attempts) == (200, "1")
            kept.append(stage.model.bodies[0])
        assert all(estimate(body) > 5_000 for body in kept), "and no more is left out than has to be"


ROWS = load(Path(__file__).parents[1] / "wire" / "unseen_variants.jsonl")
COUNTED = [
    (row, tokens)
    for row in ROWS
    if row["label"] == "overflow" and row["source"].startswith("http") and (row["limit"] or 0) >= 4_096
    if (tokens := counted_in(row)) is not None and row["limit"] <= tokens <= 60_000
]
"""Refusals that state limit and count exactly, of prompts that a test can make."""


@pytest.mark.parametrize(("row", "tokens"), COUNTED, ids=lambda value: value["id"] if isinstance(value, dict) else "")
async def test_every_refusal_that_states_limit_and_count_is_the_only_one_of_a_growing_run(
    tmp_path: Path, row: dict[str, Any], tokens: int
) -> None:
    async with staged(tmp_path) as stage:
        stage.model.plays(saying(row["http_status"], row["body"].encode()), accepting)
        assert (await stage.ask(conversation(tokens, exchanges=20, model="m"))).attempts == "2"
        for exchanges in (21, 23):
            stage.model.plays(accepting)
            assert (await stage.ask(conversation(tokens, exchanges=exchanges, model="m"))).attempts == "1"
            assert 0.4 * row["limit"] < estimate(stage.model.bodies[0]) <= row["limit"]


OTHER_WORDS = [
    "prompt token count of {0} exceeds the limit of {1}",
    "Invalid request: Your request exceeded model token limit: {1} (requested: {0})",
    "Input length {0} exceeds the maximum length {1}",
    "Please reduce the length of the messages or completion. Current length is {0} while limit is {1}",
]
"""Copilot, Kimi, Volcengine Ark, Cerebras: the limit is neither the window's nor the input's by name."""


@pytest.mark.parametrize("words", OTHER_WORDS)
async def test_a_limit_without_a_name_under_half_of_a_certain_window_needs_two_sightings(
    stage: Stage, words: str
) -> None:
    refusal = saying(400, openai_error(words.format(15_000, 6_000)))
    for _ in range(2):
        assert await sends_needed(stage, refusal, accepting) == "2"
    assert await sends_needed(stage, accepting) == "1"
    assert estimate(stage.model.bodies[0]) < 6_000


@pytest.mark.parametrize("words", [*OTHER_WORDS, json.loads(too_long(6_000, 15_000))["error"]["message"]])
async def test_a_limit_quoted_in_the_request_teaches_nothing(tmp_path: Path, words: str) -> None:
    message = words.format(15_000, 6_000)
    async with staged(tmp_path) as stage:
        for key in ("one", "one", "two"):
            stage.model.plays(saying(400, openai_error(message)), accepting)
            body = conversation(15_000, model="m", user=message)
            assert (await stage.ask(body, authorization=f"Bearer {key}")).status == 200
            assert estimate(stage.model.bodies[0]) > 12_000
        assert await sends_needed(stage, accepting) == "1"
        assert estimate(stage.model.bodies[0]) > 12_000


OPENAI = "This model's maximum context length is {1} tokens. However, your messages resulted in {0} tokens."
VLLM = (
    "This model's maximum context length is {1} tokens. However, you requested {0} tokens in the messages. Please "
    "reduce the length of the messages."
)
ABOUT_A_REFUSAL = ["", OPENAI.format(140_013, 131_072), OPENAI.format(14_444, 12_000), VLLM.format(12_001, 12_000)]
"""What agents read in logs and tests; the last two are of this very window."""


@pytest.mark.parametrize("about", ABOUT_A_REFUSAL)
@pytest.mark.parametrize("words", [*OTHER_WORDS, OPENAI, VLLM])
async def test_twelve_turns_past_a_limit_meet_one_refusal_whatever_the_conversation_is_about(
    tmp_path: Path, words: str, about: str
) -> None:
    scene = limited(12_000, lambda tokens: saying(400, openai_error(words.format(tokens, 12_000))))
    async with staged(tmp_path) as stage:
        sends = 0
        for turn in range(12):
            stage.model.plays(scene, scene)
            body = conversation(9_000 + 600 * turn, exchanges=20, model="m").replace(b"what broke.", about.encode())
            assert (await stage.ask(body)).status == 200
            sends += len(stage.model.bodies)
        assert sends == 13, "one refusal"


async def test_a_request_that_was_counted_roughly_is_counted_anew_to_learn_from_its_refusal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with staged(tmp_path, log={"format": "json"}) as stage:
        for exchanges, attempts in ((20, "2"), (21, "1"), (22, "1")):
            stage.model.plays(*[counted_by(8_000, 1.5)] * int(attempts))
            answer = await stage.ask(conversation(6_500, exchanges=exchanges, model="gpt-4o"))
            assert (answer.status, answer.attempts) == (200, attempts)
    learned = [line for line in capfd.readouterr().out.splitlines() if '"lesson":"ratio ' in line]
    assert len(learned) == 1


async def test_a_limit_of_characters_fits_the_next_turns_at_their_first_send(stage: Stage) -> None:
    """DashScope: https://www.alibabacloud.com/help/en/model-studio/error-code"""
    refusal = openai_error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 36000]")
    assert await sends_needed(stage, saying(400, refusal), accepting) == "2"
    assert characters(stage.model.bodies[0]) > 36_000
    assert await sends_needed(stage, accepting) == "1"
    assert 20_000 < characters(stage.model.bodies[0]) <= 36_000


def characters(body: bytes) -> int:
    return sum(len(message.get("content") or "") for message in json.loads(body)["messages"])


async def test_one_refusal_without_numbers_bounds_what_is_sent(stage: Stage) -> None:
    assert await sends_needed(stage, saying(400, without_numbers()), accepting) == "2"
    second = stage.model.bodies[1]
    assert estimate(second) <= 15_000 / 2
    assert await sends_needed(stage, accepting) == "1"
    assert stage.model.bodies == [second]


async def test_refusals_of_a_large_wish_for_a_reply_without_numbers_do_not_shrink_the_prompt(tmp_path: Path) -> None:
    async with staged(tmp_path, defaults={"context_window": 64_000}) as stage:
        for _ in range(2):
            stage.model.plays(saying(400, without_numbers()), accepting)
            await stage.ask(conversation(6_000, model="m", max_tokens=40_000))
        stage.model.plays(accepting)
        answer = await stage.ask(conversation(6_000, model="m", max_tokens=1_000))
        assert answer.attempts == "1"
        assert estimate(stage.model.bodies[0]) > 5_500


async def test_a_learned_limit_survives_a_restart(stage: Stage) -> None:
    assert await sends_needed(stage, saying(400, too_long(12_000, 15_000)), accepting) == "2"
    async with serving(stage.settings) as url:
        stage.url = url
        assert await sends_needed(stage, accepting) == "1"
        assert estimate(stage.model.bodies[0]) < 12_000


@pytest.mark.parametrize("calibrated", [True, False])
async def test_a_count_far_under_the_estimate_is_reported_as_silent_truncation_and_cured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], calibrated: bool
) -> None:
    async with staged(tmp_path, **SETTINGS, log={"format": "json"}) as stage:
        for _ in range(3 if calibrated else 0):
            assert await sends_needed(stage, counted(14_000)) == "1"
        assert "upstream_truncated_silently" not in capfd.readouterr().out
        assert await sends_needed(stage, counted(4_096), accepting) == "2"
        assert estimate(stage.model.bodies[1]) < 4_096
        warning = next(line for line in capfd.readouterr().out.splitlines() if "upstream_truncated_silently" in line)
        assert json.loads(warning)["prompt_tokens"] == 4_096


def _said(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error"}}, ensure_ascii=False)


IN_OTHER_WORDS: dict[str, tuple[int, str]] = {
    "a list": (400, '[{"error":{"message":"Prompt of %P tokens does not fit the %L-token context window"}}]'),
    "two strings": (400, json.dumps({"detail": json.dumps({"error": "maximum context length is %L, not %P tokens"})})),
    "data, reason": (400, '{"status":"fail","data":{"reason":{"text":"conversation size %P tok > window %L tok"}}}'),
    "a page": (413, "<html><h1>413</h1><p>Prompt too large: %P tokens, allowed %L tokens</p></html>"),
    "Rust": (400, "Error: PromptTooLong { tokens: %P, max: %L }"),
    "Go": (500, '{"error":"rpc error: desc = sequence of %P tokens is longer than n_ctx_train %L"}'),
    "members alone": (400, '{"error":{"type":"context_window_exceeded","limit":%L,"used":%P}}'),
    "a magnitude": (400, _said("The prompt is %P tokens long, but the model only has a ~%L context window")),
    "Chinese": (400, _said("输入内容共%P个token，超过了模型允许的最大长度%L，请精简后重试")),
    "traditional Chinese": (400, _said("輸入的提示過長（%P 個權杖），模型上限為 %L 個權杖")),
    "Japanese": (400, _said("入力トークン数 %P がモデルの最大コンテキスト長 %L を超えています。")),
    "German": (400, _said("Die Eingabe hat %P Tokens, und mehr als %L gehen nicht.")),
    "a wish": (400, _said("Please keep your messages under %L tokens (currently %P).")),
    "no sentence": (400, _said("%P tokens won't go into %L.")),
}


@pytest.mark.parametrize("words", IN_OTHER_WORDS)
async def test_a_growing_session_is_refused_once_whatever_the_words(tmp_path: Path, words: str) -> None:
    """Nobody has sent these: words of the same kinds as those that are known, and of languages that are not."""
    status, refusal = IN_OTHER_WORDS[words]
    limit, attempts = 20_000, []
    said = refusal.replace("%L", str(limit))
    scene = limited(limit, lambda tokens: saying(status, said.replace("%P", str(tokens)).encode()))
    async with staged(tmp_path) as stage:
        for turn in range(8):
            stage.model.plays(scene, scene)
            answer = await stage.ask(conversation(24_000 + 1_000 * turn, model="m", exchanges=60))
            assert answer.status == 200
            attempts.append(answer.attempts)
    assert attempts == ["2"] + ["1"] * 7


@pytest.mark.parametrize(
    "refusal",
    [
        _said("Token id 24120 is not in the vocabulary of 20000"),
        _said("Unexpected token in JSON at position 24120 of 32768"),
        _said("At least 24120 tokens are needed to cache a prompt, not 20000"),
    ],
)
async def test_two_numbers_that_may_be_our_count_teach_nothing_unless_less_is_taken(
    tmp_path: Path, refusal: str
) -> None:
    async with staged(tmp_path) as stage:
        body = conversation(24_000, model="m", exchanges=60)
        stage.model.plays(saying(400, refusal.encode()), saying(400, b"still no"))
        answer = await stage.ask(body)
        assert (answer.status, answer.body) == (400, refusal.encode())
        stage.model.plays(accepting)
        await stage.ask(body)
        assert stage.model.bodies == [body]
