"""`python -m tools.bench`: start everything, measure, print the tables, and write the page on request."""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tools.bench.contenders import DIRECT, NGINX, OURS, Contender, installed, with_workers
from tools.bench.figures import WORKERS
from tools.bench.measure import Effort, Session, Wrong, tell
from tools.bench.report import apis_table, contenders_table, off_table, page, targets_table
from tools.bench.results import Results
from tools.bench.running import DidNotStart, Running, load_client, proxy, upstream

_QUICK = Effort(rounds=1, sample_cpu_seconds=0.1, first_tokens=40, growths=1, starts=1)
_THOROUGH = Effort(rounds=7, sample_cpu_seconds=0.4, first_tokens=100, growths=3, starts=3)

_NO_NGINX = "nginx is not installed, so there is no floor and no ratio. On Debian: apt-get install nginx-light"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 measured, 1 a wrong response or a contender that does not start, 2 wrong flags."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children end with us
    contenders = installed()
    unknown = set(options.contenders or ()) - {contender.name for contender in contenders}
    if unknown:
        tell(f"not installed: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in contenders)}")
        return 2
    contenders = [c for c in contenders if _wanted(c, options.contenders, quick=options.quick)]
    if not any(contender.name == NGINX for contender in contenders):
        tell(_NO_NGINX)
    effort = _QUICK if options.quick else _THOROUGH
    if options.rounds:
        effort = Effort(options.rounds, effort.sample_cpu_seconds, effort.first_tokens, effort.growths, effort.starts)
    try:
        results = _measure(contenders, effort)
    except (DidNotStart, Wrong) as wrong:
        tell(f"stopped: {wrong}")
        return 1
    except KeyboardInterrupt:
        return 130
    _publish(results, contenders, effort, options.write)
    return 0


def _wanted(contender: Contender, names: Sequence[str] | None, *, quick: bool) -> bool:
    if names is not None:
        return contender.name in names
    return not (quick and contender.peer)


def _measure(contenders: Sequence[Contender], effort: Effort) -> Results:
    with ExitStack() as stack:
        direct = stack.enter_context(upstream())
        starts = _starts(contenders, direct, effort.starts)
        running = [
            stack.enter_context(proxy(contender, direct.port)) for contender in contenders if contender.name in starts
        ]
        session = Session(stack.enter_context(load_client()), running, direct, effort)
        for name, seconds in starts.items():
            for sample in seconds:
                session.results.add("start", name, sample)
        session.run()
        if any(proxy.contender.name == OURS for proxy in running):
            one, several = (stack.enter_context(proxy(with_workers(n), direct.port)) for n in (1, WORKERS))
            session.workers(one, several)
        return session.results


def _starts(contenders: Sequence[Contender], direct: Running, times: int) -> dict[str, list[float]]:
    """Seconds of each start by contender: alone, and in turns, so that all share a slow minute. Peers that do not start
    are missing."""
    starts: dict[str, list[float]] = {}
    for time in range(times + 1):  # the first may compile; it is not counted
        for contender in contenders:
            if time and contender.name not in starts:
                continue
            tell(f"starting {contender.name} {contender.version}")
            try:
                with proxy(contender, direct.port) as started:
                    taken = starts.setdefault(contender.name, [])
                    if time:
                        taken.append(started.start_seconds)
            except DidNotStart as failure:
                if not contender.peer:
                    raise
                tell(f"continuing without {contender.name}: {failure}")
                starts.pop(contender.name, None)
    return starts


def _publish(results: Results, contenders: Sequence[Contender], effort: Effort, target: Path | None) -> None:
    seen = {name for _, name in results.samples}
    names = [name for name in (*(contender.name for contender in contenders), DIRECT) if name in seen]
    ours = (targets_table(results), off_table(results), apis_table(results))
    print(*ours, contenders_table(results, names), sep="\n\n")
    for (row, name), why in results.failures.items():
        print(f"{name}, {row}: {why}")
    if target is not None:
        when = datetime.datetime.now(datetime.UTC).date().isoformat()
        command = "python -m tools.bench " + " ".join(sys.argv[1:])
        texts = page(results, contenders, names, when=when, command=command, rounds=effort.rounds)
        for file, text in zip((target, target.with_stem(f"{target.stem}-details")), texts, strict=True):
            file.write_text(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Proxy costs, compared with nginx.")
    parser.add_argument(
        "--quick", action="store_true", help="a minute and a half, without the peers; for a first look only"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds to take medians of (default 7; quick 1)")
    parser.add_argument(
        "--contenders", type=lambda names: names.split(","), metavar="A,B", help="only these (default: all installed)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the pages there, say docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
