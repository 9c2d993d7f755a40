"""Turns results into text: the promises and whether they hold, then all figures side by side.

Markdown with aligned columns, so that it reads well on a terminal, too.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from tools.bench.apis import APIS, MESSAGES, RESPONSES, Api
from tools.bench.bodies import ANEW_TURNS, EVENTS_A_SECOND, GROWTH_TURNS, STREAM_EVENTS, STREAMS_AT_ONCE
from tools.bench.contenders import NGINX, OFF, OURS, PEER_NAMES, Contender
from tools.bench.figures import (
    BESIDE_REQUESTS,
    FIGURES,
    LATENCY_CONNECTIONS,
    MOST_OF_CHAT,
    MOST_OVER_OFF,
    WORKER_CONNECTIONS,
    WORKERS,
    Against,
    Figure,
    Target,
    of_api,
)
from tools.bench.results import Results

_NOTHING = "–"
_ABSENT = f"({OURS} did not take part.)"

FELT = ("chat_2kb", "same_200kb", "growing_2mb", "new_2mb", "chunk", "first_token", "start", "idle", "after")
"""Rows that a user could notice; the others are for developers."""


def machine() -> str:
    """This machine, in one line, with the interpreter: a build without profile-guided optimisation takes a fifth more
    CPU than those of distributions."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    model = names[0] if names else platform.machine()
    python = f"Python {platform.python_version()} ({Path(sys.executable).resolve()})"
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}, {python}"


def targets_table(results: Results, shown: Collection[str] = FIGURES) -> str:
    """This project's figures next to nginx's, each with its target; a figure with two targets has two lines."""
    rows = [["", OURS, NGINX, "ratio", "target", "met"]]
    for row, figure in FIGURES.items():
        if row not in shown:
            continue
        floor = _floor(results, row)
        for target in figure.targets:
            held = results.median(row, target.of)
            if held is None:
                continue
            rows.append(
                [
                    figure.title if target.of == OURS else f"{figure.title}, switched off",
                    _spread(results, row, target.of) + _at(results, row, target.of),
                    _value(floor, figure) + _at(results, row, NGINX),
                    f"{held / floor:.1f}×" if floor else _NOTHING,
                    _target(target, figure),
                    _verdict(held, floor, target),
                ]
            )
    return _markdown(rows) if len(rows) > 1 else _ABSENT


def contenders_table(results: Results, names: Sequence[str], shown: Collection[str] = FIGURES) -> str:
    """Figures of every contender, with their multiples of nginx's."""
    rows = [["", *names]]
    for row, figure in FIGURES.items():
        if row not in shown:
            continue
        cells = [_cell(results, row, name) for name in names]
        if any(cell != _NOTHING for cell in cells):
            rows.append([f"{figure.title}, {figure.unit}" if figure.unit else figure.title, *cells])
    return _markdown(rows)


def apis_table(results: Results) -> str:
    """This project's figures in each API. A ratio is the median of those within a round."""
    rows = [["", *(api.name for api in APIS.values()), "target", "met"]]
    for row, figure in FIGURES.items():
        if not all(results.samples.get((of_api(row, api), OURS)) for api in (MESSAGES, RESPONSES)):
            continue
        ratios = [_of_chat(results, row, api) for api in (MESSAGES, RESPONSES)]
        chat = _value(results.median(row, OURS), figure)
        others = [
            f"{_value(results.median(of_api(row, api), OURS), figure)} ({ratio:.2f}×)"
            for api, ratio in zip((MESSAGES, RESPONSES), ratios, strict=True)
        ]
        met = "yes" if max(ratios) <= MOST_OF_CHAT else "**no**"
        rows.append([figure.title, chat, *others, f"≤ {MOST_OF_CHAT:g}×", met])
    return _markdown(rows) if len(rows) > 1 else _ABSENT


def off_table(results: Results) -> str:
    """This project's figures beside those of the same server switched off. A difference is the median of those within a
    round."""
    rows = [["", OURS, OFF, "difference", "target", "met"]]
    for row, most in MOST_OVER_OFF.items():
        if not results.samples.get((row, OURS)) or not results.samples.get((row, OFF)):
            continue
        pairs = zip(results.samples[row, OURS], results.samples[row, OFF], strict=True)
        more, figure = statistics.median(own - off for own, off in pairs), FIGURES[row]
        own, off = (_spread(results, row, name) for name in (OURS, OFF))
        met = "yes" if more <= most else "**no**"
        rows.append([figure.title, own, off, _value(more, figure), f"≤ {most:g} {figure.unit}", met])
    return _markdown(rows) if len(rows) > 1 else f"({OURS} or {OFF} did not take part.)"


def _multiple(figure: Figure, value: float | None, floor: float | None) -> str:
    text = _value(value, figure, unit=False)
    return text if value is None or not floor else f"{text} ({value / floor:.1f}×)"


def _of_chat(results: Results, row: str, api: Api) -> float:
    return _within_rounds(results, (of_api(row, api), OURS), (row, OURS))


def _within_rounds(results: Results, own: tuple[str, str], other: tuple[str, str]) -> float:
    """The median of the ratios of two samples of one round, each by row and contender."""
    pairs = zip(results.samples[own], results.samples[other], strict=True)
    return statistics.median(one / base for one, base in pairs)


def page(
    results: Results, contenders: Sequence[Contender], names: Sequence[str], *, when: str, command: str, rounds: int
) -> tuple[str, str]:
    """docs/benchmarks.md, and docs/benchmarks-details.md."""
    versions = ", ".join(f"{contender.name} {contender.version}" for contender in contenders if contender.name in names)
    missing = ", ".join(name for name in PEER_NAMES if name not in names)
    failures = "".join(
        f"* {name}, {FIGURES[row].title}: `{_short(why)}`\n" for (row, name), why in results.failures.items()
    )
    values = {
        "when": when,
        "machine": machine(),
        "versions": versions,
        "missing": f"* Not in this run: {missing}; `tools/bench/install_peers.sh` installs them.\n" if missing else "",
        "command": command,
        "rounds": rounds,
        "felt": contenders_table(results, names, FELT),
        "felt_targets": targets_table(results, FELT),
        "targets": targets_table(results),
        "off": off_table(results),
        "apis": apis_table(results),
        "load": f"{os.getloadavg()[1]:.1f} over five minutes",
        "floor": _FLOOR,
        "everything": contenders_table(results, names),
        "events": STREAM_EVENTS,
        "streams": STREAMS_AT_ONCE,
        "rate": EVENTS_A_SECOND,
        "all_events": f"{STREAMS_AT_ONCE * EVENTS_A_SECOND:,}".replace(",", " "),
        "turns": GROWTH_TURNS,
        "anew_turns": ANEW_TURNS,
        "small": BESIDE_REQUESTS,
        "connections": LATENCY_CONNECTIONS,
        "workers": WORKERS,
        "worker_connections": WORKER_CONNECTIONS,
        "failures": f"No figure:\n\n{failures}\n" if failures else "",
    }
    return _PAGE.format(**values), _DETAILS.format(**values)


def _floor(results: Results, row: str) -> float | None:
    floor_row = FIGURES[row].floor
    return results.median(floor_row, NGINX) if floor_row else None


def _cell(results: Results, row: str, name: str) -> str:
    if (row, name) in results.failures:
        return "failed"
    floor = None if name == NGINX else _floor(results, row)
    return _multiple(FIGURES[row], results.median(row, name), floor)


def _value(value: float | None, figure: Figure, *, unit: bool = True) -> str:
    if value is None:
        return _NOTHING
    return f"{value:.{figure.digits}f} {figure.unit if unit else ''}".strip()


def _spread(results: Results, row: str, name: str) -> str:
    figure = FIGURES[row]
    text = _value(results.median(row, name), figure)
    least_and_largest = results.spread(row, name)
    if least_and_largest is None or least_and_largest[0] == least_and_largest[1]:
        return text
    low, high = (_value(end, figure, unit=False) for end in least_and_largest)
    return f"{text} ({low} to {high})"


def _at(results: Results, row: str, name: str) -> str:
    medians = [(results.median(load, name), FIGURES[load]) for load in FIGURES[row].at]
    reported = [_value(median, load) for median, load in medians if median is not None]
    return f" at {', '.join(reported)}" if reported else ""


def _target(target: Target, figure: Figure) -> str:
    if target.against is Against.NGINX:
        return f"≤ {target.limit:g}×"
    return f"≤ {target.limit:g} {figure.unit}".strip()


def _verdict(held: float, floor: float | None, target: Target) -> str:
    if target.against is Against.NGINX:
        if floor is None:
            return "? (no nginx)"
        held /= floor
    return "yes" if held <= target.limit else "**no**"


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= 160 else line[:159] + "…"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cells[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)),
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(line(row) for row in (rows[0], rule, *rows[1:]))


_FLOOR = """\
What limits targets that are not always met (figures of November 2026, each taken by itself, not in this run):

* **2 KB.** uvicorn, with a route that reads the request and answers it, takes 1.9 times as long as nginx. A request
  upstream and back takes 0.09 ms with aiohttp's connections and parser, 0.02 of it in the sockets. The rest is Python
  that reads, counts, plans, judges, measures and logs: 0.13 ms if nothing else runs in between, two to five times as
  much if the caches are cold. It is spread over 460 calls and 11 000 bytecodes, switched off 260 and 6 500: planning is
  a quarter, libraries a fifth, and no function of ours more than 2.3 %
  ([where they are](decisions/0019-what-a-small-request-may-cost.md)).
* **200 KB never seen before.** nginx does not look at the body. Forwarding it in Python takes 3.7 times as long as
  nginx; reading its messages and estimating their tokens takes 5 ms, in a thread. This happens once in a conversation:
  after that, only new messages are read and counted.
* **200 KB sent again, 2 MB and one new exchange.** The cost of 2 KB, and of copying a body three times on its way
  through Python. Of 2 MB, 0.2 to 0.5 ms compare it with the turn before, whose bytes no cache holds any more; 0.3 go on
  with a plan of a thousand messages, and 0.15 read the new ones.
* **First token.** After a pause, a request mostly waits for memory: 0.24 ms to plan it, 0.04 from there to its send,
  0.12 for the head of the response and the first event, and 0.5 in the server and the client library, as much as with
  the proxy switched off. Upstream, client and proxy share two cores, and other work on them decides this figure: in
  pairs, 0.32 to 0.35 ms more than switched off.
* **Into 128 000 tokens.** A quarter of a second is tiktoken's count of 2 MB; most of the rest is the notes about what
  nine cuts leave out, and the forwarding.
* **Start.** Nearly all of it is imports. In a run with other contenders, they come from caches that those have emptied;
  by itself, a new process answers `/healthz` after 0.33 to 0.53 s.
* **100 turns to 2 MB.** A third of it is forwarding in Python; the rest reads, counts and plans one exchange a turn.
* **A last message that is reworded.** Its text is new in each turn, and near the window each text is counted exactly.
* **Memory.** What the idle process has, 45 MB of a vocabulary, 30 of remembered conversations; the rest Python keeps
  free between what it remembers.
* **Four workers.** Each reads every message once: those of several turns together, which are so many bytes that a
  thread does it.
* **The exponent**, if it is over its target: the cost of a turn beyond nginx is mostly copying its body, and bodies
  grow; a proxy that only forwards has 1.3 to 1.5 here (`context-proxy-off`). Planning a turn costs the same at 20 KB
  and at 2 MB, except for one comparison of bytes, and for what is copied of the plan before.

"""

_PAGE = """\
# What it costs

Written by `{command}` on {when}.

* Machine: {machine}. The cores are shared with the upstream and the client, so trust the ratios more than the figures.
* Load average when the last figure was taken: {load}. Upstream, client and proxy cause up to 2 of it; the rest is
  other work on the same cores. It shows most in wall times (first token, latency, start), and in CPU by a tenth or two.
* Versions: {versions}.
{missing}
## All proxies compared

In brackets: how many times nginx. `nginx-buffered` is nginx with its defaults, which reads a whole request before it
passes it on. `context-proxy-off` is this project with `enabled: false`, which only forwards.

{felt}

{failures}## Targets

What a user could notice. [Details](benchmarks-details.md) has all figures, what limits them, and how they are measured.

{felt_targets}
"""

_DETAILS = """\
# Benchmarks in detail

For developers: all figures of the run that [benchmarks](benchmarks.md) summarises, written with it.

## Targets

{targets}

{floor}## Beside forwarding by the same server

The same server with `enabled: false` takes the same path and only forwards, so the difference is what planning, judging
and recording cost. It is the median of the rounds, each with its own difference.

{off}

## The other APIs

The same words in the Messages API and in the Responses API, as their clients write them; in brackets: how many times
chat completions, the median of the rounds.

{apis}

## All figures of all proxies

In brackets: how many times nginx.

{everything}

## How it is measured

* **CPU** is user plus system time of the proxy and all its descendants, from the kernel's clock of each process; per
  request, or per event of a stream. Medians of {rounds} rounds; in each round every contender takes its turn at every
  figure, and a first round is discarded. Brackets in the first table: the least and the largest round.
* **nginx** is the floor: one worker, kept-alive connections, no log, request and response both passed on as they arrive
  (`proxy_request_buffering off; proxy_buffering off; client_body_buffer_size 64k`; `tools/bench/contenders.py`).
  It edits nothing and reads nothing. With its defaults, in the next column, a request over 16 KB goes through a file.
* **Every response is checked as a whole.** nginx and this project are held to the byte: the response is what the
  upstream wrote, and carries a checksum of the request that reached the upstream. Others may rewrite the JSON; their
  text has to be complete.
* **Bodies** are agents' conversations made from a seed (`bodies.py`): tool calls with sources, logs and search
  results, about 4 KB each. "Never seen before": no two begin alike. "One new exchange": four conversations of 2 MB take
  turns, each an exchange longer than before. 2 KB and 200 KB name a model of 128 000 tokens, 2 MB one of 1 047 576, so
  that everything fits and passes untouched; where it says "into 128 000 tokens", the conversation has to be cut.
* **Streams** have {events} events of about 130 bytes, each written on its own, a good millisecond apart.
* **{streams} streams** run at the same time, each with {rate} events a second, evenly spread: the stand-in holds
  them after their first event until all are there. The figure is the CPU from the first event of the last one to the
  end of the first one, over the events that arrived in between, so that no request is in it. One thread takes their
  bytes, and checks each stream when all have ended. Two things stand with it: how many arrived in a second, which is
  {all_events} if the machine holds that with client and stand-in; and how many the client read at once, because events
  that are lumped together cost less. The median of the rounds.
* **First token**: the median wall time to the first byte of the body, less that without a proxy in the same round, or
  less that of this project switched off in the same round.
* **Beside 2 MB**: up to {small} small requests, taken by {connections} connections, each with one at a time, while one
  more connection sends conversations of 2 MB, with never a pause; no text and no line of one is in another. A sample
  ends when these have run out, so that one is always under way. The figure comes with how many were answered in a
  second: a proxy could also let the large ones wait. The median of the rounds.
* **Start**: from the spawn to the first checked answer, bytecode compiled by an earlier start. **Idle
  memory**: resident, of the whole family, six seconds later. **Memory after all this**: after all rows above it in the
  last table; rows below it were sent later.
* **{turns} turns**: one conversation from its first exchange to 2 MB, all of it sent in each turn (about 100 MB). The
  figure is the CPU of all turns in the run whose total is the median, less the same of nginx (or of this project
  switched off). The exponent is the k of *total up to turn n ~ n^k*, by least squares on logarithms over the second
  half of the turns: 1 is the same work in each turn, 2 is everything anew in each.
* **Written anew**: the CPU of all {anew_turns} turns of a conversation that has to be cut, and that of one like it with
  something in it that changes in each turn; of other words and under another key, so that nothing is known of it. Each
  run has its own ratio; the figures are medians of {rounds} runs.
* **{workers} workers**: the conversation of the {turns} turns comes over {worker_connections} kept-alive connections,
  one request at a time, each on a connection chosen by the seed. The figure is the CPU of all processes of
  `--workers {workers}`, as a multiple of that of one worker with the same client, both started for this alone; nothing
  is subtracted. Before the first turn, each connection is opened with a small question; a first run is discarded; each
  run has its own ratio, and the figure is the median of {rounds}.
"""
