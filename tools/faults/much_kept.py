"""A folder of hundreds of thousands of artifacts, and a data folder that two versions of the proxy use in turn.

Rule: what is kept costs a start and a request nothing, the sweep keeps to its limits, and neither version breaks what
the other has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

from tools.faults.stage import (
    COMPLETION,
    SOURCE,
    TOO_LONG,
    Request,
    Stage,
    accept,
    chat,
    ended,
    long_text,
    staged,
    started,
    whole,
    with_result,
)
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried

_START_SECONDS: Final = 10.0
"""Under load; 1 s on a machine of its own."""
_QUICK_SECONDS: Final = 5.0
_SWEPT_SECONDS: Final = 300.0
_REMOVED: Final = 10_000
"""Most that one sweep removes."""
_BLOCK_BYTES: Final = 4_096
"""That the sweep counts for a small file; an artifact has two."""
FORMER: Final = "062636ac"
"""The commit before the lighter rooms; there is no release to take in its place."""


async def much_kept(extent: Extent) -> list[Tried]:
    """Start, first sweep, quota and listing over a folder that holds many artifacts."""
    count = extent.artifacts
    starts = Tried("However much is kept, the proxy starts and answers at once", f"{count:,} artifacts in the folder")
    sweeps = Tried(
        "A sweep keeps to its quota and removes the least recently used", f"{count:,} artifacts in the folder"
    )
    lists = Tried("`artifacts ls` lists them", f"{count:,} artifacts in the folder")
    quota = (count - _REMOVED // 2 if count > _REMOVED else count // 2) * 2 * _BLOCK_BYTES
    async with staged(artifacts={"max_bytes": quota, "retention_days": 7}) as stage:
        await stage.ask(with_result(long_text(1)))
        (own,) = (one for one in stage.kept() if one.startswith("tool_") and not one.endswith(".json"))
        await ended(stage)
        _fill(stage.folder / "data" / "tool-output", count)
        begun = time.perf_counter()
        await _restart(stage)
        seconds = time.perf_counter() - begun
        starts.note(f"started in {seconds:.1f} s", held=seconds < _START_SECONDS)
        slowest = 0.0
        while b'"artifacts_swept"' not in stage.log() and time.perf_counter() - begun < _SWEPT_SECONDS:
            at = time.perf_counter()
            heard = await stage.ask(with_result(long_text(2)))
            slowest = max(slowest, time.perf_counter() - at)
            if heard.status != 200:
                starts.note(f"a request beside the sweep: {heard.status}", held=False)
            await asyncio.sleep(0.2)
        starts.note(f"a request beside the sweep took {slowest:.1f} s", held=slowest < _QUICK_SECONDS)
        swept = next(json.loads(line) for line in stage.log().splitlines() if b'"artifacts_swept"' in line)
        held = 0 < swept["removed"] <= _REMOVED and swept["kept_bytes"] <= quota
        sweeps.note(f"{swept['removed']:,} removed, {swept['kept']:,} kept, {swept['kept_bytes']:,} bytes", held=held)
        sweeps.note(f"{own} was used and stays", held=own in os.listdir(stage.folder / "data" / "tool-output"))
        begun = time.perf_counter()
        config = str(stage.folder / "config.json")
        listing = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "artifacts", "ls", "--config", config, "--max", "10"),
            cwd=SOURCE,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await listing.communicate()
        seconds = time.perf_counter() - begun
        held = listing.returncode == 0 and own in said.decode() and seconds < _SWEPT_SECONDS
        lists.note(f"{listing.returncode}: {said[:200]!r} in {seconds:.0f} s", held=held)
        print(f"  {count:,} artifacts: {swept}, ls {seconds:.1f} s, slowest request {slowest:.1f} s", flush=True)
    return [starts, sweeps, lists]


def _fill(folder: Path, count: int) -> None:
    """Artifacts that were last used a day ago, the first of them longest ago."""
    used = time.time() - 24 * 3_600
    described = json.dumps(
        {"tool": "bash", "created": "2026-01-01T00:00:00+00:00", "size": 1, "media_type": "text/plain"}
    )
    for number in range(count):
        name = f"tool_bash_{number:016x}.txt"
        for path, content in (
            (folder / name, "x"),
            (folder / ".meta" / f"{name}.5eed.json", described),
        ):
            path.write_text(content)
            os.utime(path, (used + number / 1_000, used + number / 1_000))


def former(folder: Path) -> Path | None:
    """The former version in this folder; None without its commit."""
    found = subprocess.run(["git", "archive", FORMER, "proxy"], cwd=SOURCE, capture_output=True, check=False)
    if found.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
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


_LONG: Final = chat(*({"role": role, "content": "word " * 4_000} for _ in range(15) for role in ("assistant", "user")))
"""Over the window that TOO_LONG states, and under the one that is guessed."""


async def two_versions(_: Extent) -> list[Tried]:
    """The former version, this one, the former again and this one again, over one data folder."""
    serves = Tried("Two versions share a data folder, forwards and back", "requests, and what each has cut")
    lists = Tried("Each lists the requests that it served", "`/decisions` after each change of the version")
    learns = Tried("Each believes what the other has learned", "a limit, after each change of the version")
    says = Tried("Neither finds anything broken", "warnings about files in the log")
    async with staged() as stage:
        source = former(stage.folder / "former")
        assert source is not None, "has_former"
        names: list[str] = []
        for number, root in enumerate((source, SOURCE, source, SOURCE)):
            which = f"{'this' if root == SOURCE else 'the former'} version, start {number + 1}"
            await _restart(stage, root)
            if number == 0:
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
            own = {f"start-{one}" for one in range(number % 2, number + 1, 2)}
            listed = await _listed(stage, own)
            lists.note(f"{which}: {listed}", held=own <= listed)
            broken = [line for line in stage.log().splitlines() if b"_not_read" in line or b"_not_kept" in line]
            says.note(f"{which}: {broken[:2]}", held=not broken)
    return [serves, lists, learns, says]


async def _refuse(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(400, TOO_LONG) if len(request.body) >= len(_LONG) else whole(200, COMPLETION))


async def _listed(stage: Stage, wanted: set[str]) -> set[str]:
    for _ in range(50):
        page = json.loads((await stage.get("/decisions?limit=50")).body)
        found = {one["request_id"] for one in page["decisions"] if one["request_id"].startswith("start-")}
        if wanted <= found:
            break
        await asyncio.sleep(0.1)
    return found


async def _restart(stage: Stage, source: Path = SOURCE) -> None:
    await ended(stage)
    settings = json.loads((stage.folder / "config.json").read_text())
    address = settings.pop("upstream")["base_url"]
    again = await started(stage.folder, stage.upstream, address, source=source, **settings)
    stage.port, stage.process = again.port, again.process
