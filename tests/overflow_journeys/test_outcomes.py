"""How a request ended, in the log, the counters and `/decisions` alike: whose turn it is to act."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, too_long, window
from support.spellings import SPELLINGS
from support.upstream import Scene, resetting
from support.upstream.scenes import DELTA, EVENTS, STREAM, Thinking, accepting, after, saying, streaming
from support.waiting import PATIENCE_SECONDS

from proxy.wire import SSE

SMALL = conversation(100)
STREAMED = conversation(100, stream=True)
OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
EVENTS_OF = {
    "chat": (DELTA, b'data: {"error":{"message":"boom","type":"server_error"}}\n\ndata: [DONE]\n\n'),
    "messages": (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"a"}}\n\n',
        b"event: error\ndata: " + OVERLOADED + b"\n\n",
    ),
    "responses": (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
        b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","output":[],'
        b'"error":{"code":"server_error","message":"boom"}}}\n\n',
    ),
    "ollama": (
        b'{"model":"m","message":{"role":"assistant","content":"a"},"done":false}\n',
        b'{"error":"an error was encountered while running the model"}\n',
    ),
}


def asking(api: str, *, stream: bool) -> tuple[str, bytes]:
    spelling = SPELLINGS[api]
    body = spelling.request("", spelling.user("hi"), [], 50)
    return spelling.path, json.dumps({"model": "m", **body, "stream": stream}).encode()


async def decision(stage: Stage) -> dict[str, Any]:
    """The only request, as `/decisions` has it, which must agree with the counters."""
    root = stage.url.removesuffix("/v1/chat/completions")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with stage.client.get(f"{root}/decisions") as answer:
                found = (await answer.json())["decisions"]
            if found:
                break
            await asyncio.sleep(0.01)
    (one,) = found
    async with stage.client.get(f"{root}/metrics") as answer:
        text = await answer.text()
    assert f'context_proxy_requests_total{{outcome="{one["outcome"]}"}} 1.0' in text
    status = one["status"]
    code = "none" if not status else str(status) if status in (401, 403, 404, 413, 429) else f"{status // 100}xx"
    assert f'context_proxy_responses_total{{api="{one["api"]}",client="{one["client"]}",' in text
    assert f'outcome="{one["outcome"]}",status="{code}"' in text
    return dict(one)


@pytest.mark.parametrize("mode", ["on", "observe", "off"])
@pytest.mark.parametrize(
    ("scene", "outcome", "status"),
    [
        (saying(200, b'{"choices":[{"message":{"content":"hi"}}]}'), "answered", 200),
        (saying(401, b'{"error":{"message":"wrong key"}}'), "refused", 401),
        (saying(404, b'{"error":{"message":"no such model"}}'), "refused", 404),
        (saying(429, b'{"error":{"message":"slow down"}}'), "refused", 429),
        (saying(500, b'{"error":{"message":"boom"}}'), "upstream_error", 500),
        (saying(529, OVERLOADED), "upstream_error", 529),
        (resetting, "upstream_unreachable", 502),
    ],
    ids=["200", "401", "404", "429", "500", "529", "reset"],
)
async def test_a_response_is_answered_refused_or_an_error_of_the_upstream(
    stage: Stage, scene: Scene, outcome: str, status: int, mode: str
) -> None:
    stage.model.plays(*[scene] * 3)
    await stage.ask(SMALL, x_context_proxy_mode=mode)
    one = await decision(stage)
    assert (one["outcome"], one["status"]) == (outcome, status)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b'{"error":{"message":"Invalid API key","code":"invalid_api_key"}}', "refused"),
        (OVERLOADED, "upstream_error"),
        (b'{"error":{"message":"weird"}}', "upstream_error"),
    ],
    ids=["auth", "overloaded", "unknown"],
)
@pytest.mark.parametrize("as_stream", [False, True])
async def test_an_error_in_a_200_is_no_answer(stage: Stage, body: bytes, outcome: str, *, as_stream: bool) -> None:
    sent = saying(200, b"data: " + body + b"\n\n", EVENTS) if as_stream else saying(200, body)
    stage.model.plays(*[sent] * 3)
    answer = await stage.ask(STREAMED if as_stream else SMALL)
    one = await decision(stage)
    assert (answer.status, one["status"], one["outcome"]) == (200, 200, outcome)


@pytest.mark.parametrize("mode", ["on", "observe", "off"])
@pytest.mark.parametrize("api", SPELLINGS)
async def test_an_error_in_the_middle_of_a_stream_is_the_upstreams(stage: Stage, api: str, mode: str) -> None:
    kind = "application/x-ndjson" if api == "ollama" else EVENTS
    stage.model.plays(saying(200, b"".join(EVENTS_OF[api]), kind))
    path, body = asking(api, stream=True)
    url = stage.url.removesuffix("/v1/chat/completions") + path
    async with stage.client.post(url, data=body, headers={"x-context-proxy-mode": mode}) as answer:
        assert (await answer.read()).endswith(EVENTS_OF[api][-1])
    assert (await decision(stage))["outcome"] == "upstream_error"


async def test_what_the_proxy_refuses_itself_is_refused_and_was_sent_nowhere(tmp_path: Path) -> None:
    async with staged(tmp_path, server={"max_body_bytes": 2_048}) as stage:
        assert (await stage.ask(conversation(1_000))).status == 413
        one = await decision(stage)
        assert (one["outcome"], one["status"], one.get("upstream")) == ("refused", 413, None)


async def test_what_cannot_be_made_to_fit_has_an_outcome_of_its_own(tmp_path: Path) -> None:
    async with staged(tmp_path, **window(12_000)) as stage:
        stage.model.plays(*[saying(400, too_long(8_000, 9_500))] * 2)
        assert (await stage.ask(conversation(9_500))).status == 400
        one = await decision(stage)
        assert (one["outcome"], one["status"], one["refusal"]) == ("context_length_exceeded", 400, "prompt")


@pytest.mark.parametrize(
    ("scene", "outcome"),
    [
        (saying(401, b'{"error":{"message":"wrong key"}}'), "refused"),
        (saying(503, b'{"error":{"message":"busy"}}'), "upstream_error"),
        (resetting, "upstream_unreachable"),
        (accepting, "answered"),
    ],
    ids=["401", "503", "reset", "accepted"],
)
async def test_a_client_that_had_its_200_for_a_comment_is_counted_with_it(
    tmp_path: Path, scene: Scene, outcome: str
) -> None:
    async with staged(tmp_path, overflow={"keepalive_seconds": 0.02}) as stage:
        commented = asyncio.Event()
        stage.model.plays(after(commented, scene))
        async with stage.client.post(stage.url, data=STREAMED) as answer:
            assert await answer.content.readexactly(len(SSE.comment)) == SSE.comment
            commented.set()
            await answer.read()
        one = await decision(stage)
        assert (answer.status, one["status"], one["outcome"]) == (200, 200, outcome)


async def test_a_stream_that_times_out_after_a_comment_was_no_504_for_its_client(tmp_path: Path) -> None:
    async with staged(tmp_path, upstream={"idle_timeout_seconds": 0.2}) as stage:
        stage.model.plays(streaming(SSE.comment, asyncio.Event()))
        async with stage.client.post(stage.url, data=STREAMED) as answer:
            assert b"upstream_timeout" in await answer.read()
        one = await decision(stage)
        assert (answer.status, one["status"], one["outcome"]) == (200, 200, "upstream_timeout")


async def test_a_client_that_left_before_the_head_has_no_status(stage: Stage) -> None:
    thinking = Thinking()
    stage.model.plays(thinking)
    asked = asyncio.create_task(stage.ask(SMALL))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await thinking.began.wait()
        asked.cancel()
        await thinking.left.wait()
    one = await decision(stage)
    assert (one["outcome"], one["status"]) == ("client_left", 0)


async def test_a_reply_that_speaks_of_errors_is_answered(stage: Stage) -> None:
    told = json.dumps('data: {"error":{"message":"no"}}\n\n"finish_reason":"error"').encode()
    words = b'data: {"choices":[{"index":0,"delta":{"content":' + told + b"}}]}\n\n"
    filtered = (
        b'data: {"choices":[{"content_filter_results":{"error":{"code":"content_filter_error"}}}],"error":null}\n\n'
    )
    stage.model.plays(saying(200, words + filtered + STREAM, EVENTS))
    await stage.ask(STREAMED)
    assert (await decision(stage))["outcome"] == "answered"
