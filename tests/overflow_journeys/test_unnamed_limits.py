"""Refusals that name no limit: one is enough to stay under it, and the search for it comes to an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, raw_messages, without_numbers
from support.upstream import Json, Over
from support.upstream.scenes import accepting, saying

WEB_SEARCH = {"type": "web_search"}


def sizes(stage: Stage, *, refused: bool = False) -> list[int]:
    """The tokens of all that was taken, or refused."""
    return [one.tokens for one in stage.model.sent if one.refused == refused]


def exchange(turn: int, count: int = 1, size: int = 70) -> list[Json]:
    """What an agent adds in a turn: calls and their results."""
    ids, function = [f"c{turn}_{number}" for number in range(count)], {"name": "read_log", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    text = " it waited and wrote; " * size
    results = [{"role": "tool", "tool_call_id": one, "content": one + text} for one in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def growing(body: bytes, *added: list[Json]) -> list[bytes]:
    """A request, and the next ones, each with more behind it."""
    bodies, request = [body], json.loads(body)
    for more in added:
        request["messages"] += more
        bodies.append(json.dumps(request).encode())
    return bodies


def long_run(*tokens: int, **more: Any) -> list[bytes]:
    return [conversation(count, exchanges=60, model="m", **more) for count in tokens]


EXCESS = b'{"error":"prompt too long; exceeded max context length by %O tokens (ref: a1b2)"}'
SAYINGS = pytest.mark.parametrize("refusal", [without_numbers(), b""], ids=["words", "nothing"])


@SAYINGS
async def test_a_growing_session_meets_few_refusals_and_then_none(tmp_path: Path, refusal: bytes) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(20_000, refusal, reports=1.0)
        turns = growing(conversation(12_000, exchanges=30, model="m"), *map(exchange, range(119)))
        attempts = await stage.attempts(*turns)
        assert stage.model.refusals <= 3, sizes(stage, refused=True)
        assert attempts.count("1") >= len(attempts) - 3
        assert max(sizes(stage)[-30:]) > 0.85 * 20_000, "and the limit is found nearly"


@SAYINGS
@pytest.mark.parametrize("limit", [17_000, 9_000, 4_000])
async def test_a_session_that_is_already_long_converges(tmp_path: Path, refusal: bytes, limit: int) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(limit, refusal, reports=1.0)
        *first, _, _, _, _, _, _ = turns = long_run(*range(40_000, 41_200, 100))
        failed = [answer.status for answer in [await stage.ask(body) for body in first] if answer.status != 200]
        assert len(failed) <= 2, failed
        assert await stage.attempts(*turns[-6:]) == ["1"] * 6
        assert stage.model.refusals <= 6, sizes(stage, refused=True)


@pytest.mark.parametrize("limit", [36_000, 17_000, 9_000])
async def test_a_refusal_that_states_only_its_excess_is_met_once(tmp_path: Path, limit: int) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(limit, EXCESS, reports=1.0)
        assert await stage.attempts(*long_run(*range(40_000, 41_200, 100))) == ["2"] + ["1"] * 11
        assert max(sizes(stage)) > limit / 3


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.2])
async def test_an_excess_over_most_of_the_prompt_is_met_however_tokens_are_estimated(
    tmp_path: Path, scale: float
) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(6_000, EXCESS, ratio=scale, reports=1.0)
        assert await stage.attempts(*long_run(60_000)) == ["2"]


@SAYINGS
async def test_the_second_send_is_what_the_next_turn_continues_from(tmp_path: Path, refusal: bytes) -> None:
    more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And then?"}]
    async with staged(tmp_path) as stage:
        stage.counts(30_000, refusal, reports=1.0)
        assert await stage.attempts(*growing(*long_run(50_000), more)) == ["2", "1"]
        _, second, third = map(raw_messages, stage.model.bodies)
        assert third[: len(second)] == second


@pytest.mark.parametrize("limit", [20_000, 40_000])
@pytest.mark.parametrize("size", [60, 200])
@pytest.mark.parametrize("burst", [0, 40])
async def test_no_turn_of_a_growing_conversation_ends_in_a_refusal(
    tmp_path: Path, limit: int, size: int, burst: int
) -> None:
    """However much comes in one turn: what was accepted before is accepted again."""
    added = (exchange(turn, burst if burst and turn % 7 == 5 else 1, size) for turn in range(19))
    async with staged(tmp_path) as stage:
        stage.counts(limit, without_numbers(), reports=1.0)
        await stage.attempts(*growing(conversation(3_000, exchanges=8, model="m"), *added))
        assert len(stage.model.sent) <= 20 + 5, sizes(stage, refused=True)


async def test_what_was_accepted_a_turn_ago_is_the_size_after_a_refusal(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(40_000, without_numbers(), reports=1.0)
        turns = long_run(39_200, 40_400, *range(40_400, 42_200, 300))
        assert await stage.attempts(*turns) == ["1", "2"] + ["1"] * 6


@pytest.mark.parametrize("arrives", ["body", "first event"])
async def test_a_stream_is_refused_before_its_upstreams_own_tools_have_run(tmp_path: Path, arrives: str) -> None:
    """Codex offers `web_search` with each request: what was refused is the prompt that was sent."""
    async with staged(tmp_path) as stage:
        stage.counts()
        words = json.loads(without_numbers())["error"]["message"]
        code = {"code": "context_length_exceeded"}
        stage.model.rules = [Over("prompt", 22_000, words, arrives=arrives, members=code)]
        attempts = await stage.attempts(*long_run(*range(18_000, 48_000, 2_500), stream=True, tools=[WEB_SEARCH]))
        assert attempts.count("2") <= 2, attempts


async def test_whatever_an_upstreams_own_tools_add_a_growing_session_never_ends(tmp_path: Path) -> None:
    """Nothing is learned from a whole answer, but a second send is never larger than what was refused before."""
    async with staged(tmp_path) as stage:
        stage.counts(22_000, without_numbers())
        await stage.attempts(*long_run(*range(18_000, 90_000, 6_000), tools=[WEB_SEARCH]))


async def test_a_reply_limit_beyond_the_prompt_loses_no_turn_more(tmp_path: Path) -> None:
    """Prompt and reply together may be too much, so less of each is asked for, and what was asked for is known."""
    async with staged(tmp_path) as stage:
        stage.counts(7_500, without_numbers())
        (body,) = long_run(14_000, tools=[WEB_SEARCH], max_tokens=20_000)
        statuses = [(await stage.ask(body)).status for _ in range(3)]
        assert statuses in ([200] * 3, [400, 200, 200])
        assert json.loads(stage.model.bodies[-1])["max_tokens"] < 7_500


async def test_text_over_a_limit_that_was_inferred_is_cut_at_once(tmp_path: Path) -> None:
    """Text of people, which is sent over a stated window by an estimate alone, because that may be half over."""
    words = "the unit started and wrote its state, then it waited for the next message to arrive; "

    def request_body(words_of: int) -> bytes:
        text = [{"role": "system", "content": "Answer."}, {"role": "user", "content": words * words_of}]
        return json.dumps({"model": "m", "messages": text}).encode()

    async with staged(tmp_path) as stage:
        stage.counts(6_000, without_numbers(), reports=1.0)
        attempts = await stage.attempts(*map(request_body, range(420, 434)))
        assert attempts.count("2") <= 3
        assert attempts[-8:] == ["1"] * 8


async def test_a_second_key_is_not_bound_by_the_search_of_the_first(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.counts(20_000, without_numbers(), reports=1.0)
        (body,) = long_run(30_000)
        await stage.ask(body, authorization="Bearer one")
        stage.model.plays(accepting)
        await stage.ask(body, authorization="Bearer two")
        assert stage.model.bodies == [body]


async def test_the_proxys_own_refusal_states_no_invented_figure(tmp_path: Path) -> None:
    refusal = without_numbers()
    hopeless = {"model": "m", "messages": [{"role": "system", "content": "Never leave this out. " * 4_000}]}
    async with staged(tmp_path) as stage:
        stage.model.plays(saying(400, refusal), saying(400, refusal))
        answer = await stage.ask(json.dumps(hopeless).encode())
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 400
    assert json.loads(refusal)["error"]["message"] in message
    for word in ("completion", "maximum context length", "the room for"):
        assert word not in message
