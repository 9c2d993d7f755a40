"""Thousands of connections: idle ones, streams, and more than the process may open files for.

Rule: what is over a limit is refused or ends the longest idle one; a normal request is answered beside all of them, and
what is released leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.faults.neighbours import ask_quickly, open_streams
from tools.faults.stage import Stage, chat, staged
from tools.faults.trials import Extent, Tried

_QUICK_SECONDS: Final = 5.0
_IDLE_MEGABYTES: Final = 250
"""For 10,000 idle connections: 25 KB each."""
_FEW_FILES: Final = 300
_BUSY_SHARE: Final = 0.5
"""Largest share of one core that a process may take while it can accept nothing."""
_FILES: Final = 40_000
"""For this process and the proxy, each of which has one end of each connection."""


@contextlib.contextmanager
def _many_files() -> Iterator[int]:
    """Raise the limit of open files to the system's, for processes started meanwhile, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for hard in (_FILES, before[1]):
        with contextlib.suppress(ValueError, OSError):  # only root raises it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, max(hard, before[1])))
            break
    try:
        yield resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


async def connections(extent: Extent) -> list[Tried]:
    """Idle connections and streams at once, then all released."""
    idle, streams = extent.idle_connections, extent.streams
    beside = Tried(
        "A request is answered beside thousands of connections", f"{idle:,} idle ones and {streams:,} streams"
    )
    whole = Tried("No stream is lost beside them", f"{streams:,} streams")
    ends = Tried(
        "Released connections leave no file behind, and a bounded memory", f"{idle:,} idle, {streams:,} streams"
    )
    with _many_files():
        async with staged(server={"max_connections": idle + streams + 100, "header_timeout_seconds": 600}) as stage:
            await stage.ask(chat())
            files, memory = _files(stage), _megabytes(stage)
            held = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(idle)]
            async with open_streams(stage, streams, whole):
                await ask_quickly(stage, beside, extent.patience)
                grown = _megabytes(stage) - memory
            for _reader, writer in held:
                writer.close()
            for _try in range(100):
                if (left := _files(stage) - files) <= 3:
                    break
                await asyncio.sleep(0.1)
            ends.note(f"{left} files over those before", held=left <= 3)
            most = _IDLE_MEGABYTES * (idle + 4 * streams) / 10_000 + 30
            ends.note(f"{grown} MB for all of them", held=grown < most)
            ends.note("a request afterwards", held=(await stage.ask(chat())).status == 200)
    return [beside, whole, ends]


async def too_many_files(extent: Extent) -> list[Tried]:
    """More connections than the process may open files for."""
    tried = Tried(
        "Beyond the limit of open files nothing spins, and it passes", "connections over `ulimit -n`, then released"
    )
    async with staged() as stage:
        await stage.ask(chat())
        resource.prlimit(stage.process.pid, resource.RLIMIT_NOFILE, (_FEW_FILES, _FEW_FILES))
        held = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(2 * _FEW_FILES)]
        before, begun = _cpu_seconds(stage), time.perf_counter()
        await asyncio.sleep(3)
        share = (_cpu_seconds(stage) - before) / (time.perf_counter() - begun)
        tried.note(f"{share:.0%} of a core while nothing can be accepted", held=share < _BUSY_SHARE)
        for _reader, writer in held:
            writer.close()
        begun, status = time.perf_counter(), 0
        while status != 200 and time.perf_counter() - begun < 30:
            with contextlib.suppress(OSError):
                status = (await stage.ask(chat())).status
        seconds = time.perf_counter() - begun
        tried.note(
            f"{status} {seconds:.1f} s after the release",
            held=status == 200 and seconds < extent.patience * _QUICK_SECONDS,
        )
        lines = stage.log().count(b"\n")
        tried.note(f"{lines} lines in the log", held=lines < 1_000)
    return [tried]


def _files(stage: Stage) -> int:
    return len(os.listdir(f"/proc/{stage.process.pid}/fd"))


def _megabytes(stage: Stage) -> int:
    status = Path(f"/proc/{stage.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def _cpu_seconds(stage: Stage) -> float:
    fields = Path(f"/proc/{stage.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
