"""Requests that wait for a response: their bodies may be compressed, and other requests never wait for them."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
from pathlib import Path

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, openai_error, too_long, window
from support.upstream import Scene
from support.upstream.scenes import COMPLETION, EVENTS, STREAM, Thinking, accepting, after, saying, streaming
from support.waiting import PATIENCE_SECONDS

from proxy import app
from proxy.shell.resources import Workload

REFUSED = saying(400, too_long(8_192, 9_000))
COMPRESSED = {"max_waiting_bytes": 85_000}
SETTINGS = {"server": COMPRESSED, **window(64_000)}
"""Less than any body here, and more than each compressed."""


async def page(stage: Stage, path: str) -> str:
    async with stage.client.get(stage.url.replace("/v1/chat/completions", path)) as answer:
        return await answer.text()


async def body_with(stage: Stage, path: str, words: str) -> str:
    """A page, once it has these words."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while words not in (reported := await page(stage, path)):  # noqa: ASYNC110 - the metrics are looked at once a second
            await asyncio.sleep(0.01)
    return reported


async def has_compressed(stage: Stage, count: int) -> None:
    await body_with(stage, "/metrics", f"context_proxy_waiting_compressed_requests {count}.0")


def orphaned() -> bytes:
    body = json.loads(conversation(9_000))
    body["messages"] = [one for one in body["messages"] if one.get("tool_call_id") != "call_3_a"]
    return json.dumps(body).encode()


def cut_on_arrival() -> bytes:
    body = json.loads(conversation(1_000))
    body["messages"][-1]["content"] = "\n".join(f"line {number}" for number in range(4_000))
    return json.dumps(body).encode()


async def sent(folder: Path, server: dict[str, int], body: bytes, *scenes: Scene, **headers: str) -> list[bytes]:
    async with staged(folder, server=server, **window(64_000)) as stage:
        stage.model.plays(*scenes, saying(200, COMPLETION))
        answer = await stage.ask(body, **headers)
        assert (answer.status, answer.attempts) == (200, str(1 + len(scenes)))
        assert (await page(stage, "/metrics")).count("context_proxy_lost_waiting_requests_total 0.0") == 1
        return stage.model.bodies


@pytest.mark.parametrize(
    ("body", "scenes", "headers"),
    [
        (conversation(9_000), [REFUSED], {}),
        (conversation(90_000), [REFUSED], {}),
        (conversation(9_000, stream=True), [saying(200, b"data: " + too_long(8_192, 9_000) + b"\n\n", EVENTS)], {}),
        (gzip.compress(conversation(9_000)), [REFUSED], {"content_encoding": "gzip"}),
        (
            gzip.compress(cut_on_arrival()),
            [saying(400, openai_error("Bad request."))],
            {"content_encoding": "gzip"},
        ),
        (orphaned(), [saying(400, openai_error("No tool output found for function call call_3_a."))], {}),
    ],
    ids=["as it came", "cut before", "streamed", "compressed", "original", "repaired"],
)
async def test_what_was_compressed_is_sent_again_as_if_it_had_stayed(
    tmp_path: Path, body: bytes, scenes: list[Scene], headers: dict[str, str]
) -> None:
    stayed = await sent(tmp_path, {}, body, *scenes, **headers)
    returned = await sent(tmp_path, COMPRESSED, body, *scenes, **headers)
    assert len(stayed) == 2
    assert returned == stayed


async def test_waiting_requests_are_compressed_until_they_are_answered(stage: Stage) -> None:
    go_on = asyncio.Event()
    stage.model.plays(after(go_on, accepting), streaming(b": wait\n\n", go_on, STREAM))
    asking = []
    for stream in (False, True):
        asking.append(asyncio.create_task(stage.ask(conversation(9_000, stream=stream))))
        await has_compressed(stage, len(asking))
    go_on.set()
    assert [(await one).body for one in asking] == [COMPLETION, b": wait\n\n" + STREAM]
    await has_compressed(stage, 0)


async def test_a_client_that_leaves_takes_its_compressed_body_along(stage: Stage) -> None:
    stage.model.plays(thinking := Thinking())
    asking = asyncio.create_task(stage.ask(conversation(9_000)))
    await has_compressed(stage, 1)
    asking.cancel()
    await has_compressed(stage, 0)
    await thinking.left.wait()


async def test_the_client_of_a_request_that_was_let_go_gets_the_refusal_and_the_log_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with staged(tmp_path, server={"max_waiting_bytes": 0}, log={"format": "json"}, **window(64_000)) as stage:
        stage.model.plays(after(is_lost := asyncio.Event(), REFUSED), accepting)
        asking = asyncio.create_task(stage.ask(conversation(9_000)))
        await body_with(stage, "/metrics", "context_proxy_lost_waiting_requests_total 1.0")
        is_lost.set()
        refused = await asking
        assert (refused.status, refused.body, refused.attempts) == (400, too_long(8_192, 9_000), "1")
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if "waiting_request_lost" in line]
    assert [line["problem"] for line in lines] == ["too much is waiting"]


async def test_requests_waiting_for_a_model_take_no_room_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "Workload", functools.partial(Workload, 200_000))
    go_on = asyncio.Event()
    async with staged(tmp_path, **window(1_000_000)) as stage:
        body = conversation(40_000)
        assert len(body) > 100_000
        stage.model.plays(*[after(go_on, accepting)] * 4, accepting, *[accepting] * 4)
        slow = [asyncio.create_task(stage.ask(body)) for _ in range(4)]
        await body_with(stage, "/metrics", "context_proxy_waiting_requests 4.0")
        assert (await stage.ask(body)).status == 200
        assert json.loads(await page(stage, "/readyz")) == {"status": "ready", "unavailable": {}}
        go_on.set()
        assert {one.status for one in await asyncio.gather(*slow)} == {200}


async def test_readyz_names_a_full_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "Workload", functools.partial(Workload, 100_000))
    async with staged(tmp_path, **window(1_000_000)) as stage:
        reader_writers = [await asyncio.open_connection("127.0.0.1", int(stage.url.split(":")[2][:5])) for _ in "abc"]
        for _, writer in reader_writers:  # half a body each: more than there is room for
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n" + b" " * 90_000
            )
            await writer.drain()
        reported = json.loads(await body_with(stage, "/readyz", "workload"))
        await body_with(stage, "/metrics", "context_proxy_queued_requests 1.0")
        assert reported["status"] == "ready"
        assert reported["unavailable"]["workload"].startswith("1 requests wait for room: ")
        for _, writer in reader_writers:
            writer.close()
