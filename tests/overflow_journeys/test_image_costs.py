"""Images that cost more than they should: a loop of screenshots is refused once, not at every turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.media_samples import base64_of, png
from support.overflow_stage import staged
from support.overflow_words import conversation, counting, raw_messages, window

STEPS = 30


def screenshots(count: int, model: str) -> bytes:
    """A loop of screenshots: each follows a call, in a user message."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You click."}, {"role": "user", "content": "Go."}]
    for number in range(count):
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "click", "arguments": f'{{"n": {number}}}'},
        }
        url = f"data:image/png;base64,{base64_of(png(1_280, 800) + b'%d' % number)}"
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "clicked"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        ]
    return json.dumps({"model": model, "messages": messages}).encode()


def counted_images(body: bytes) -> int:
    return 1_900 * body.count(b'"image_url":') + 15 * len(body.split(b'"role"'))


@pytest.mark.parametrize("model", ["gpt-4o", "somebodys-vl-model"])
async def test_a_loop_of_screenshots_that_cost_more_than_they_should_is_hardly_refused(
    tmp_path: Path, model: str
) -> None:
    reads = {"models": [{"match": "*", "context_window": 32_000, "input": ["text", "vision"]}]}
    async with staged(tmp_path, **window(32_000) | reads) as stage:
        twice, broken, before = 0, 0, []
        for step in range(1, STEPS + 1):
            stage.model.plays(*[counting(32_000, count=counted_images)] * 2)
            answer = await stage.ask(screenshots(step, model))
            assert answer.status == 200
            twice += answer.attempts == "2"
            sent = raw_messages(stage.model.bodies[-1])
            broken += sent[: len(before)] != before
            before = sent
        assert twice <= 1
        assert broken <= 5, "cuts that the window asks for: sixteen screenshots fill it"


def one_picture(steps: int) -> bytes:
    """A loop of long texts after one small picture."""
    url = f"data:image/png;base64,{base64_of(png(64, 64))}"
    body = json.loads(conversation(steps * 900, exchanges=steps, model="somebodys-vl-model"))
    body["messages"].insert(1, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    return json.dumps(body).encode()


async def test_a_picture_among_much_text_does_not_hide_that_the_text_counts_for_more(tmp_path: Path) -> None:
    reads = {"models": [{"match": "*", "context_window": 16_000, "input": ["text", "vision"]}]}
    twice = 0
    async with staged(tmp_path, **window(16_000) | reads) as stage:
        for steps in range(8, 40):
            # a third more than is expected of such text
            stage.model.plays(*[counting(16_000, count=lambda body: len(body) * 2 // 5)] * 2)
            answer = await stage.ask(one_picture(steps))
            assert answer.status == 200
            twice += answer.attempts == "2"
    assert twice <= 1
