"""`python -m tools.faults [--short] [--only NAME] [--soak MINUTES] [--write FILE]` fails if any is lost."""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Final

from tools.faults import clocks as shifted
from tools.faults.buckets import (
    buckets_of_azure,
    buckets_of_google,
    buckets_that_fail,
    buckets_that_lie,
    late_buckets,
    replicas_of_a_bucket,
)
from tools.faults.client_faults import hostile_bodies, leaving
from tools.faults.clouds import AZURITE
from tools.faults.connections import connections, too_many_files
from tools.faults.in_front import FRONTS, in_front
from tools.faults.keys import keys_apart
from tools.faults.lines import lines, long_lines, odd_chats, pulls
from tools.faults.much_kept import much_kept
from tools.faults.names import certificates, names
from tools.faults.neighbours import hostile_words, idle_streams, large_beside_small, secrets, slow_bodies
from tools.faults.report import page
from tools.faults.soak import WARM_UP_SECONDS, soak, written
from tools.faults.storage import full_disk, isolation, kills, many_at_once, no_disk, removed_folder
from tools.faults.strangers import fronts, keys_of_clients, strangers, wrong_keys
from tools.faults.trials import Extent, Trial, Tried
from tools.faults.upstream_faults import broken_answers, forged_headers, nonsense
from tools.faults.versions import STATE_SERVER, has_former, two_versions, two_versions_at_once
from tools.faults.waiting import floods, waiting_requests

TRIALS: Final[dict[str, Trial]] = {
    trial.__name__: trial
    for trial in (
        broken_answers,
        nonsense,
        forged_headers,
        leaving,
        hostile_bodies,
        hostile_words,
        isolation,
        keys_apart,
        keys_of_clients,
        strangers,
        fronts,
        *([in_front] if FRONTS else []),
        wrong_keys,
        no_disk,
        # only Linux limits a running process, and says what it holds
        *([full_disk, connections, too_many_files] if hasattr(resource, "prlimit") else []),
        removed_folder,
        much_kept,
        *([two_versions] if has_former() else []),
        *([two_versions_at_once] if has_former() and STATE_SERVER else []),
        buckets_that_fail,
        buckets_that_lie,
        buckets_of_google,
        *([buckets_of_azure] if AZURITE else []),
        late_buckets,
        replicas_of_a_bucket,
        names,
        certificates,
        kills,
        many_at_once,
        idle_streams,
        large_beside_small,
        slow_bodies,
        waiting_requests,
        floods,
        *([shifted.clocks, shifted.leaps] if shifted.libfaketime() is not None else []),
        lines,
        long_lines,
        odd_chats,
        pulls,
        secrets,
    )
}


async def tried(names: list[str], extent: Extent) -> list[Tried]:
    """Run every trial in turn, with its progress."""
    found: list[Tried] = []
    for name in names:
        begun = time.perf_counter()
        lines = await TRIALS[name](extent)
        found += lines
        lost = [one for line in lines for one in line.lost]
        times = sum(line.times for line in lines)
        print(f"{name}: {times} tried, {len(lost)} lost, {time.perf_counter() - begun:.0f} s", flush=True)
        for one in lost[:10]:
            print(f"  lost: {one}", flush=True)
    return found


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="as much as the tests have time for")
    parser.add_argument("--only", choices=sorted(TRIALS), action="append", help="this trial; may be given again")
    parser.add_argument("--idle-streams", type=int, metavar="N", help="open at once; 10000 needs `ulimit -n`")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="also mixed traffic for this long")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    options = parser.parse_args()
    if options.soak is not None and options.soak * 60 <= WARM_UP_SECONDS:
        parser.error(f"--soak takes more than the {WARM_UP_SECONDS / 60:g} minutes in which memory fills up")
    extent = Extent.short() if options.short else Extent()
    if options.idle_streams:
        extent = Extent(extent.every, extent.kills, options.idle_streams, extent.large_at_once)
    found, section = asyncio.run(tried(options.only or list(TRIALS), extent)), ""
    if options.soak:
        soaked = asyncio.run(soak(options.soak))
        found += soaked.tried()
        section = written(soaked, options.write) if options.write else ""
    if options.write:
        options.write.write_text(page(found, section))
    return 1 if any(line.lost or not line.times for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())
