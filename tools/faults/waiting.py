"""Requests that wait for a model: what they cost, what others notice of them, and whether they can be sent again; and
what others notice of floods."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import (
    COMPLETION,
    EVENTS,
    KEY,
    TOO_LONG,
    Heard,
    Stage,
    chat,
    long_text,
    staged,
    whole,
    with_result,
)
from tools.faults.trials import Extent, Tried

_QUICK_SECONDS: Final = 10.0
"""For 100 KB beside others on a shared machine; before, it got nothing until the first of them was answered."""
_MOST_MEGABYTES: Final = 350
_LINES: Final = 20_000
"""Length of a request of about 1 MB."""
_ARRIVING: Final = 8
"""At once: the rest of the waiting is what is tried."""


class _Thinking:
    """Says nothing to large requests until it refuses all of them; answers others, and those that come again."""

    def __init__(self, stage: Stage) -> None:
        self.refuse = asyncio.Event()
        self.began = 0
        self._stage = stage

    async def __call__(self, connection: Connection, request: Request) -> None:
        is_first = len(request.body) > 500_000 and not self.refuse.is_set()
        self._stage.upstream.bodies.clear()
        del request  # hundreds of them wait here
        if not is_first:
            await connection.send(whole(200, COMPLETION))
            return
        self.began += 1
        await self.refuse.wait()
        await connection.send(whole(400, TOO_LONG))


_FLOODS: Final = (b"\n", b"\r\n", b"\r", b": c\n", b": c\n\n", b":\r\r", b"data:\n\n")
_FLOOD_BYTES: Final = 2_000_000


async def floods(extent: Extent) -> list[Tried]:
    """An upstream sends millions of lines that say nothing, a client millions of messages or chunks; others ask."""
    beside = Tried(
        "One tenant's flood delays no other tenant", "/healthz beside 2 MB of blank lines, tiny messages or chunks"
    )
    refused = Tried("What is too much is refused with a reason", "a million messages, a body of one-byte chunks")
    async with staged() as stage:
        for line in _FLOODS:
            for begins in (b"", EVENTS.partition(b"\n\n")[0] + b"\n\n"):
                stage.upstream.answer = partial(_flood, begins + line * (_FLOOD_BYTES // len(line)) + b"\n" + EVENTS)
                heard = await _beside(beside, stage, asyncio.create_task(stage.ask(chat(stream=True))), extent.patience)
                beside.note(f"{line!r}: {heard.status}", held=heard.is_whole and heard.body.endswith(EVENTS))
        many = b'{"model": "m", "messages": [' + b",".join([b'{"role": "user", "content": "x"}'] * 1_000_000) + b"]}"
        heard = await _beside(beside, stage, asyncio.create_task(stage.ask(many)), extent.patience)
        refused.note(f"a million messages: {heard.status}", held=heard.status == 400 and b"items" in heard.body)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode()
        head += b"transfer-encoding: chunked\r\n\r\n"
        heard = await _beside(
            beside, stage, asyncio.create_task(stage.send(head, b"1\r\n \r\n" * 1_000_000)), extent.patience
        )
        refused.note(f"one-byte chunks: {heard.status}", held=heard.status == 400 and b"chunks" in heard.body)
    return [beside, refused]


async def _flood(body: bytes, connection: Connection, _: Request) -> None:
    await connection.send(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
    connection.writer.close()


async def _beside(tried: Tried, stage: Stage, flood: asyncio.Task[Heard], patience: float) -> Heard:
    while not flood.done():
        begun = time.perf_counter()
        is_well = await stage.is_well()
        seconds = time.perf_counter() - begun
        tried.note(f"after {seconds:.1f} s", held=is_well and seconds < patience * _QUICK_SECONDS)
        await asyncio.sleep(0.05)
    return await flood


async def waiting_requests(extent: Extent) -> list[Tried]:
    """Hundreds of large requests wait for a model that thinks, and then refuses them all."""
    count = extent.waiting
    beside = Tried("A slow model delays no other request", f"100 KB beside {count} requests of 1 MB that wait")
    memory = Tried(
        f"Waiting takes at most {_MOST_MEGABYTES} MB", f"{count} requests of 1 MB that wait, and then return"
    )
    healed = Tried("Whoever has waited is still sent again", f"{count} requests of 1 MB, refused after the wait")
    large = {"match": "*", "context_window": 1_000_000}
    async with staged(models=[large], learning={"enabled": False}, log={"format": "json", "level": "info"}) as stage:
        stage.upstream.answer = thinking = _Thinking(stage)
        tasks: list[asyncio.Task[int]] = []
        for number in range(count):
            tasks.append(asyncio.create_task(_status(stage, number)))
            while len(tasks) - thinking.began >= _ARRIVING and not tasks[0].done():
                await asyncio.sleep(0.01)
        while thinking.began < count and not tasks[0].done():
            await asyncio.sleep(0.01)
        for number in range(5):
            begun = time.perf_counter()
            status = (await stage.ask(with_result(long_text(number, 2_000)), key="sk-another")).status
            seconds = time.perf_counter() - begun
            beside.note(
                f"{status} after {seconds:.1f} s", held=status == 200 and seconds < extent.patience * _QUICK_SECONDS
            )
        memory.note(f"{(found := stage.memory_megabytes())} MB while they waited", held=found < _MOST_MEGABYTES)
        thinking.refuse.set()
        for number, one in enumerate(tasks):
            status = await one
            healed.note(f"request {number}: {status}", held=status == 200)
        memory.note(f"{(found := stage.memory_megabytes())} MB when they came back", held=found < _MOST_MEGABYTES)
    return [beside, memory, healed]


async def _status(stage: Stage, number: int) -> int:
    return (await stage.ask(chat(*_exchanges(long_text(number, _LINES)), model="m"))).status


def _exchanges(text: str) -> list[dict[str, str]]:
    chunks = [text[start : start + 8_000] for start in range(0, len(text), 8_000)]
    return [{"role": ("assistant", "user")[number % 2], "content": one} for number, one in enumerate(chunks)]
