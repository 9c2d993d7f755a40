"""A folder of hundreds of thousands of artifacts.

Rule: what is kept costs a start and a request nothing, and the sweep keeps to its limits.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from tools.faults.stage import SOURCE, ended, long_text, restart, staged, with_result
from tools.faults.trials import Extent, Tried

_START_SECONDS: Final = 10.0
"""Under load; 1 s on a machine of its own."""
_QUICK_SECONDS: Final = 5.0
_SWEPT_SECONDS: Final = 300.0
_REMOVED: Final = 10_000
"""Most that one sweep removes."""
_BLOCK_BYTES: Final = 4_096
"""That the sweep counts for a small file; an artifact has two."""


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
        await restart(stage)
        seconds = time.perf_counter() - begun
        starts.note(f"started in {seconds:.1f} s", held=seconds < extent.patience * _START_SECONDS)
        slowest = 0.0
        while b'"artifacts_swept"' not in stage.log() and time.perf_counter() - begun < _SWEPT_SECONDS:
            at = time.perf_counter()
            heard = await stage.ask(with_result(long_text(2)))
            slowest = max(slowest, time.perf_counter() - at)
            if heard.status != 200:
                starts.note(f"a request beside the sweep: {heard.status}", held=False)
            await asyncio.sleep(0.2)
        starts.note(f"a request beside the sweep took {slowest:.1f} s", held=slowest < extent.patience * _QUICK_SECONDS)
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
        output, _ = await listing.communicate()
        seconds = time.perf_counter() - begun
        held = listing.returncode == 0 and own in output.decode() and seconds < _SWEPT_SECONDS
        lists.note(f"{listing.returncode}: {output[:200]!r} in {seconds:.0f} s", held=held)
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
