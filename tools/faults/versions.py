"""Two versions of the proxy over one data folder in turn, and at once over one server of Redis.

Rule: neither breaks what the other has written, and each profits from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import (
    COMPLETION,
    PATIENCE_SECONDS,
    SOURCE,
    TOO_LONG,
    Stage,
    accept,
    chat,
    ended,
    long_text,
    restart,
    staged,
    started,
    whole,
    with_result,
)
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried
from tools.ports import held_port

STATE_SERVER: Final = shutil.which("valkey-server") or shutil.which("redis-server")
FORMER: Final = "062636ac"
"""The commit before the lighter rooms; there is no release to take in its place."""
_SHARED_SECONDS: Final = 60.0
"""They compare every two seconds."""


def former(folder: Path) -> Path | None:
    """The former version in this folder; None without its commit."""
    found = subprocess.run(
        ["git", "archive", "--format=zip", FORMER, "proxy"], cwd=SOURCE, capture_output=True, check=False
    )
    if found.returncode:
        return None
    with zipfile.ZipFile(io.BytesIO(found.stdout)) as archive:  # tarfile has no filters before 3.11.4
        archive.extractall(folder)
    with contextlib.suppress(FileExistsError):
        (folder / "proxy" / "vocabulary").symlink_to(SOURCE / "proxy" / "vocabulary")
    return folder


def has_former() -> bool:
    """Whether the former version can be had."""
    return (
        shutil.which("git") is not None
        and not subprocess.run(
            ["git", "cat-file", "-e", FORMER],
            cwd=SOURCE,
            capture_output=True,
            check=False,
        ).returncode
    )


def _long(model: str) -> bytes:
    """Over the window that TOO_LONG states, and under the one that is guessed."""
    turns = ({"role": role, "content": "word " * 4_000} for _ in range(15) for role in ("assistant", "user"))
    return chat(*turns, model=model)


_LONG: Final = _long("gpt-4o")


async def two_versions(_: Extent) -> list[Tried]:
    """The former version, this one, the former again and this one again, over one data folder."""
    serves = Tried("Two versions share a data folder, forwards and back", "requests, and what each has cut")
    lists = Tried("Each lists the requests that it served", "`/decisions` after each change of the version")
    learns = Tried("Each still knows what it has learned", "a limit, after each change of the version")
    says = Tried("Neither finds anything broken", "warnings about files in the log")
    async with staged() as stage:
        source = former(stage.folder / "former")
        assert source is not None, "has_former"
        names: list[str] = []
        for number, root in enumerate((source, SOURCE, source, SOURCE)):
            which = f"{'this' if root == SOURCE else 'the former'} version, start {number + 1}"
            await restart(stage, root)
            if number < 2:  # the form of lessons has changed, so each learns for itself
                stage.upstream.answer = _refuse
                await stage.ask(_LONG)
                stage.upstream.answer = accept
            await stage.ask(_LONG)
            learns.note(which, held=stage.upstream.bodies[-1] != _LONG)
            heard = await stage.ask(with_result(long_text(number)), x_request_id=f"start-{number}")
            names += {found[0].decode() for found in NAME.finditer(stage.upstream.bodies[-1])}
            serves.note(f"{which}: {heard.status}", held=heard.body == COMPLETION and len(names) == number + 1)
            for name in names:
                read = await stage.get(f"/artifacts/{name}")
                serves.note(f"{which}: {name} is read with {read.status}", held=read.status == 200)
            # This version deletes the former's file of requests at its start.
            own = {f"start-{one}" for one in ((1, number) if root == SOURCE else (number,))}
            listed = await _listed(stage, own)
            lists.note(f"{which}: {listed}", held=own <= listed)
            broken = [line for line in stage.log().splitlines() if b"_not_read" in line or b"_not_kept" in line]
            says.note(f"{which}: {broken[:2]}", held=not broken)
    return [serves, lists, learns, says]


async def two_versions_at_once(extent: Extent) -> list[Tried]:
    """The former version, and this one that joins it, each with a data folder of its own, over one Redis."""
    learns = Tried("Two versions over one Redis each believe what they have learned", "a limit that each has learned")
    lists = Tried(
        "Beside another version, each lists the requests that it served", "`/decisions`, also after a restart"
    )
    says = Tried("Neither finds anything wrong with the Redis", "warnings about it in the log")
    async with _state_server() as url, staged() as old:
        source = former(old.folder / "former")
        assert source is not None, "has_former"
        await restart(old, source, state={"url": url})
        await old.ask(chat())
        folder = old.folder / "this"
        folder.mkdir()
        secret = (old.folder / "data" / "owner-secret").read_bytes().hex()  # only replicas with one secret share
        address = json.loads((old.folder / "config.json").read_text())["upstream"]["base_url"]
        new = await started(folder, old.upstream, address, state={"url": url}, server={"secret": secret})
        try:
            for which, one, model in (("the former version", old, "gpt-4o"), ("this version", new, "gpt-4o-mini")):
                old.upstream.answer = _refuse
                await one.ask(_long(model))
                old.upstream.answer = accept
                is_believed = await _becomes_true(partial(_is_fitted, one, model))
                learns.note(f"a limit that {which} has learned", held=is_believed)
            for number in range(4):
                await (old, new)[number % 2].ask(chat(), x_request_id=f"start-{number}")
            # Not those of the other: this version drops the former's entries, as they have no `id` in their summary.
            for is_again in (False, True):
                for which, stage, first in (("the former version", old, 0), ("this version", new, 1)):
                    if is_again:
                        await restart(stage, source if stage is old else SOURCE)
                    served = {f"start-{number}" for number in range(first, 4, 2)}
                    listed = await _listed(stage, served)
                    lists.note(f"{which}, restarted {is_again}: {listed}", held=served <= listed)
            for which, stage in (("the former version", old), ("this version", new)):
                wrong = [line for line in stage.log().splitlines() if b'"state_' in line and b'"warning"' in line]
                if extent.patience > 1:  # a busy machine may not reply in time
                    wrong = [line for line in wrong if b'"TimeoutError"' not in line]
                says.note(f"{which}: {wrong[:2]}", held=not wrong)
        finally:
            await ended(new)
    return [learns, lists, says]


async def _is_fitted(stage: Stage, model: str) -> bool:
    """Whether a request over the limit would be cut; a dry run, so nothing can be learned from it."""
    heard = await stage.ask(_long(model), path="/explain", host="localhost")
    return bool(json.loads(heard.body)["changed"])


async def _becomes_true(is_so: Callable[[], Awaitable[bool]]) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SHARED_SECONDS):
            while not await is_so():
                await asyncio.sleep(0.2)
            return True
    return False


@contextlib.asynccontextmanager
async def _state_server() -> AsyncIterator[str]:
    """The URL of an empty server, which keeps nothing on the disk."""
    with held_port() as port:
        command = [str(STATE_SERVER), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for line in process.stdout:
                    if b"Ready to accept connections" in line:
                        break
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            await process.wait()


async def _refuse(connection: Connection, request: Request) -> None:
    await connection.send(whole(400, TOO_LONG) if len(request.body) >= len(_LONG) else whole(200, COMPLETION))


async def _listed(stage: Stage, wanted: set[str]) -> set[str]:
    for _ in range(50):
        page = json.loads((await stage.get("/decisions?limit=50")).body)
        found = {one["request_id"] for one in page["decisions"] if one["request_id"].startswith("start-")}
        if wanted <= found:
            break
        await asyncio.sleep(0.1)
    return found
