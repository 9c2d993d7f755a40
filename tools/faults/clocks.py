"""Shifted clocks: a machine that was a day ahead or behind, in 1970 or in 2038, and a leap in the middle of a stream.

Rule: whatever the clock says, requests are answered and cut, what was cut is kept and read back, and once the clock is
right the newest requests are listed and no lesson of another time binds.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import (
    COMPLETION,
    EVENTS,
    TOO_LONG,
    Stage,
    accept,
    chat,
    long_text,
    restart,
    staged,
    streamed,
    whole,
    with_result,
)
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried

HOUR: Final = 3_600
DAY: Final = 24 * HOUR
SHIFTS: Final = {
    "2038": "@2038-01-20 00:00:00",
    "a day ahead": f"+{DAY}",
    "a day behind": f"-{DAY}",
    "1970": "@1970-01-02 00:00:00",
}
"""Offsets in libfaketime's notation; an absolute time runs on from there."""
_REQUESTS: Final = 450
_SET_SECONDS: Final = 2.5
"""After which a running process has read its clock anew: libfaketime compares whole seconds, so that takes up to 2."""


def libfaketime() -> Path | None:
    """libfaketime, which shifts the clock of one process; None where it is not installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


_NAMES: Final = ("LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_CACHE_DURATION", "FAKETIME_DONT_FAKE_MONOTONIC")


class _Clock:
    """The clock of the proxies started from here on, which may be set while they run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"

    def set(self, shift: str) -> None:
        """Shift it, from the next look at the file on, within a second."""
        self._file.write_text(shift + "\n")
        os.environ.update(zip(_NAMES, (str(libfaketime()), str(self._file), "1", "1"), strict=True))

    def __enter__(self) -> _Clock:
        return self

    def __exit__(self, *_: object) -> None:
        for name in _NAMES:
            os.environ.pop(name, None)


async def clocks(extent: Extent) -> list[Tried]:
    """Requests under each clock, and after it was corrected, with and without a restart."""
    serves = Tried(
        "Whatever the clock says, requests are cut, kept and read back", "a day ahead, a day behind, 1970, 2038"
    )
    lists = Tried(
        "After a clock was corrected, `/decisions` shows the newest requests first",
        f"{_REQUESTS // extent.every} requests before and after, with and without a restart",
    )
    forgets = Tried("No lesson of 1970 or 2038 binds once the clock is right", "a limit learned under each clock")
    for name, shift in list(SHIFTS.items())[: extent.clocks]:
        for is_restarted in (False, True):
            async with staged() as stage:
                with _Clock(stage.folder) as clock:
                    clock.set(shift)
                    await restart(stage)
                    label = f"{name}, {'restarted' if is_restarted else 'set while it runs'}"
                    await _learn(stage)
                    names = await _cut(stage, 1, serves, label)
                    await _several(stage, "before", _REQUESTS // extent.every)
                    clock.set("+0")
                    await asyncio.sleep(_SET_SECONDS)
                    if is_restarted:
                        await restart(stage)
                    await _cut(stage, 2, serves, f"{label}, corrected")
                    read = [(await stage.get(f"/artifacts/{one}")).status for one in names]
                    serves.note(f"{label}, corrected: read with {read}", held=read == [200])
                    if not name.startswith("a day"):  # a lesson is believed for a week
                        forgets.note(label, held=await _is_unbound_soon(stage))
                    await _several(stage, "after", _REQUESTS // extent.every)
                    shown = await _listed(stage, f"after-{_REQUESTS // extent.every - 1}")
                    lists.note(f"{label}: {shown[:3]}", held=all(one.startswith("after") for one in shown))
    return [serves, lists, forgets]


async def leaps(_: Extent) -> list[Tried]:
    """The clock leaps while a response is streamed."""
    tried = Tried("A clock that leaps ends no stream", "an hour ahead and an hour back in the middle of a stream")
    go_on = asyncio.Event()

    async def pause(connection: Connection, _: Request) -> None:
        await connection.send(streamed(EVENTS)[:300])
        await go_on.wait()
        await connection.send(streamed(EVENTS)[300:])

    async with staged() as stage:
        with _Clock(stage.folder) as clock:
            clock.set("+0")
            await restart(stage)
            for shift in (f"+{HOUR}", "+0"):
                go_on.clear()
                stage.upstream.answer = pause
                stream = asyncio.create_task(stage.ask(chat(stream=True)))
                while not stage.upstream.in_work:
                    await asyncio.sleep(0.05)
                clock.set(shift)
                await asyncio.sleep(_SET_SECONDS)
                go_on.set()
                heard = await stream
                stage.upstream.answer = accept
                held = heard.is_whole and heard.body == EVENTS and (await stage.ask(chat())).status == 200
                tried.note(f"{shift}: {heard.status}, whole {heard.is_whole}", held=held)
    return [tried]


async def _cut(stage: Stage, seed: int, tried: Tried, label: str) -> list[str]:
    """The artifacts of a request with a long result, which are in the store. They are not read here: the library shifts
    the clock of the process and not that of the disk, so in 2038 they are twelve years old."""
    heard = await stage.ask(with_result(long_text(seed)))
    names = sorted({found[0].decode() for found in NAME.finditer(stage.upstream.bodies[-1])})
    held = heard.status == 200 and len(names) == 1 and names[0] in stage.kept()
    tried.note(f"{label}: {heard.status}, {names} kept", held=held)
    return names


async def _several(stage: Stage, name: str, count: int) -> None:
    for number in range(count):
        await stage.ask(chat(), x_request_id=f"{name}-{number}")


async def _listed(stage: Stage, last: str) -> list[str]:
    """The requests that are listed first, once the last one is."""
    for _ in range(50):
        page = json.loads((await stage.get("/decisions?limit=10")).body)
        found = [one["request_id"] for one in page["decisions"]]
        if last in found:
            break
        await asyncio.sleep(0.1)
    return found


_LONG: Final = chat(*({"role": role, "content": "word " * 4_000} for _ in range(15) for role in ("assistant", "user")))
"""Over the window that TOO_LONG states, and under the one that is guessed."""


async def _learn(stage: Stage) -> None:
    async def refuse(connection: Connection, request: Request) -> None:
        await connection.send(whole(400, TOO_LONG) if len(request.body) >= len(_LONG) else whole(200, COMPLETION))

    stage.upstream.answer = refuse
    await stage.ask(_LONG)
    stage.upstream.answer = accept
    assert not await _is_unbound(stage), "the limit was learned"


async def _is_unbound_soon(stage: Stage) -> bool:
    """A process on a busy machine may take longer than usual to read its clock anew."""
    for _ in range(20):
        if await _is_unbound(stage):
            return True
        await asyncio.sleep(0.5)
    return False


async def _is_unbound(stage: Stage) -> bool:
    """Whether a request over that limit is sent as it is."""
    await stage.ask(_LONG)
    return stage.upstream.bodies[-1] == _LONG
