"""Faults of a bucket: it hangs, is late, is away, refuses, is emptied; and a replica that starts meanwhile.

Rule: a bucket in trouble costs one request ten seconds and no other one anything, and what could not be kept was not
cut out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import obstore
from obstore.store import S3Store

from tools.faults.stage import (
    PATIENCE_SECONDS,
    TOO_LONG,
    Heard,
    Request,
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
"""What a request takes that waits for no bucket; 0.1 s on a machine of its own."""
LATE_SECONDS: Final = 1.0
_GROWN_MEGABYTES: Final = 100
_TROUBLES: Final = ("hang", "away", "cut", "500", "403")
_EXPIRED: Final = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_LINES: Final = 600
"""Length of a result that is cut on arrival and that would fit uncut."""
_SETTINGS: Final[Mapping[str, Any]] = {
    "artifacts": {"url": "s3://faults/kept", "public_url": "http://proxy.example"},
    "tool_output": {"max_lines": 200},
    "models": [
        {"match": "gpt-4o", "context_window": 1_000_000},
        {"match": "gpt-4o-mini", "context_window": 8_000},
    ],
}
_TOOLS: Final = [{"type": "function", "function": {"name": "bash", "description": "Runs a command. " * 4_000}}]
"""More than the window of gpt-4o-mini as it is set here."""


@dataclass
class Bucket:
    """A server of S3 behind a relay that makes the trouble."""

    port: int
    relay: asyncio.Server | None = None
    place: int = 0
    """The relay's port."""
    trouble: str = ""
    """`hang`, `late`, `cut` (connections end without a response), `away` (there are none), `garbage` (a 200 that is no
    response of S3), `truncated` (half of each response), `expired` (the credentials), or a status; empty: none."""
    connections: set[asyncio.StreamWriter] = field(default_factory=set)

    async def begin(self, trouble: str) -> None:
        """Make trouble, also for connections that were idle; empty: end it."""
        self.trouble = trouble
        for writer in self.connections:
            writer.close()
        if self.relay is not None:
            self.relay.close()
            self.relay = None
        if trouble != "away":
            self.relay = await asyncio.start_server(self.serve, "127.0.0.1", self.place, limit=256 * 1024 * 1024)
            self.place = self.relay.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while self.trouble != "cut":
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                request = head + await reader.readexactly(int(length[1]) if length else 0)
                while self.trouble == "hang":
                    await asyncio.sleep(0.1)
                if self.trouble == "late":
                    await asyncio.sleep(LATE_SECONDS)
                writer.write(await self._response(request))
                await writer.drain()
                if self.trouble == "truncated":
                    break
        self.connections.discard(writer)
        writer.close()

    async def _response(self, request: bytes) -> bytes:
        match self.trouble:
            case "garbage":
                return whole(200, b"\x00\xff<Garbage" * 99, "application/xml")
            case "expired":
                return whole(403, _EXPIRED, "application/xml")
            case "truncated":
                found = await self._passed(request)
                return found[: -max(1, len(found.partition(b"\r\n\r\n")[2]) // 2)]
            case trouble if trouble.isdigit():
                return whole(int(trouble), b"")
        return await self._passed(request)

    async def deleted(self) -> None:
        """Remove the bucket itself, past the relay."""
        await self.emptied()
        await self._passed(b"DELETE /faults HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")

    async def made(self) -> None:
        """Make it, past the relay. Raises OSError."""
        await self._passed(b"PUT /faults HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")

    async def emptied(self) -> int:
        """Remove everything, past the relay; how many objects there were."""
        place = f"http://127.0.0.1:{self.port}"
        store = S3Store("faults", endpoint=place, client_options={"allow_http": True})
        found = [one["path"] for page in obstore.list(store) for one in page]
        await obstore.delete_async(store, found)
        return len(found)

    async def _passed(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        answer = await reader.read()
        writer.close()
        return answer.replace(b"Connection: close\r\n", b"", 1)


@contextlib.asynccontextmanager
async def bucket() -> AsyncIterator[Bucket]:
    """An empty one, which the proxies of this trial find by their environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        made = Bucket(probe.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moto.server", "-p", str(made.port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await made.begin("")
    place = f"http://127.0.0.1:{made.place}"
    found = {"ENDPOINT_URL": place, "ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
    os.environ.update({f"AWS_{name}": value for name, value in found.items()})
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(OSError):
                    await made.made()
                    break
                await asyncio.sleep(0.1)
        yield made
    finally:
        for name in found:
            del os.environ[f"AWS_{name}"]
        await made.begin("away")
        process.kill()
        await process.wait()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while made.connections:  # the loop may end next, and would complain about them
                await asyncio.sleep(0.01)


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
    for number in range(60):
        await stage.ask(_results(9_000 + number, 1), key="sk-one")
        if _named(stage):
            return True
        await asyncio.sleep(0.5)
    return False


async def buckets_that_fail(_: Extent) -> list[Tried]:
    """Each trouble under running requests."""
    first = Tried("A bucket that hangs or is away costs one request ten seconds", "24 new results in one request")
    others = Tried(
        "A bucket that hangs or is away costs other requests nothing", "another key's request meanwhile and afterwards"
    )
    ready = Tried("A bucket in trouble is a note in `/readyz`, which stays 200", "`/readyz` under each trouble")
    tells = Tried(
        "A request that does not fit says that nothing could be kept", "a request that the upstream refuses twice"
    )
    back = Tried("A bucket that is back is used again within half a minute", "each trouble ended")
    async with bucket() as kept, staged(**_SETTINGS) as stage:
        for at, trouble in enumerate(_TROUBLES):
            await kept.begin(trouble)
            heard, seconds = await _timed(stage, _results(100 * at, 24))
            held = heard.status == 200 and seconds < LIMIT_SECONDS + SLACK_SECONDS and not _named(stage)
            first.note(f"{trouble}: status {heard.status} after {seconds:.1f} s, {len(_named(stage))} cut", held=held)
            for number in range(5):
                heard, seconds = await _timed(stage, _results(100 * at + 50 + number, 1), "sk-another")
                held = heard.status == 200 and seconds < AT_ONCE_SECONDS
                others.note(f"{trouble}: status {heard.status} after {seconds:.2f} s", held=held)
            status, why = await _ready(stage)
            ready.note(f"{trouble}: {status}, {why!r}", held=status == 200 and why != "")
            stage.upstream.answer = _refuse_as_too_long
            heard = await stage.ask(_results(100 * at + 60, 1, model="gpt-4o-mini", tools=_TOOLS), key="sk-one")
            stage.upstream.answer = accept
            said = json.loads(heard.body).get("error", {}).get("message", "")
            tells.note(
                f"{trouble}: {heard.status} {said[:300]!r}", held=heard.status == 400 and "could be kept" in said
            )
            await kept.begin("")
            back.note(trouble, held=await _is_found_again(stage))
    return [first, others, ready, tells, back]


async def _refuse_as_too_long(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(400, TOO_LONG))


async def late_buckets(_: Extent) -> list[Tried]:
    """Each response takes a second."""
    tried = Tried("Artifacts are kept side by side", f"60 new results, a bucket {LATE_SECONDS:g} s late")
    async with bucket() as kept, staged(**_SETTINGS) as stage:
        await kept.begin("late")
        heard, seconds = await _timed(stage, _results(0, 60))
        await kept.begin("")
        names = _named(stage)
        unread = await _unread(stage, names)
        held = heard.status == 200 and seconds < LIMIT_SECONDS + SLACK_SECONDS
        tried.note(f"status {heard.status} after {seconds:.1f} s", held=held)
        tried.note(f"{len(names)} of 60 cut, not read back: {unread[:3]}", held=len(names) == 60 and not unread)
    return [tried]


async def buckets_that_lie(_: Extent) -> list[Tried]:
    """Responses that are wrong, a bucket that is deleted, and credentials that expire."""
    serves = Tried(
        "A bucket that answers wrongly fails no request", "garbage, half responses, expired credentials, no bucket"
    )
    keeps = Tried("Nothing is cut that such a bucket has not kept", "what was cut meanwhile, read afterwards")
    back = Tried("Such a bucket is used again when it is well", "each trouble ended")
    memory = Tried("Such a bucket takes no memory", "the most that the process has held")
    async with bucket() as kept, staged(**_SETTINGS) as stage:
        await stage.ask(_results(0, 2), key="sk-one")
        before = stage.memory_megabytes()
        for at, trouble in enumerate(("garbage", "truncated", "expired", "deleted"), 1):
            stage.upstream.bodies.clear()
            if trouble == "deleted":
                await kept.deleted()
            else:
                await kept.begin(trouble)
            for number in range(5):
                heard, seconds = await _timed(stage, _results(100 * at + 10 * number, 6))
                held = heard.status == 200 and seconds < LIMIT_SECONDS + SLACK_SECONDS
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
                told = f"{trouble}: {heard.status}, {len(_named(late))} cut, read with {read.status}"
                waits.note(told, held=heard.status == 200 and not _named(late) and read.status == 503)
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
