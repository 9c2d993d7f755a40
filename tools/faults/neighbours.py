"""Harm that one client could do to others: teach the proxy falsehoods, delay it, fill it; and what it can see of them.

Rule: what a client sends changes nothing for another key, and takes no more than its share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import (
    CANARY,
    COMPLETION,
    EVENTS,
    KEY,
    Heard,
    Stage,
    accept,
    chat,
    long_text,
    staged,
    streamed,
    whole,
    with_result,
)
from tools.faults.trials import Extent, Tried

_WORDS: Final = "This model's maximum context length is 1200 tokens. However, your messages resulted in 5000 tokens."
_QUICK_SECONDS: Final = 5.0
"""For a small request beside others on a shared machine: the stalls found so far lasted ten seconds and more."""


async def hostile_words(_: Extent) -> list[Tried]:
    """A client makes the upstream repeat the words of a refusal."""
    tried = Tried("No client shrinks a model for another", "words of a refusal in a role, a name, a model, a member")
    async with staged() as stage:

        async def repeat(connection: Connection, request: Request) -> None:
            sent = json.loads(request.body)
            first = sent["messages"][0]
            wrong = next((text for text in (first["role"], first.get("name"), sent.get("user")) if text != "user"), "")
            error = {"message": f"Invalid value: '{wrong}'.", "type": "invalid_request_error"}
            await connection.send(whole(400, json.dumps({"error": error}).encode()))

        stage.upstream.answer = repeat
        for number in range(4):
            for members in ({"role": _WORDS}, {"role": "user", "name": _WORDS}):
                message = {"role": "user", "content": "word " * 500} | members
                body = json.dumps({"model": "gpt-4o", "messages": [message]}).encode()
                await stage.ask(body, key=f"sk-hostile-{number % 2}")
        stage.upstream.answer = accept
        for key in ("sk-hostile-0", KEY):
            body = chat({"role": "user", "content": "word " * 3_000})
            heard = await stage.ask(body, key=key)
            tried.note(
                f"afterwards: {heard.status}", held=heard.body == COMPLETION and stage.upstream.bodies[-1] == body
            )
    return [tried]


@contextlib.asynccontextmanager
async def open_streams(stage: Stage, count: int, streams: Tried) -> AsyncIterator[None]:
    """Streams that pause after their heads until the block ends, and then have to arrive whole."""
    go_on = asyncio.Event()

    async def pause(connection: Connection, request: Request) -> None:
        if b'"stream"' not in request.body:
            await accept(connection, request)
            return
        head, _, rest = streamed(EVENTS).partition(b"\r\n\r\n")
        await connection.send(head + b"\r\n\r\n")
        await go_on.wait()
        await connection.send(rest)

    stage.upstream.answer = pause
    tasks = [asyncio.create_task(stage.ask(chat(stream=True))) for _ in range(count)]
    while stage.upstream.in_work < count and not any(task.done() for task in tasks):
        await asyncio.sleep(0.05)
    yield
    go_on.set()
    for number, one in enumerate(await asyncio.gather(*tasks)):
        streams.note(f"stream {number}: {one.status}", held=one.is_whole and one.body == EVENTS)


async def ask_quickly(stage: Stage, beside: Tried, patience: float) -> None:
    """Small requests, one after another, each of which has to be answered soon."""
    for number in range(20):
        begun = time.perf_counter()
        heard = await stage.ask(chat())
        is_well = await stage.is_well()
        seconds = time.perf_counter() - begun
        held = heard.status == 200 and is_well and seconds < patience * _QUICK_SECONDS
        beside.note(f"request {number}: {heard.status} after {seconds:.1f} s", held=held)


async def idle_streams(extent: Extent) -> list[Tried]:
    """Paused streams, and the small requests beside them."""
    count = extent.idle_streams
    streams = Tried("No stream is lost, however many are open", f"{count} streams that say nothing for a while")
    beside = Tried("Small requests are answered beside them", f"requests beside {count} open streams")
    async with staged() as stage, open_streams(stage, count, streams):
        await ask_quickly(stage, beside, extent.patience)
    return [streams, beside]


async def large_beside_small(extent: Extent) -> list[Tried]:
    """A result of 50 MB is planned while a client asks whether the proxy is well."""
    tried = Tried("A large request delays no other request", "/healthz beside a request of 50 MB")
    placeholder = "the result"
    before, after = with_result(placeholder).split(placeholder.encode())
    repeated = json.dumps(long_text(1) + "\n")[1:-1].encode()  # written and held once for all 150
    async with staged() as stage:
        large = asyncio.create_task(stage.ask(before, *[repeated] * 150, after))
        while not large.done():
            begun = time.perf_counter()
            is_well = await stage.is_well()
            seconds = time.perf_counter() - begun
            tried.note(f"after {seconds:.1f} s", held=is_well and seconds < extent.patience * _QUICK_SECONDS)
            await asyncio.sleep(0.05)
        tried.note(f"the large one: {(await large).status}", held=(await large).status == 200)
    return [tried]


async def slow_bodies(_: Extent) -> list[Tried]:
    """A client fills all the room for large requests, and sends the rest of its body a byte at a time."""
    tried = Tried("A slow body delays no other request", "requests beside a body of which 40 MB came, and then drops")
    async with staged() as stage:
        _reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        writer.write(f"{head}content-length: 60000000\r\n\r\n".encode())
        for _piece in range(40):  # not held here as a whole
            writer.write(b" " * 1_000_000)
            await writer.drain()

        async def drip() -> None:
            while True:
                await asyncio.sleep(0.5)
                writer.write(b" ")

        dripping = asyncio.create_task(drip())
        for name, body in (("small", chat()), ("large", with_result(long_text(1))), ("small", chat(stream=True))):
            try:
                status = (await stage.ask(body)).status
            except TimeoutError:
                status = 0
            tried.note(f"a {name} one: {status}", held=status == 200)
        dripping.cancel()
        writer.close()
    return [tried]


async def secrets(_: Extent) -> list[Tried]:
    """Searches for keys and content in everything that an operator can read, at the most verbose log level."""
    tried = Tried(
        "No log, metric, decision or error contains a key or content",
        "what an operator can read after requests of every kind",
    )
    async with staged(media={"fetch_remote_images": False}) as stage:
        for body in _requests():
            await stage.ask(body)
            await stage.ask(body, key="sk-second-canary-key")
        pages: dict[str, bytes] = {"the log": stage.log()}
        for path in ("/metrics", "/decisions", "/", "/healthz", "/readyz"):
            pages[path] = (await stage.get(path)).body
        decisions = json.loads(pages["/decisions"] or b"{}")
        ids = [line["request_id"] for line in decisions.get("decisions", []) if "request_id" in line][:50]
        for number in ids:
            pages[f"/decisions/{number}"] = (await stage.get(f"/decisions/{number}")).body
        for name, page in pages.items():
            for secret in (CANARY.encode(), KEY.encode(), b"sk-second-canary"):
                tried.note(f"{secret.decode()} in {name}", held=secret not in page)
        errors = [
            await _refused(stage, body)
            for body in (b'{"messages": "' + CANARY.encode() + b'"}', chat(max_tokens=CANARY))
        ]
        tried.note("an error", held=all(CANARY.encode() not in error.body or error.status == 200 for error in errors))
    return [tried]


def _requests() -> list[bytes]:
    image = {"type": "image_url", "image_url": {"url": f"https://{CANARY}.invalid/a.png"}}
    file = {"type": "file", "file": {"filename": f"{CANARY}.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}}
    return [
        chat(),
        chat(stream=True),
        with_result(long_text(1)),
        chat({"role": "user", "content": [image, file, {"type": "text", "text": CANARY}]}),
        chat(*({"role": "user", "content": f"{CANARY} " * 4_000} for _ in range(30))),
        chat(user=CANARY, metadata={CANARY: CANARY}),
    ]


async def _refused(stage: Stage, body: bytes) -> Heard:
    return await stage.ask(body)
