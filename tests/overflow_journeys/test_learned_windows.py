"""Lessons and estimates may be wrong: they are tried again, and no request is refused because of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.overflow_stage import Received, Stage, staged
from support.overflow_words import SYSTEM, conversation, counting, estimate, raw_messages, too_long
from support.upstream import Scene
from support.upstream.scenes import accepting, saying

WORDS = "the unit started and wrote its state, then it waited for the next message to arrive; "
GPT = "gpt-4o"


async def answer_to(stage: Stage, body: bytes, *scenes: Scene, key: str = "one") -> Received:
    stage.model.plays(*scenes)
    return await stage.ask(body, authorization=f"Bearer {key}")


def request_body(text: str, model: str = "m", system: str = SYSTEM) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return json.dumps({"model": model, "messages": messages}).encode()


def window(tokens: int) -> dict[str, Any]:
    return {"defaults": {"context_window": tokens}}


async def test_what_an_estimate_holds_for_too_long_goes_up_and_what_was_counted_exactly_does_not(
    tmp_path: Path,
) -> None:
    """English prose of 10 000 tokens was estimated at 14 684, and refused in a window of 16 000."""
    async with staged(tmp_path, **window(8_000)) as stage:
        prose = request_body(WORDS * 330)
        assert estimate(prose) > 8_000
        assert (await answer_to(stage, prose, accepting)).status == 200
        assert stage.model.bodies == [prose]
        rules = request_body("Go.", system=WORDS * 600)
        assert (await answer_to(stage, rules, accepting)).status == 200
        assert stage.model.bodies == [rules]
        refused = await answer_to(stage, request_body("Go.", GPT, system=WORDS * 600))
        assert (refused.status, stage.model.bodies) == (400, [])


async def test_an_estimate_that_the_upstream_has_confirmed_refuses(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(8_000)) as stage:
        rules = request_body("Go.", system=WORDS * 600)
        assert (await answer_to(stage, rules, counting(8_000))).status == 400
        assert len(stage.model.bodies) == 1
        assert ((await answer_to(stage, rules)).status, stage.model.bodies) == (400, [])


async def test_a_request_that_a_learned_window_cannot_hold_goes_up_and_teaches_that_it_grew(stage: Stage) -> None:
    await answer_to(stage, conversation(15_000, model="m"), *[counting(4_096)] * 2)
    rules = request_body("Go.", system=WORDS * 300)
    assert estimate(rules) > 4_096
    assert (await answer_to(stage, rules, counting(128_000))).status == 200
    await answer_to(stage, conversation(15_000, model="m"), counting(128_000))
    assert estimate(stage.model.bodies[0]) > 12_000, "the limit is forgotten"


async def test_a_learned_window_costs_no_further_send_and_the_prefix_stays(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(20_000)) as stage:
        body = conversation(15_000, model=GPT)
        await answer_to(stage, body, *[saying(400, too_long(6_000, 15_000)), accepting] * 2)
        await answer_to(stage, body, *[saying(400, too_long(6_000, 15_000)), accepting] * 2)
        kept = set()
        for _ in range(70):
            assert (await answer_to(stage, body, counting(6_000))).attempts == "1"
            kept.add(stage.model.bodies[0])
        assert len(kept) <= 2  # as the ratio of the estimate is adopted in finer steps while little was seen


async def test_after_a_refusal_the_next_turn_begins_as_the_second_send_did(stage: Stage) -> None:
    assert (await answer_to(stage, conversation(24_000, model="m"), *[counting(20_000)] * 2)).attempts == "2"
    second = raw_messages(stage.model.bodies[1])
    longer = json.loads(conversation(24_000, model="m"))
    longer["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And then?"}]
    assert (await answer_to(stage, json.dumps(longer).encode(), counting(20_000))).attempts == "1"
    assert raw_messages(stage.model.bodies[0])[: len(second)] == second


async def test_required_content_is_not_cut_further_than_the_true_limit_demands(stage: Stage) -> None:
    """17 000 tokens of system text and two results of 8 000 at a limit of 32 000."""
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} " + WORDS * 280} for n in range(2)]
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": WORDS * 600},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": calls},
            *results,
        ],
    }
    raw = json.dumps(body).encode()
    whole = estimate(raw)
    limit = whole - 2_000
    assert (await answer_to(stage, raw, *[counting(limit)] * 2)).status == 200
    assert 0.85 * limit < estimate(stage.model.bodies[1]) <= limit
