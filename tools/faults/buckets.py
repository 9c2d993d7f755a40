"""Faults of a bucket: it hangs, is late, is away, refuses, is emptied; and a replica that starts meanwhile.

Rule: a bucket in trouble costs one request ten seconds and no other one anything, and what could not be kept was not
cut out.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from support.upstream import Connection, Request

from tools.faults.clouds import AZURE, GOOGLE, LATE_SECONDS, S3, Service, bucket
from tools.faults.stage import (
    TOO_LONG,
    Heard,
    Stage,
    accept,
    chat,
    long_text,
    staged,
    whole,
)
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried

LIMIT_SECONDS: Final = 10.0
"""That the bucket may take for all artifacts of a request together."""
SLACK_SECONDS: Final = 3.0
"""Over the limit, for a machine that does something else."""
AT_ONCE_SECONDS: Final = 0.5
"""Maximum for a request that waits for no bucket; it takes 0.1 s on an idle machine."""
_GROWN_MEGABYTES: Final = 100
_TROUBLES: Final = ("hang", "away", "cut", "500", "403")
_TROUBLES_ELSEWHERE: Final = ("garbage", "truncated", "403", "deleted", "500", "cut", "away", "hang")
_LINES: Final = 600
"""Length of a result that is cut on arrival and that would fit uncut."""
_FRESH: Final = itertools.count(9_000)
"""Seeds of results that no bucket has had."""
_TOOLS: Final = [{"type": "function", "function": {"name": "bash", "description": "Runs a command. " * 4_000}}]
"""More than the window of gpt-4o-mini as it is set here."""
_SETTINGS: Final[Mapping[str, Any]] = {
    "artifacts": {"url": S3.url, "public_url": "http://proxy.example"},
    "server": {"secret": "5e" * 32},
    "tool_output": {"max_lines": 200},
    "models": [
        {"match": "gpt-4o", "context_window": 1_000_000},
        {"match": "gpt-4o-mini", "context_window": 8_000},
    ],
}


def _results(first: int, count: int, **members: Any) -> bytes:
    """A request with this many tool results, of these seeds on."""
    turns: list[dict[str, Any]] = []
    for seed in range(first, first + count):
        called = {"id": f"call_{seed}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [called]})
        turns.append({"role": "tool", "tool_call_id": f"call_{seed}", "content": long_text(seed, _LINES)})
    return chat(*turns, **members)


async def _timed(stage: Stage, body: bytes, key: str = "sk-one") -> tuple[Heard, float]:
    begun = time.perf_counter()
    heard = await stage.ask(body, key=key)
    return heard, time.perf_counter() - begun


def _named(stage: Stage) -> list[str]:
    """The artifacts that the latest request names."""
    return sorted({found[0].decode() for found in NAME.finditer(stage.upstream.bodies[-1])})


async def _unread(stage: Stage, names: list[str], key: str = "sk-one") -> list[str]:
    found = [await stage.get(f"/artifacts/{name}", key=key) for name in names]
    return [f"{name}: {heard.status}" for name, heard in zip(names, found, strict=True) if heard.status != 200]


async def _ready(stage: Stage) -> tuple[int, str]:
    heard = await stage.get("/readyz")
    return heard.status, str(json.loads(heard.body).get("unavailable", {}).get("store", ""))


async def _is_found_again(stage: Stage) -> bool:
    """Whether the bucket is used again, within half a minute."""
    for _try in range(60):
        await stage.ask(_results(next(_FRESH), 1), key="sk-one")  # what it has kept before, it need not ask for
        if _named(stage):
            return True
        await asyncio.sleep(0.5)
    return False


async def buckets_that_fail(extent: Extent) -> list[Tried]:
    """Each trouble under running requests."""
    first = Tried("A bucket that hangs or is away costs one request ten seconds", "24 new results in one request")
    others = Tried(
        "A bucket that hangs or is away costs other requests nothing", "another key's request meanwhile and afterwards"
    )
    ready = Tried("A bucket in trouble is a note in `/readyz`, which stays 200", "`/readyz` under each trouble")
    refusals = Tried(
        "A request that does not fit says that nothing could be kept", "a request that the upstream refuses twice"
    )
    back = Tried("A bucket that is back is used again within half a minute", "each trouble ended")
    async with bucket() as kept, staged(**_SETTINGS) as stage:
        for at, trouble in enumerate(_TROUBLES):
            await kept.begin(trouble)
            heard, seconds = await _timed(stage, _results(100 * at, 24))
            held = (
                heard.status == 200 and seconds < LIMIT_SECONDS + extent.patience * SLACK_SECONDS and not _named(stage)
            )
            first.note(f"{trouble}: status {heard.status} after {seconds:.1f} s, {len(_named(stage))} cut", held=held)
            for number in range(5):
                heard, seconds = await _timed(stage, _results(100 * at + 50 + number, 1), "sk-another")
                held = heard.status == 200 and seconds < extent.patience * AT_ONCE_SECONDS
                others.note(f"{trouble}: status {heard.status} after {seconds:.2f} s", held=held)
            status, why = await _ready(stage)
            ready.note(f"{trouble}: {status}, {why!r}", held=status == 200 and why != "")
            stage.upstream.answer = _refuse_as_too_long
            heard = await stage.ask(_results(100 * at + 60, 1, model="gpt-4o-mini", tools=_TOOLS), key="sk-one")
            stage.upstream.answer = accept
            message = json.loads(heard.body).get("error", {}).get("message", "")
            refusals.note(
                f"{trouble}: {heard.status} {message[:300]!r}", held=heard.status == 400 and "could be kept" in message
            )
            await kept.begin("")
            back.note(trouble, held=await _is_found_again(stage))
    return [first, others, ready, refusals, back]


async def _refuse_as_too_long(connection: Connection, _: Request) -> None:
    await connection.send(whole(400, TOO_LONG))


async def late_buckets(extent: Extent) -> list[Tried]:
    """Each response takes a second."""
    tried = Tried("Artifacts are kept side by side", f"60 new results, a bucket {LATE_SECONDS:g} s late")
    async with bucket() as kept, staged(**_SETTINGS) as stage:
        await kept.begin("late")
        heard, seconds = await _timed(stage, _results(0, 60))
        await kept.begin("")
        names = _named(stage)
        unread = await _unread(stage, names)
        held = heard.status == 200 and seconds < LIMIT_SECONDS + extent.patience * SLACK_SECONDS
        tried.note(f"status {heard.status} after {seconds:.1f} s", held=held)
        tried.note(f"{len(names)} of 60 cut, not read back: {unread[:3]}", held=len(names) == 60 and not unread)
    return [tried]


async def buckets_that_lie(extent: Extent) -> list[Tried]:
    """Responses that are wrong, a bucket that is deleted, and credentials that expire."""
    return await _with_troubles(
        S3,
        ("garbage", "truncated", "expired", "deleted"),
        extent.patience,
        serves=Tried(
            "A bucket that answers wrongly fails no request", "garbage, half responses, expired credentials, no bucket"
        ),
        keeps=Tried("Nothing is cut that such a bucket has not kept", "what was cut meanwhile, read afterwards"),
        back=Tried("Such a bucket is used again when it is well", "each trouble ended"),
        memory=Tried("Such a bucket takes no memory", "the most that the process has held"),
    )


async def buckets_of_google(extent: Extent) -> list[Tried]:
    """Google's client under each trouble."""
    return await _of_another_cloud(GOOGLE, extent)


async def buckets_of_azure(extent: Extent) -> list[Tried]:
    """Azure's client under each trouble."""
    return await _of_another_cloud(AZURE, extent)


async def _of_another_cloud(service: Service, extent: Extent) -> list[Tried]:
    troubles = _TROUBLES_ELSEWHERE[: extent.cloud_troubles]
    return await _with_troubles(
        service,
        troubles,
        extent.patience,
        serves=Tried(f"A bucket of {service.cloud} in trouble fails no request", ", ".join(troubles)),
        keeps=Tried(
            f"Nothing is cut that a bucket of {service.cloud} has not kept", "what was cut meanwhile, read afterwards"
        ),
        back=Tried(f"A bucket of {service.cloud} is used again when it is well", "each trouble ended"),
        memory=Tried(f"A bucket of {service.cloud} in trouble takes no memory", "the most that the process has held"),
    )


async def _with_troubles(
    service: Service,
    troubles: Sequence[str],
    patience: float,
    *,
    serves: Tried,
    keeps: Tried,
    back: Tried,
    memory: Tried,
) -> list[Tried]:
    settings = {**_SETTINGS, "artifacts": {**_SETTINGS["artifacts"], "url": service.url}}
    async with bucket(service) as kept, staged(**settings) as stage:
        await stage.ask(_results(0, 2), key="sk-one")
        before = stage.memory_megabytes()
        for at, trouble in enumerate(troubles, 1):
            stage.upstream.bodies.clear()
            if trouble == "deleted":
                await kept.deleted()
            else:
                await kept.begin(trouble)
            for number in range(5):
                heard, seconds = await _timed(stage, _results(100 * at + 10 * number, 6))
                held = heard.status == 200 and seconds < LIMIT_SECONDS + patience * SLACK_SECONDS
                serves.note(f"{trouble}: status {heard.status} after {seconds:.1f} s", held=held)
            named = {found[0].decode() for body in stage.upstream.bodies for found in NAME.finditer(body)}
            if trouble == "deleted":
                await kept.made()
            await kept.begin("")
            back.note(trouble, held=await _is_found_again(stage))
            unread = await _unread(stage, sorted(named))
            keeps.note(f"{trouble}: {len(named)} cut, not read {unread[:3]}", held=not unread)
        grown = stage.memory_megabytes() - before
        memory.note(f"{grown} MB", held=grown < _GROWN_MEGABYTES)
    return [serves, keeps, back, memory]


async def replicas_of_a_bucket(extent: Extent) -> list[Tried]:
    """A replica starts while the bucket fails, and a bucket loses all that it holds."""
    joins = Tried(
        "A replica that starts while the bucket fails joins the others by itself",
        "hanging, away, cut connections, 500, 403",
    )
    waits = Tried("A replica that has not joined yet keeps nothing", "requests and reads meanwhile")
    noticed = Tried("An emptied bucket is noticed at the next use", "the next turn, another replica, a new one")
    body = _results(1, 2)
    async with bucket() as kept, staged(**_SETTINGS) as one:
        await one.ask(body, key="sk-one")
        names = _named(one)
        for trouble in _TROUBLES[: extent.late_starts]:
            await kept.begin(trouble)
            async with staged(**_SETTINGS) as late:
                heard = await late.ask(_results(10, 2), key="sk-one")
                read = await late.get(f"/artifacts/{names[0]}", key="sk-one")
                reported = f"{trouble}: {heard.status}, {len(_named(late))} cut, read with {read.status}"
                waits.note(reported, held=heard.status == 200 and not _named(late) and read.status == 503)
                await kept.begin("")
                is_back = await _is_found_again(late)
                new = _named(late)
                unread = [*await _unread(late, names), *await _unread(one, new)]
                joins.note(f"{trouble}: found again {is_back}, not read: {unread}", held=is_back and not unread)
        assert await kept.emptied() > 0, "something was kept"
        await one.ask(body, key="sk-one")
        for _try in range(20):
            if not (unread := await _unread(one, names)):
                break
            await asyncio.sleep(0.1)
        noticed.note(f"not read after the next turn: {unread}", held=bool(names) and not unread)
        async with staged(**_SETTINGS) as new_one:
            unread = await _unread(new_one, names)
            noticed.note(f"not read by a new replica: {unread}", held=not unread)
    return [joins, waits, noticed]
