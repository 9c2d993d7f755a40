"""A body that is too large is sent once more with about half of the bytes; the next keep between both."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.media_samples import PNG
from support.overflow_stage import Received, Stage, staged
from support.overflow_words import conversation, limited
from support.upstream import Scene
from support.upstream.scenes import accepting, saying

SETTINGS = {"defaults": {"context_window": 200_000}}

SHOT = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG * 300).decode()}}
"""A screenshot of 27 KB: a PNG may have anything behind its end."""
REFUSALS = {
    "Anthropic": b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
    "nginx": b"<html><head><title>413 Request Entity Too Large</title></head><body></body></html>",
    "express": b'{"message":"request entity too large","type":"entity.too.large"}',
    "Copilot": b"Request Entity Too Large\n",
    "no words": b"",
}


def shots(count: int) -> bytes:
    """A loop of screenshots: each is the result of a tool."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Watch the page."}]
    for number in range(count):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        texts = {"type": "text", "text": f"shot {number}"}
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": [texts, SHOT]})
    return json.dumps({"model": "m", "messages": messages}).encode()


def holding(most_bytes: int, refusal: bytes = REFUSALS["express"]) -> Scene:
    """An upstream that reads bodies up to this size."""

    return limited(most_bytes, lambda _: saying(413, refusal), count=len)


async def answer_to(stage: Stage, body: bytes, most_bytes: int, key: str = "one", sends: int = 2) -> Received:
    stage.model.plays(*[holding(most_bytes)] * sends)
    return await stage.ask(body, authorization=f"Bearer {key}")


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_body_that_is_too_large_is_sent_once_more_without_its_oldest_media(
    tmp_path: Path, refusal: bytes
) -> None:
    async with staged(tmp_path, defaults={"context_window": 200_000}) as stage:
        body = shots(12)
        stage.model.plays(saying(413, refusal), accepting)
        answer = await stage.ask(body)
        assert (answer.status, answer.attempts) == (200, "2")
        first, second = stage.model.bodies
        assert first == body
        assert 0.3 * len(body) < len(second) <= 0.5 * len(body)
        reported = [message["content"] for message in json.loads(second)["messages"] if message["role"] == "tool"]
        assert len(reported) == 12, "no exchange is left out"
        described = [json.dumps(content).count("[cannot read]") for content in reported]
        assert described == sorted(described, reverse=True), "the oldest first"
        assert 0 < sum(described) < 12
        kept = [path.read_bytes() for path in (tmp_path / "tool-output").glob("*.png")]
        assert kept == [PNG * 300], "the whole is kept"


async def test_text_that_is_too_large_is_sent_as_a_plan_of_half_of_the_bytes(stage: Stage) -> None:
    body = conversation(60_000, model="m")
    answer = await answer_to(stage, body, len(body) * 2 // 3)
    assert (answer.status, answer.attempts) == (200, "2")
    assert 0.3 * len(body) < len(stage.model.bodies[1]) <= 0.5 * len(body)


async def test_a_limit_that_is_not_stated_is_met_a_few_times_and_then_kept_to(stage: Stage) -> None:
    most, attempts, sizes = 300_000, [], []
    for count in range(12, 32):
        answer = await answer_to(stage, shots(count), most)
        assert answer.status == 200
        attempts.append(answer.attempts)
        sizes.append(len(stage.model.bodies[-1]))
    assert attempts.count("2") <= 4
    assert attempts[-10:] == ["1"] * 10
    assert max(sizes[-10:]) > most * 0.7


async def test_a_limit_in_bytes_binds_the_key_that_met_it(stage: Stage) -> None:
    body, most = shots(12), 300_000
    assert [(await answer_to(stage, body, most, key)).attempts for key in ("one", "one", "two")] == ["2", "1", "2"]


async def test_a_second_refusal_for_bytes_passes_and_teaches_nothing(stage: Stage) -> None:
    body = shots(12)
    answer = await answer_to(stage, body, 1_000)
    assert (answer.status, answer.body) == (413, REFUSALS["express"])
    stage.model.plays(accepting)
    await stage.ask(body)
    assert stage.model.bodies == [body]


async def test_a_small_body_over_a_limit_that_is_stated_is_sent_once_more_under_it(stage: Stage) -> None:
    refusal = b'{"error":{"message":"Request body too large: the limit is 32768 bytes"}}'
    body = conversation(12_000, model="m")
    assert 32_768 < len(body) < 65_536
    stage.model.plays(holding(32_768, refusal), holding(32_768, refusal))
    answer = await stage.ask(body)
    assert (answer.status, answer.attempts) == (200, "2")
    assert 20_000 < len(stage.model.bodies[1]) <= 32_768
    stage.model.plays(holding(32_768, refusal))
    assert (await stage.ask(body)).attempts == "1"


async def test_a_learned_limit_in_bytes_costs_no_further_send(stage: Stage) -> None:
    body = shots(12)
    for _ in range(2):
        await answer_to(stage, body, 300_000)
    sizes = set()
    for _ in range(40):
        assert (await answer_to(stage, body, 300_000)).attempts == "1"
        sizes.add(len(stage.model.bodies[0]))
    assert len(sizes) == 1, "the prefix stays"
