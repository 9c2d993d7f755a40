"""Faults of the store: no disk, a kill at any moment, hundreds of large results at once.

Rule: what was cut out of a request that was sent can be read back, whole, or the request says that it was not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.faults.stage import KEY, Stage, ended, long_text, staged, started, with_result
from tools.faults.trials import Extent, Tried

NAME: Final = re.compile(rb"tool_[A-Za-z0-9_-]+_([0-9a-f]{16})\.(?:txt|json)")
_NOT_KEPT: Final = b"could not be kept"


def _lost(stage: Stage) -> list[str]:
    """Artifacts that sent requests name and the store does not hold whole."""
    kept = stage.kept()
    named = {found[0].decode(): found[1].decode() for body in stage.upstream.bodies for found in NAME.finditer(body)}
    return [name for name, digest in named.items() if not _is_whole(kept.get(name), digest)]


def _is_whole(content: bytes | None, digest: str) -> bool:
    return content is not None and hashlib.sha256(content).hexdigest().startswith(digest)


async def kills(extent: Extent) -> list[Tried]:
    """The process is killed while results are cut, and started again in the same folder."""
    tried = Tried("What was cut out of a request that went up is in the store, whole", "the process killed under load")
    left = Tried("A restart leaves nothing unfinished behind", "the store after a restart")
    chance = random.Random(7)
    async with staged() as stage:
        address = json.loads((stage.folder / "config.json").read_text())["upstream"]["base_url"]
        for number in range(extent.kills):
            asking = [
                asyncio.create_task(stage.ask(with_result(long_text(number * 100 + client)))) for client in range(8)
            ]
            await asyncio.sleep(chance.uniform(0.02, 0.4))
            os.kill(stage.process.pid, signal.SIGKILL)
            await asyncio.gather(*asking, return_exceptions=True)
            await ended(stage)
            lost = _lost(stage)
            tried.note(f"kill {number + 1}: {lost[:3]}", held=not lost)
            again = await started(stage.folder, stage.upstream, address)
            stage.port, stage.process = again.port, again.process
            unfinished = await _unfinished(stage.folder / "data")
            left.note(f"kill {number + 1}: {unfinished[:3]}", held=not unfinished)
    return [tried, left]


async def _unfinished(folder: Path) -> list[str]:
    """Half-written files, after the sweep at the start has had its time."""
    for _ in range(50):
        found = [path.name for path in folder.rglob("*.unfinished")]
        if not found:
            break
        await asyncio.sleep(0.1)
    return found


async def no_disk(_: Extent) -> list[Tried]:
    """The folder of the store goes away and comes back."""
    tried = Tried(
        "Without a store requests are served, and say what could not be kept",
        "the store's folder replaced by a file, and put back",
    )
    async with staged() as stage:
        first = await stage.ask(with_result(long_text(1)))
        tried.note("before", held=first.status == 200 and not _lost(stage))
        folder = stage.folder / "data" / "tool-output"
        _replace_by_a_file(folder)
        stage.upstream.bodies.clear()
        for seed in (2, 3, 4):
            heard = await stage.ask(with_result(long_text(seed)))
            sent = stage.upstream.bodies[-1]
            is_reported = _NOT_KEPT in sent or NAME.search(sent) is None  # or nothing was cut
            tried.note(f"without a disk: status {heard.status}", held=heard.status == 200 and is_reported)
        folder.unlink()
        stage.upstream.bodies.clear()
        for _try in range(100):
            await stage.ask(with_result(long_text(5)))
            if NAME.search(stage.upstream.bodies[-1]) and _NOT_KEPT not in stage.upstream.bodies[-1]:
                break
            await asyncio.sleep(0.5)
        tried.note("when it is back", held=not _lost(stage) and NAME.search(stage.upstream.bodies[-1]) is not None)
    return [tried]


def _replace_by_a_file(folder: Path) -> None:
    """Rename the folder, whatever the proxy writes in it, and again if the proxy has created it anew meanwhile."""
    for number in itertools.count():
        folder.rename(folder.parent.with_name(f"former-{number}"))
        with contextlib.suppress(FileExistsError):
            folder.touch(exist_ok=False)
            return


async def full_disk(_: Extent) -> list[Tried]:
    """No file of the proxy's may grow over a few blocks, as on a full disk."""
    tried = Tried(
        "A full disk fails no request, and is reported", "results that are cut, /readyz, and both when there is room"
    )
    async with staged() as stage:
        before = await _is_ready(stage)
        tried.note(f"before: {before}", held=before == (200, b""))
        _limit_files(stage, _FEW_BLOCKS)
        for seed in range(3):
            heard = await stage.ask(with_result(long_text(seed)))
            is_reported = _NOT_KEPT in stage.upstream.bodies[-1] or NAME.search(stage.upstream.bodies[-1]) is None
            tried.note(f"result {seed}: status {heard.status}", held=heard.status == 200 and is_reported)
        found = await _waited_for(stage, lambda status, reason: status == 503 and b"store" in reason)
        tried.note(f"/readyz says {found}", held=found is not None)
        _limit_files(stage, resource.RLIM_INFINITY)
        found = await _waited_for(stage, lambda status, _: status == 200)
        tried.note(f"with room again: {found}", held=found is not None)
        await stage.ask(with_result(long_text(5)))
        tried.note("a result is kept", held=not _lost(stage) and NAME.search(stage.upstream.bodies[-1]) is not None)
    return [tried]


async def removed_folder(extent: Extent) -> list[Tried]:
    """The data folder is deleted while the proxy runs."""
    tried = Tried(
        "A deleted data folder is created again, and the log reports it", "the folder deleted between requests"
    )
    async with staged() as stage:
        for number in range(max(3, 20 // extent.every)):
            shutil.rmtree(stage.folder / "data", ignore_errors=True)
            await stage.ask(with_result(long_text(number)), x_request_id=f"after-{number}")
            page = json.loads((await stage.get(f"/decisions?q=after-{number}")).body)
            listed = [one["request_id"] for one in page["decisions"]]
            tried.note(f"{number}: decisions {listed}", held=listed == [f"after-{number}"])
            is_there = (stage.folder / "data" / "decisions-4.db").is_file()
            tried.note(f"{number}: the file of decisions", held=is_there and page["worker"]["shared"])
            names = {found[0].decode() for found in NAME.finditer(stage.upstream.bodies[-1])}
            tried.note(f"{number}: {names} kept", held=bool(names) and names <= stage.kept().keys())
        tried.note("the log says so", held=b"it was removed while it was in use" in stage.log())
    return [tried]


_FEW_BLOCKS: Final = 16 * 1024


def _limit_files(stage: Stage, most_bytes: int) -> None:
    """Limit the size of the process's files, which imitates a full disk; works for a running process on Linux only."""
    resource.prlimit(stage.process.pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


async def _is_ready(stage: Stage) -> tuple[int, bytes]:
    """Status of `/readyz`, and why."""
    heard = await stage.get("/readyz")
    body = json.loads(heard.body)
    return heard.status, json.dumps(body.get("reasons") or {}).encode().strip(b"{}")


async def _waited_for(stage: Stage, wanted: Callable[[int, bytes], bool]) -> tuple[int, bytes] | None:
    """Poll `/readyz` until its answer is the wanted one: results are cached for ten seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while not wanted(*(found := await _is_ready(stage))):
                await asyncio.sleep(0.5)
            return found
    return None


async def many_at_once(extent: Extent) -> list[Tried]:
    """Many large results at once, on a working disk."""
    count = extent.large_at_once
    tried = Tried("Under load every cut is kept: requests wait, in order", f"{count} requests of 2 MB at once")
    async with staged() as stage:
        heard = await asyncio.gather(*(stage.ask(with_result(long_text(seed, lines=40_000))) for seed in range(count)))
        for number, one in enumerate(heard):
            tried.note(f"request {number}: status {one.status}", held=one.status == 200)
        unkept = sum(_NOT_KEPT in body for body in stage.upstream.bodies)
        tried.note(f"{unkept} cut without being kept, {len(_lost(stage))} lost", held=not unkept and not _lost(stage))
    return [tried]


async def isolation(_: Extent) -> list[Tried]:
    """One key requests another key's artifacts, by every name that a path can be given."""
    tried = Tried("No key reads what another key stored", "names and spellings of another key's artifacts")
    paths = Tried("No name leads out of the store", "spellings of paths that lead elsewhere")
    async with staged() as stage:
        await stage.ask(with_result(long_text(1)))
        names = {found[0].decode() for found in NAME.finditer(stage.upstream.bodies[-1])}
        assert names, "a result was cut"
        for name in names:
            own = await stage.get(f"/artifacts/{name}")
            tried.note("its own key", held=own.status == 200 and own.body in stage.kept().values())
            for query in ("", "?stat", "?lines=1-", "?grep=line", "?bytes=0-10"):
                for key in ("sk-other", "", KEY + "x", KEY[:-1], KEY.upper()):
                    heard = await stage.get(f"/artifacts/{name}{query}", key=key)
                    tried.note(f"{name}{query} with another key: {heard.status}", held=heard.status in (400, 401, 404))
        for spelling in _ELSEWHERE:
            heard = await stage.get(spelling)
            leaks = b"secret" in heard.body or b"root:" in heard.body or CONFIG in heard.body
            paths.note(f"{spelling}: {heard.status}", held=heard.status >= 400 and not leaks)
    return [tried, paths]


CONFIG: Final = b"base_url"
"""In the configuration, next to the data folder."""
_UP: Final = ("..", "%2e%2e", "..%2f", "%2e%2e%2f", "..%5c", "%252e%252e", ".%00.", "..;")
_ELSEWHERE: Final = [
    f"/artifacts/{'/'.join([up] * depth)}/{target}"
    for up in _UP
    for depth in (1, 2, 3, 8)
    for target in ("config.json", "owner-secret", "etc/passwd", "lessons.json")
]
