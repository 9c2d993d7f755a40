"""openai-python at an upstream that keeps its connection alive before it says anything, and then refuses."""

import asyncio
import json
from typing import Any

import pytest
from support.overflow_words import too_long
from support.sdks import openai_python
from support.upstream.sockets import CHUNKED, LAST_CHUNK, SocketServer, chunk
from support.waiting import PATIENCE_SECONDS

MESSAGES: Any = [
    {"role": "user", "content": "What broke?"},
    *({"role": role, "content": f"{role} says: " + "all is well. " * 200} for role in ("assistant", "user") * 10),
    {"role": "user", "content": "And now?"},
]
REFUSAL = too_long(4096, 9500)
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}
WHOLE = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}).encode()
DELTA = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
EVENT = {**DELTA, "choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]}
STREAM = b"data: " + json.dumps(EVENT).encode() + b"\n\ndata: [DONE]\n\n"


class Waiting:
    """An upstream that says nothing with every byte until it is released, then refuses, `refusals` times."""

    def __init__(self, refusals):
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()
        self._refusals = refusals

    async def __call__(self, connection):
        while True:
            request = await connection.asked()
            self.bodies.append(request.body)
            await self._answer(connection, request)

    async def _answer(self, connection, request):
        streams = json.loads(request.body).get("stream", False)
        kind, nothing = (b"text/event-stream", b": WAITING\n\n") if streams else (b"application/json", b"\n")
        await connection.send(CHUNKED.replace(b"text/event-stream", kind) + chunk(nothing))
        await self.go_on.wait()
        body = STREAM if streams else WHOLE
        if len(self.bodies) <= self._refusals:
            body = b"data: " + REFUSAL + b"\n\n" if streams else REFUSAL
        await connection.send(chunk(nothing) + chunk(body) + LAST_CHUNK)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_openai_python_hears_of_the_wait_and_never_of_the_refusal(stream, start):
    proxy, waiting = start(), Waiting(refusals=1)
    async with (
        SocketServer(waiting, proxy.upstream_port),
        openai_python().AsyncOpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        async with asyncio.timeout(PATIENCE_SECONDS):
            request = client.chat.completions.with_streaming_response.create(
                model="m", messages=MESSAGES, stream=stream
            )
            async with request as response:  # has the head before the upstream says anything
                waiting.go_on.set()
                body = b"".join([piece async for piece in response.iter_bytes()])
        assert (body.strip().endswith(STREAM.strip() if stream else WHOLE), len(waiting.bodies)) == (True, 2)
        waiting.bodies.clear()
        reply = await client.chat.completions.create(model="m", messages=MESSAGES, stream=stream)
        if stream:
            assert "".join([event.choices[0].delta.content or "" async for event in reply]) == "Done."
        else:
            assert reply.choices[0].message.content == "Done."


async def test_openai_python_raises_what_cannot_be_cured_after_a_wait(start):
    proxy, waiting = start(), Waiting(refusals=2)
    async with (
        SocketServer(waiting, proxy.upstream_port),
        openai_python().AsyncOpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        waiting.go_on.set()
        with pytest.raises(openai_python().APIError, match=r"too long|maximum context") as caught:
            assert [event async for event in stream] == []
    assert (caught.value.code, len(waiting.bodies)) == ("context_length_exceeded", 2)
