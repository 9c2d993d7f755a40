"""Refusals that name no limit: one is enough to stay under it, and the search for it comes to an end."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.overflow_stage import Stage
from support.overflow_words import conversation, counted, estimate, limited, raw_messages, without_numbers
from support.upstream.scenes import EVENTS, STREAM, accepting, saying
from support.upstream.sockets import Connection, Request


@dataclass
class Unnamed:
    """A model server that does not name its limit, in tokens by the estimate."""

    limit: int
    refusal: bytes
    """`{over}` in it is the excess."""
    refused: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    scale: float = 1.0
    """Its tokens for one by the estimate."""
    shrinks_over: float = math.inf
    """A prompt of more tokens takes a third off the limit, once."""

    async def __call__(self, connection: Connection, request: Request) -> None:
        tokens = int(estimate(request.body) * self.scale)
        if tokens > 1.05 * self.shrinks_over:
            self.limit, self.shrinks_over = self.limit * 2 // 3, math.inf
        (self.refused if tokens > self.limit else self.taken).append(tokens)
        refusal = self.refusal.replace(b"{over}", str(tokens - self.limit).encode())
        await (saying(400, refusal) if tokens > self.limit else counted(tokens))(connection, request)

    async def turn(self, stage: Stage, tokens: int, **more: Any) -> tuple[int, str | None]:
        """The status that the client sees, and the sends that it took."""
        stage.model.plays(self, self)
        answer = await stage.ask(conversation(tokens, exchanges=60, model="m", **more))
        return answer.status, answer.attempts


WEB_SEARCH = {"type": "web_search"}


EXCESS = b'{"error":"prompt too long; exceeded max context length by {over} tokens (ref: a1b2)"}'
SAYINGS = pytest.mark.parametrize("refusal", [without_numbers(), b""], ids=["words", "nothing"])


@SAYINGS
async def test_a_growing_session_meets_few_refusals_and_then_none(stage: Stage, refusal: bytes) -> None:
    server = Unnamed(20_000, refusal)
    body, attempts = json.loads(conversation(12_000, exchanges=30, model="m")), []
    for turn in range(120):
        stage.model.plays(server, server)
        answer = await stage.ask(json.dumps(body).encode())
        assert answer.status == 200
        attempts.append(answer.attempts)
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn}: " + "it waited and wrote; " * 70}
        body["messages"] += [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    assert len(server.refused) <= 3, server.refused
    assert attempts.count("1") >= len(attempts) - 3
    assert max(server.taken[-30:]) > 0.85 * server.limit, "and the limit is found nearly"


@SAYINGS
@pytest.mark.parametrize("limit", [17_000, 9_000, 4_000])
async def test_a_session_that_is_already_long_converges(stage: Stage, refusal: bytes, limit: int) -> None:
    server = Unnamed(limit, refusal)
    seen = [await server.turn(stage, 40_000 + 100 * number) for number in range(12)]
    failed = [status for status, _ in seen if status != 200]
    assert len(failed) <= 2, seen
    assert seen[-6:] == [(200, "1")] * 6
    assert len(server.refused) <= 6, server.refused


@pytest.mark.parametrize("limit", [36_000, 17_000, 9_000])
async def test_a_refusal_that_states_only_its_excess_is_met_once(stage: Stage, limit: int) -> None:
    server = Unnamed(limit, EXCESS)
    seen = [await server.turn(stage, 40_000 + 100 * number) for number in range(12)]
    assert seen == [(200, "2")] + [(200, "1")] * 11
    assert max(server.taken) > limit / 3


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.2])
async def test_an_excess_over_most_of_the_prompt_is_met_however_tokens_are_estimated(
    stage: Stage, scale: float
) -> None:
    server = Unnamed(6_000, EXCESS, scale=scale)
    assert await server.turn(stage, 60_000) == (200, "2")


@SAYINGS
async def test_the_second_send_is_what_the_next_turn_continues_from(stage: Stage, refusal: bytes) -> None:
    server = Unnamed(30_000, refusal)
    body, sent = json.loads(conversation(50_000, exchanges=60, model="m")), list[list[bytes]]()
    for _ in range(2):
        stage.model.plays(server, server)
        assert (await stage.ask(json.dumps(body).encode())).status == 200
        sent.append(raw_messages(stage.model.bodies[-1]))
        body["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And then?"}]
    assert sent[1][: len(sent[0])] == sent[0]
    assert (len(server.refused), len(server.taken)) == (1, 2)


@pytest.mark.parametrize("limit", [20_000, 40_000])
@pytest.mark.parametrize("size", [60, 200])
@pytest.mark.parametrize("burst", [0, 40])
async def test_no_turn_of_a_growing_conversation_ends_in_a_refusal(
    stage: Stage, limit: int, size: int, burst: int
) -> None:
    """However much comes in one turn: what was accepted before is accepted again."""
    server = Unnamed(limit, without_numbers())
    body, sends = json.loads(conversation(3_000, exchanges=8, model="m")), 0
    for turn in range(20):
        stage.model.plays(server, server)
        assert (await stage.ask(json.dumps(body).encode())).status == 200, (turn, server.refused, server.taken)
        sends += len(stage.model.bodies)
        ids = [f"c{turn}_{number}" for number in range(burst if burst and turn % 7 == 5 else 1)]
        function = {"name": "read_log", "arguments": "{}"}
        calls = [{"id": one, "type": "function", "function": function} for one in ids]
        text = " it waited and wrote; " * size
        results = [{"role": "tool", "tool_call_id": one, "content": one + text} for one in ids]
        body["messages"] += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    assert sends <= 20 + 5, server.refused


async def test_what_was_accepted_a_turn_ago_is_the_size_after_a_refusal(stage: Stage) -> None:
    server = Unnamed(40_000, without_numbers())
    assert await server.turn(stage, 39_200) == (200, "1")
    assert await server.turn(stage, 40_400) == (200, "2")
    assert [await server.turn(stage, 40_400 + 300 * number) for number in range(6)] == [(200, "1")] * 6


@pytest.mark.parametrize("refusal", [without_numbers(), b"data: " + without_numbers() + b"\n\n"], ids=["400", "event"])
async def test_a_stream_is_refused_before_its_upstreams_own_tools_have_run(stage: Stage, refusal: bytes) -> None:
    """Codex offers `web_search` with each request: what was refused is the prompt that was sent."""
    refused = saying(200, refusal, EVENTS) if refusal.startswith(b"data") else saying(400, refusal)
    attempts = []
    for turn in range(12):
        body = conversation(18_000 + 2_500 * turn, exchanges=60, model="m", stream=True, tools=[WEB_SEARCH])
        stage.model.plays(*[limited(22_000, lambda _: refused)] * 2)
        answer = await stage.ask(body)
        assert (answer.status, answer.body) == (200, STREAM)
        attempts.append(answer.attempts)
    assert attempts.count("2") <= 2, attempts


async def test_whatever_an_upstreams_own_tools_add_a_growing_session_never_ends(stage: Stage) -> None:
    """Nothing is learned from a whole answer, but a second send is never larger than what was refused before."""
    for turn in range(12):
        body = conversation(18_000 + 6_000 * turn, exchanges=60, model="m", tools=[WEB_SEARCH])
        stage.model.plays(*[limited(22_000, lambda _: saying(400, without_numbers()))] * 2)
        assert (await stage.ask(body)).status == 200


async def test_a_reply_limit_beyond_the_prompt_loses_no_turn_more(stage: Stage) -> None:
    """Prompt and reply together may be too much, so less of each is asked for, and what was asked for is known."""
    statuses = []
    for _ in range(3):
        stage.model.plays(*[limited(7_500, lambda _: saying(400, without_numbers()))] * 2)
        body = conversation(14_000, exchanges=60, model="m", tools=[WEB_SEARCH], max_tokens=20_000)
        statuses.append((await stage.ask(body)).status)
    assert statuses in ([200] * 3, [400, 200, 200])
    assert all(json.loads(sent)["max_tokens"] < 7_500 for sent in stage.model.bodies[1::2])


async def test_text_over_a_limit_that_was_inferred_is_cut_at_once(stage: Stage) -> None:
    """Text of people, which is sent over a stated window by an estimate alone, because that may be half over."""
    words = "the unit started and wrote its state, then it waited for the next message to arrive; "

    def request_body(words_of: int) -> bytes:
        text = [{"role": "system", "content": "Answer."}, {"role": "user", "content": words * words_of}]
        return json.dumps({"model": "m", "messages": text}).encode()

    server = Unnamed(6_000, without_numbers())
    attempts = []
    for number in range(14):
        stage.model.plays(server, server)
        answer = await stage.ask(request_body(420 + number))
        assert answer.status == 200
        attempts.append(answer.attempts)
    assert attempts.count("2") <= 3
    assert attempts[-8:] == ["1"] * 8


async def test_a_second_key_is_not_bound_by_the_search_of_the_first(stage: Stage) -> None:
    server = Unnamed(20_000, without_numbers())
    body = conversation(30_000, exchanges=60, model="m")
    stage.model.plays(server, server)
    await stage.ask(body, authorization="Bearer one")
    stage.model.plays(accepting)
    await stage.ask(body, authorization="Bearer two")
    assert stage.model.bodies == [body]


async def test_the_proxys_own_refusal_states_no_invented_figure(stage: Stage) -> None:
    refusal = without_numbers()
    hopeless = {"model": "m", "messages": [{"role": "system", "content": "Never leave this out. " * 4_000}]}
    stage.model.plays(saying(400, refusal), saying(400, refusal))
    answer = await stage.ask(json.dumps(hopeless).encode())
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 400
    assert json.loads(refusal)["error"]["message"] in message
    for word in ("completion", "maximum context length", "the room for"):
        assert word not in message
