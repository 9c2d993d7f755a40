"""Requests that wait for a model: what they cost, what others notice of them, and whether they can be sent again."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Final

from faults.stage import COMPLETION, Request, Stage, chat, long_text, staged, whole, with_result
from faults.trials import Extent, Tried

_QUICK_SECONDS: Final = 10.0
"""For 100 KB beside others on a shared machine; before, it got nothing until the first of them was answered."""
_MOST_MEGABYTES: Final = 350
_LINES: Final = 20_000
"""Of a request of about 1 MB."""
_ARRIVING: Final = 8
"""At once: the rest of the waiting is what is tried."""
_REFUSAL: Final = json.dumps(
    {
        "error": {
            "message": "This model's maximum context length is 100000 tokens. However, your messages resulted in "
            "400000 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
).encode()


class _Thinking:
    """Says nothing to large requests until it refuses all of them; answers others, and those that come again."""

    def __init__(self, stage: Stage) -> None:
        self.refuse = asyncio.Event()
        self.began = 0
        self._stage = stage

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        is_first = len(request.body) > 500_000 and not self.refuse.is_set()
        self._stage.upstream.bodies.clear()
        del request  # hundreds of them wait here
        if not is_first:
            writer.write(whole(200, COMPLETION))
            return
        self.began += 1
        await self.refuse.wait()
        writer.write(whole(400, _REFUSAL))


async def waiting_requests(extent: Extent) -> list[Tried]:
    """Hundreds of large requests wait for a model that thinks, and then refuses them all."""
    count = extent.waiting
    beside = Tried("Nobody waits for another's slow model", f"100 KB beside {count} requests of 1 MB that wait")
    memory = Tried(
        f"Waiting takes at most {_MOST_MEGABYTES} MB", f"{count} requests of 1 MB that wait, and then return"
    )
    healed = Tried("Whoever has waited is still sent again", f"{count} requests of 1 MB, refused after the wait")
    large = {"match": "*", "context_window": 1_000_000}
    async with staged(models=[large], learning={"enabled": False}, log={"format": "json", "level": "info"}) as stage:
        stage.upstream.answer = thinking = _Thinking(stage)
        asked: list[asyncio.Task[int]] = []
        for number in range(count):
            asked.append(asyncio.create_task(_status(stage, number)))
            while len(asked) - thinking.began >= _ARRIVING and not asked[0].done():
                await asyncio.sleep(0.01)
        while thinking.began < count and not asked[0].done():
            await asyncio.sleep(0.01)
        for number in range(5):
            begun = time.perf_counter()
            status = (await stage.ask(with_result(long_text(number, 2_000)), key="sk-another")).status
            seconds = time.perf_counter() - begun
            beside.note(f"{status} after {seconds:.1f} s", held=status == 200 and seconds < _QUICK_SECONDS)
        memory.note(f"{(found := stage.memory_megabytes())} MB while they waited", held=found < _MOST_MEGABYTES)
        thinking.refuse.set()
        for number, one in enumerate(asked):
            status = await one
            healed.note(f"request {number}: {status}", held=status == 200)
        memory.note(f"{(found := stage.memory_megabytes())} MB when they came back", held=found < _MOST_MEGABYTES)
    return [beside, memory, healed]


async def _status(stage: Stage, number: int) -> int:
    return (await stage.ask(chat(*_exchanges(long_text(number, _LINES)), model="m"))).status


def _exchanges(text: str) -> list[dict[str, str]]:
    said = [text[start : start + 8_000] for start in range(0, len(text), 8_000)]
    return [{"role": ("assistant", "user")[number % 2], "content": one} for number, one in enumerate(said)]
