"""The resources used so far by a process and all its descendants: CPU seconds and resident memory. Linux only.

CPU is user plus system time of every thread, past and present. It equals utime + stime in /proc, but is read from the
kernel's clock of the process, which counts nanoseconds where /proc counts hundredths of a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> Iterator[int]:
    """`pid` and its living descendants."""
    yield pid
    try:
        children = [
            child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):  # it, or one of its threads, ended meanwhile
        return
    for child in children:
        yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """CPU time of the family, including descendants that ended and were waited for."""
    return sum(_own_cpu_seconds(member) + _reaped_cpu_seconds(member) for member in family(pid))


def resident_bytes(pid: int) -> int:
    """Resident memory of the family; pages that its members share count once for each."""
    return sum(_resident_bytes(member) for member in family(pid))


def _own_cpu_seconds(pid: int) -> float:
    # Linux makes the clock of another process from its id like this (CPUCLOCK_SCHED; see clock_getcpuclockid(3)).
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # ended
        return 0.0


def _reaped_cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND  # cutime, cstime: fields 16 and 17 of proc(5)


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0
