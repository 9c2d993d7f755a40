"""Bytes that an upstream sends before its answer reach the client at once; a second send stays possible."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.answer_shapes import understood
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, too_long, window
from support.tool_rounds import WITH_TOOLS, error_of, reading
from support.upstream import Scene, resetting
from support.upstream.scenes import COMPLETION, EVENTS, JSON, STREAM, Thinking, accepting, saying, streaming
from support.upstream.sockets import CHUNKED, Connection, Request, chunk, soon
from support.waiting import PATIENCE_SECONDS

from proxy.wire import SSE

WAITING = b": OPENROUTER PROCESSING\n\n"
"""https://openrouter.ai/docs/api-reference/streaming"""
BLANKS = b"\n\n\n"
"""https://api-docs.deepseek.com/quick_start/rate_limit"""
SETTINGS = window(12_000)
STREAMED, WHOLE = conversation(9_500, stream=True), conversation(9_500)
REFUSAL = b"data: " + too_long(8_000, 9_500) + b"\n\n"


async def early(stage: Stage, body: bytes, first: bytes, *scenes: Scene, times: int = 2, **headers: str) -> Any:
    """The head of an answer and what follows `first`, which has to arrive before the upstream says anything."""
    arrived = asyncio.Event()
    head, *rest = scenes

    async def beginning(connection: Connection, request: Request) -> None:
        kind = b"text/event-stream" if json.loads(request.body).get("stream") else JSON.encode()
        await connection.send(CHUNKED.replace(b"text/event-stream", kind + b"\r\nx-generation-id: gen-1"))
        for _ in range(times):
            await connection.send(chunk(first))
        await arrived.wait()
        await head(connection, request)

    stage.model.plays(beginning, *rest)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=body, headers=named) as answer:
        assert await answer.content.readexactly(len(first) * times) == first * times
        arrived.set()
        return answer, await answer.content.read()


def going_on(*pieces: bytes) -> Scene:
    """The rest of a body that has begun."""

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send(b"".join(map(chunk, pieces)) + b"0\r\n\r\n")

    return scene


async def test_comments_arrive_at_once_and_the_stream_after_them_as_it_is(stage: Stage) -> None:
    answer, body = await early(stage, STREAMED, WAITING, going_on(STREAM))
    assert body == STREAM
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["x-generation-id"] == "gen-1"
    assert answer.headers["x-request-id"].startswith("req-")
    assert answer.headers["x-context-proxy-tokens"].startswith("before=")


@pytest.mark.parametrize("first", [b": wait\n", b":\r\n\r\n", b"\n", b"\r\n"], ids=repr)
async def test_any_line_that_says_nothing_arrives_at_once(first: bytes, stage: Stage) -> None:
    _, body = await early(stage, STREAMED, first, going_on(STREAM))
    assert body == STREAM


async def test_blanks_arrive_at_once_and_the_json_after_them_as_it_is(stage: Stage) -> None:
    answer, body = await early(stage, WHOLE, BLANKS, going_on(COMPLETION[:20], COMPLETION[20:]))
    assert (answer.status, answer.headers["content-type"], body) == (200, JSON, COMPLETION)
    assert "content-length" not in answer.headers


async def test_a_refusal_after_comments_is_cured_unseen(stage: Stage) -> None:
    _, body = await early(stage, STREAMED, WAITING, going_on(REFUSAL[:30], REFUSAL[30:]), accepting)
    assert body == STREAM
    assert len(stage.model.bodies) == 2
    assert len(stage.model.bodies[1]) < len(stage.model.bodies[0])


async def test_a_refusal_after_blanks_is_cured_unseen(stage: Stage) -> None:
    answer, body = await early(stage, WHOLE, BLANKS, going_on(too_long(8_000, 9_500)), accepting)
    assert (answer.status, body, len(stage.model.bodies)) == (200, COMPLETION, 2)


async def test_the_second_answer_may_begin_with_comments_too(stage: Stage) -> None:
    _, body = await early(stage, STREAMED, WAITING, going_on(REFUSAL), streaming(WAITING, WAITING, STREAM))
    assert body == WAITING * 2 + STREAM


@pytest.mark.parametrize("again", [saying(400, too_long(8_000, 9_500)), streaming(REFUSAL)], ids=["status", "event"])
async def test_a_second_refusal_after_comments_is_an_event_of_the_stream(again: Scene, stage: Stage) -> None:
    answer, body = await early(stage, STREAMED, WAITING, going_on(REFUSAL), again)
    assert (answer.status, error_of(body)["code"]) == (200, "context_length_exceeded")


async def test_a_second_refusal_after_blanks_is_the_json_of_the_body(stage: Stage) -> None:
    refusal = too_long(8_000, 9_500)
    answer, body = await early(stage, WHOLE, BLANKS, going_on(refusal), saying(400, refusal))
    assert (answer.status, json.loads(body)["error"]["code"]) == (200, "context_length_exceeded")


@pytest.mark.parametrize(
    ("body", "first", "refusal"),
    [(STREAMED, WAITING, REFUSAL), (WHOLE, BLANKS, too_long(8_000, 9_500))],
    ids=["stream", "whole"],
)
@pytest.mark.parametrize(
    ("failure", "message"),
    [(saying(502, b"<html>Bad Gateway</html>", "text/html"), "Bad Gateway"), (resetting, "cannot be reached")],
    ids=["page", "reset"],
)
async def test_a_second_send_that_fails_is_reported_in_the_body(
    body: bytes, first: bytes, refusal: bytes, failure: Scene, message: str, stage: Stage
) -> None:
    _, rest = await early(stage, body, first, going_on(refusal), failure)
    error = error_of(rest) if body is STREAMED else json.loads(rest)["error"]
    assert message in error["message"]


async def test_an_answer_that_breaks_after_comments_ends_with_an_error(stage: Stage) -> None:
    async def breaking(connection: Connection, _: Request) -> None:
        connection.reset()

    _, body = await early(stage, STREAMED, WAITING, breaking)
    assert error_of(body)["code"] == "upstream_unreachable"


async def test_comments_of_a_later_round_arrive_at_once_too(stage: Stage) -> None:
    arrived = asyncio.Event()
    stage.model.plays(reading(), streaming(WAITING, WAITING, arrived, STREAM))
    async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=WITH_TOOLS) as answer:
        body = b""
        while body.count(WAITING) < 2:
            body += await answer.content.readany()
        arrived.set()
        body += await answer.content.read()
    reported = understood(body.replace(WAITING, b""))
    assert (reported["message"]["content"], reported["done"]) == ("Let me look.\n\nDone.", True)


@pytest.mark.parametrize(
    ("body", "kind", "first"),
    [(STREAMED, JSON, BLANKS), (WHOLE, "text/event-stream", WAITING), (WHOLE, "text/html", BLANKS)],
    ids=["JSON for a stream", "a stream for JSON", "a page"],
)
async def test_a_response_of_an_unrequested_kind_is_judged_before_a_byte_is_forwarded(
    body: bytes, kind: str, first: bytes, stage: Stage
) -> None:
    refusal = streaming(first, too_long(8_000, 9_500), content_type=kind.encode())
    stage.model.plays(refusal, saying(400, too_long(8_000, 9_500)))
    answer = await stage.ask(body)
    assert (answer.status, answer.attempts) == (400, "2")


@pytest.mark.parametrize(
    ("body", "reply"),
    [(WHOLE, b"\n\n" + too_long(8_000, 9_500)), (STREAMED, WAITING + REFUSAL)],
    ids=["whole", "stream"],
)
async def test_what_comes_together_is_judged_before_a_byte_of_it_goes_out(
    body: bytes, reply: bytes, stage: Stage
) -> None:
    kind = EVENTS if body is STREAMED else JSON
    stage.model.plays(saying(200, reply, kind), saying(200, reply, kind))
    answer = await stage.ask(body)
    assert (answer.status, answer.attempts) == (400, "2")
    stage.model.plays(saying(200, b"\n" + COMPLETION))
    whole = await stage.ask(conversation(2_000))
    assert (whole.body, whole.headers["content-length"]) == (b"\n" + COMPLETION, str(len(COMPLETION) + 1))


async def test_an_error_status_with_blanks_keeps_its_status(stage: Stage) -> None:
    async def slow_error(connection: Connection, _: Request) -> None:
        await connection.send(
            CHUNKED.replace(b"200 OK", b"429 Slow Down").replace(b"text/event-stream", b"application/json")
        )
        await connection.send(chunk(b"\n\n") + chunk(b'{"error": {"message": "slow down"}}') + b"0\r\n\r\n")

    stage.model.plays(slow_error)
    answer = await stage.ask(WHOLE)
    assert (answer.status, answer.body) == (429, b'\n\n{"error": {"message": "slow down"}}')


async def test_comments_do_not_pile_up_while_the_model_thinks(stage: Stage) -> None:
    many = WAITING * 4_000  # 100 KB, more than is ever held
    _, body = await early(stage, STREAMED, many, going_on(REFUSAL), accepting)
    assert (body, len(stage.model.bodies)) == (STREAM, 2)


async def test_own_comments_and_the_upstreams_go_together(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(12_000, overflow={"keepalive_seconds": 0.01})) as stage:
        arrived = asyncio.Event()
        stage.model.plays(streaming(WAITING, arrived, REFUSAL), accepting)
        async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=STREAMED) as answer:
            body = b""
            while SSE.comment not in body.partition(WAITING)[2]:
                body += await answer.content.readany()
            arrived.set()
            body += await answer.content.read()
        assert body.replace(WAITING, b"", 1).replace(SSE.comment, b"") == STREAM


async def test_a_client_that_leaves_after_a_comment_stops_the_upstream(stage: Stage) -> None:
    thinking = Thinking()

    async def commenting(connection: Connection, request: Request) -> None:
        await connection.send(CHUNKED + chunk(WAITING))
        await thinking(connection, request)

    stage.model.plays(commenting)
    async with stage.client.post(stage.url, data=STREAMED) as answer:
        assert await answer.content.readexactly(len(WAITING)) == WAITING
        answer.close()
    await soon(thinking.left.wait())
