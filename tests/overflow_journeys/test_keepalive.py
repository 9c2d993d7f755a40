"""Comments for a client that waits for a stream, and what becomes of an answer that comes after them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from support.answer_shapes import understood
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, too_long, window
from support.tool_rounds import WITH_TOOLS, error_of, reading
from support.upstream import Scene, resetting
from support.upstream.scenes import COMPLETION, DELTA, JSON, STREAM, Thinking, accepting, after, saying, streaming
from support.upstream.sockets import soon
from support.waiting import PATIENCE_SECONDS

from proxy.wire import SSE, ServerSentEvents

COMMENT = SSE.comment
SETTINGS = window(12_000, overflow={"keepalive_seconds": 0.02})
REQUEST = conversation(9_500, stream=True)


async def after_comments(stage: Stage, *scenes: Scene, comments: int = 2) -> tuple[aiohttp.ClientResponse, bytes]:
    """The answer, and its body behind the comments, when the upstream begins to play once some comments are there."""
    commented = asyncio.Event()
    stage.model.plays(after(commented, scenes[0]), *scenes[1:])
    async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=REQUEST) as answer:
        for _ in range(comments):
            assert await answer.content.readexactly(len(COMMENT)) == COMMENT
        commented.set()
        body = await answer.content.read()
        while body.startswith(COMMENT):
            body = body.removeprefix(COMMENT)
        return answer, body


async def test_comments_come_until_the_first_event_and_then_the_stream_as_it_is(stage: Stage) -> None:
    answer, body = await after_comments(stage, accepting)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["x-request-id"].startswith("req-")
    assert body == STREAM


async def test_no_comment_comes_after_the_first_event(stage: Stage) -> None:
    ticks = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, ticks.set)  # ten comments' time
    stage.model.plays(streaming(DELTA, ticks, DELTA))
    body = (await stage.ask(REQUEST)).body
    assert body[body.index(DELTA) :] == DELTA + DELTA


async def test_a_refusal_that_comes_after_a_comment_is_cured_unseen(stage: Stage) -> None:
    _, body = await after_comments(stage, saying(400, too_long(8_000, 9_500)), accepting)
    assert (body, len(stage.model.bodies)) == (STREAM, 2)


async def test_a_second_refusal_after_a_comment_is_an_event_of_the_stream(stage: Stage) -> None:
    refusal = saying(400, too_long(8_000, 9_500))
    answer, body = await after_comments(stage, refusal, refusal)
    assert (answer.status, error_of(body)["code"]) == (200, "context_length_exceeded")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (b'{"error": {\n  "message": "slow down"\n}}', "slow down"),
        (b"<html>Bad\nGateway</html>", "<html>Bad\nGateway</html>"),
        (b'{"detail": "no such model"}', '{"detail": "no such model"}'),
        (b"", "HTTP 429"),
    ],
    ids=["error", "page", "another shape", "empty"],
)
async def test_another_error_after_a_comment_is_an_event_of_the_stream(
    stage: Stage, error: bytes, message: str
) -> None:
    _, body = await after_comments(stage, saying(429, error))
    assert error_of(body)["message"] == message


async def test_a_broken_connection_after_a_comment_is_an_event_of_the_stream(stage: Stage) -> None:
    _, body = await after_comments(stage, resetting)
    assert error_of(body)["code"] == "upstream_unreachable"


async def test_an_answer_that_is_no_stream_comes_as_one_event(stage: Stage) -> None:
    _, body = await after_comments(stage, saying(200, COMPLETION))
    assert body == b"data: " + COMPLETION + b"\n\ndata: [DONE]\n\n"


async def test_comments_come_between_the_rounds_of_an_answer_too(stage: Stage) -> None:
    commented = asyncio.Event()
    stage.model.plays(reading(), after(commented, accepting))
    async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=WITH_TOOLS) as answer:
        body = b""
        while body.count(COMMENT) < 3 or b"look." not in body:
            body += await answer.content.readany()
        commented.set()
        body += await answer.content.read()
    events = [event for event in body.split(b"\n\n") if event]
    reported = understood(b"\n\n".join([*(event for event in events if not event.startswith(b":")), b""]))
    assert (reported["message"]["content"], reported["done"]) == ("Let me look.\n\nDone.", True)
    assert all(event == COMMENT.strip() or event.startswith(b"data: ") for event in events)


async def test_a_client_that_leaves_between_two_rounds_is_not_answered_further(stage: Stage) -> None:
    thinking = Thinking()
    stage.model.plays(reading(), thinking)
    async with asyncio.timeout(PATIENCE_SECONDS), stage.client.post(stage.url, data=WITH_TOOLS) as answer:
        await thinking.began.wait()
        while COMMENT not in await answer.content.readany():
            pass
        answer.close()
        await thinking.left.wait()


async def test_before_the_first_comment_nothing_changes(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(12_000, overflow={"keepalive_seconds": 60})) as stage:
        refusal = saying(400, too_long(8_000, 9_500))
        stage.model.plays(refusal, refusal)
        answer = await stage.ask(REQUEST)
        assert (answer.status, answer.headers["content-type"], answer.attempts) == (400, JSON, "2")
        stage.model.plays(accepting)
        assert (await stage.ask(conversation(2_000, stream=True))).body == STREAM


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (conversation(2_000), {}),
        (REQUEST, {"x_context_proxy_mode": "observe"}),
        (REQUEST, {"x_context_proxy_mode": "off"}),
    ],
    ids=["no stream", "observe", "off"],
)
async def test_requests_without_a_stream_or_bypassing_the_proxy_get_no_comments(
    stage: Stage, body: bytes, headers: dict[str, str]
) -> None:
    ticks = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, ticks.set)  # five comments' time
    stage.model.plays(after(ticks, accepting))
    answer = await stage.ask(body, **headers)
    assert answer.body in (COMPLETION, STREAM)


@pytest.mark.parametrize(
    ("first", "body"), [(accepting, REQUEST), (reading(), WITH_TOOLS)], ids=["first event", "rounds"]
)
async def test_an_api_whose_clients_skip_nothing_gets_no_comments(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, first: Scene, body: bytes
) -> None:
    monkeypatch.setattr(ServerSentEvents, "comment", b"")
    slow, also_slow = asyncio.Event(), asyncio.Event()
    stage.model.plays(after(slow, first), after(also_slow, accepting))
    asyncio.get_running_loop().call_later(0.1, slow.set)  # five comments' time
    asyncio.get_running_loop().call_later(0.2, also_slow.set)
    lines = (await stage.ask(body)).body.split(b"\n\n")
    assert lines.pop() == b""
    assert all(line.startswith(b"data: ") for line in lines)


async def test_a_client_that_leaves_after_a_comment_stops_the_upstream_at_once(stage: Stage) -> None:
    thinking = Thinking()
    stage.model.plays(thinking)
    async with stage.client.post(stage.url, data=REQUEST) as answer:
        assert await answer.content.readexactly(len(COMMENT)) == COMMENT
        answer.close()
    await soon(thinking.left.wait())
    assert len(stage.model.bodies) == 1
