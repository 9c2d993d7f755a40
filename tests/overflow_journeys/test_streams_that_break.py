"""Streams that end before anything of them has content, as after a reset: they are asked for once more, and
nothing is learned from one of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.messages_rounds import END, START, event, text_block
from support.overflow_stage import Stage, staged
from support.overflow_words import conversation, estimate, window
from support.upstream import Scene
from support.upstream.scenes import STREAM, accepting, streaming
from support.upstream.sockets import CHUNKED, Connection, Request, chunk

SETTINGS = window(12_000)

LINES = b"application/x-ndjson"
CREATED = event("response.created", response={"id": "resp_1", "object": "response", "output": []})
MESSAGE = START + text_block(0, "Done.") + END
ITEM = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
DONE = {"id": "resp_1", "object": "response", "status": "completed", "output": [ITEM]}
RESPONSE = CREATED + event("response.completed", response=DONE)
ROLE = b'{"model":"m","message":{"role":"assistant","content":""},"done":false}\n'
LINE = b'{"model":"m","message":{"role":"assistant","content":"Done."},"done":true,"done_reason":"stop"}\n'
CHAT_ROLE = b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
APIS = pytest.mark.parametrize(
    ("path", "quiet", "reply", "content_type"),
    [
        ("/v1/chat/completions", CHAT_ROLE, STREAM, b"text/event-stream"),
        ("/v1/messages", START, MESSAGE, b"text/event-stream"),
        ("/v1/responses", CREATED, RESPONSE, b"text/event-stream"),
        ("/api/chat", ROLE, LINE, LINES),
    ],
)


def breaking(*pieces: bytes, content_type: bytes = b"text/event-stream", resets: bool = True) -> Scene:
    """A stream of these pieces that is reset, or ends without its last chunk."""

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send(CHUNKED.replace(b"text/event-stream", content_type) + b"".join(map(chunk, pieces)))
        if resets:
            await asyncio.sleep(0.05)  # a reset discards what the other side has not read yet
            connection.reset()
        else:
            connection.writer.close()

    return scene


def asked(path: str, tokens: int) -> bytes:
    """The conversation as that API writes it."""
    body = json.loads(conversation(tokens, stream=True))
    if path == "/v1/responses":
        body["input"] = body.pop("messages")
        body["store"] = False
    if path == "/v1/messages":
        body["system"] = body["messages"].pop(0)["content"]
        body["max_tokens"] = 100
    return json.dumps(body).encode()


async def ask(stage: Stage, path: str, tokens: int) -> tuple[int, bytes]:
    url = stage.url.replace("/v1/chat/completions", path)
    async with stage.client.post(url, data=asked(path, tokens), headers={"content-type": "application/json"}) as answer:
        return answer.status, await answer.read()


@APIS
@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("resets", [True, False, None], ids=["reset", "closed", "ended"])
async def test_a_stream_that_breaks_before_it_has_content_is_asked_for_once_more(
    stage: Stage, path: str, quiet: bytes, reply: bytes, content_type: bytes, has_begun: bool, resets: bool | None
) -> None:
    pieces = [quiet] if has_begun else []
    if resets is None:
        broken = streaming(*pieces, content_type=content_type)
    else:
        broken = breaking(*pieces, content_type=content_type, resets=resets)
    stage.model.plays(broken, streaming(reply, content_type=content_type))
    assert await ask(stage, path, 10_500) == (200, reply)
    first, again = stage.model.bodies
    assert again == first
    stage.model.plays(streaming(reply, content_type=content_type))
    assert await ask(stage, path, 10_500) == (200, reply)
    assert stage.model.bodies == [first], "nothing was learned"


@APIS
async def test_a_stream_that_breaks_far_from_the_window_fails_as_it_did(
    stage: Stage, path: str, quiet: bytes, reply: bytes, content_type: bytes
) -> None:
    stage.model.plays(breaking(quiet, content_type=content_type))
    assert (await ask(stage, path, 3_000))[0] == 502
    assert len(stage.model.bodies) == 1


@APIS
async def test_a_stream_that_breaks_in_its_content_is_never_asked_for_again(
    stage: Stage, path: str, quiet: bytes, reply: bytes, content_type: bytes
) -> None:
    stage.model.plays(breaking(reply[: len(reply) * 2 // 3], content_type=content_type))
    with contextlib.suppress(aiohttp.ClientPayloadError):  # broken off for the client, too, if that had begun
        await ask(stage, path, 10_500)
    assert len(stage.model.bodies) == 1


async def test_a_stream_that_breaks_twice_and_cannot_get_shorter_fails_as_it_did(stage: Stage) -> None:
    stage.model.plays(breaking(), breaking())
    messages = [{"role": "system", "content": "word " * 8_000}, {"role": "user", "content": "Well?"}]
    answer = await stage.ask(json.dumps({"model": "snug/m", "messages": messages, "stream": True}).encode())
    assert (answer.status, len(stage.model.bodies)) == (502, 2)
    assert json.loads(answer.body)["error"]["code"] == "upstream_unreachable"


async def test_two_empty_streams_of_an_unknown_window_teach_nothing_before_they_come_again(tmp_path: Path) -> None:
    """A gateway may lose two connections in a row; llama-cpp-python refuses the next turn in the same way."""
    empty = streaming()
    async with staged(tmp_path) as stage:
        stage.model.plays(empty, empty, accepting)
        assert (await stage.ask(conversation(4_500, stream=True))).attempts == "3"
        stage.model.plays(accepting)
        assert (await stage.ask(conversation(4_600, stream=True))).attempts == "1"
        assert estimate(stage.model.bodies[0]) > 4_400, "it goes up whole, and what is accepted refutes the suspicion"
        for _ in range(2):
            stage.model.plays(empty, empty, accepting)
            assert (await stage.ask(conversation(4_700, stream=True))).attempts == "3"
        stage.model.plays(accepting)
        assert (await stage.ask(conversation(4_700, stream=True))).attempts == "1"
        assert estimate(stage.model.bodies[0]) < 4_000


async def test_a_hosted_model_is_not_suspected_of_a_small_window(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("proxy.shell.relay.judging.is_own_server", lambda _: False)
    async with staged(tmp_path) as stage:
        stage.model.plays(streaming())
        answer = await stage.ask(conversation(9_500, stream=True))
        assert (answer.status, answer.body, answer.attempts) == (200, b"", "1")
