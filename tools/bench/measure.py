"""Measures the figures: rounds in which every contender has its turn at every figure, so that all share a slow minute.

Each method says what one of its samples is. All contenders of a round get the same bodies, and none gets a body that it
has seen in another round.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tools.bench import growth
from tools.bench.accounting import resident_bytes
from tools.bench.bodies import ANEW_TURNS, GROWTH_TURNS, STREAMS_AT_ONCE, WRITTEN_ANEW
from tools.bench.contenders import DIRECT, NGINX, OFF, OURS
from tools.bench.figures import (
    BESIDE_REQUESTS,
    CPU_FIGURES,
    LATENCY_CONNECTIONS,
    WORKER_CONNECTIONS,
    CpuFigure,
)
from tools.bench.jobs import Manner, Seen
from tools.bench.results import Results
from tools.bench.running import LoadClient, Running

_MOST_BESIDE = 100
"""Large requests for one sample of small ones beside them: nginx needs about 75 until the small ones are done."""

_LEAST_OF_A_PERCENTILE = 100
"""Fewer samples have no 99th percentile."""

_WORKERS_SETTLE_SECONDS = 0.3
"""Workers may tell each other what they know some time after a response."""

_WARMING_TURNS = 40
"""Until all workers have loaded what they need."""

_ANEW = {"anew": "of_an_agent", **{f"anew_{way}": f"of_an_agent_{way}" for way in WRITTEN_ANEW}}
"""Workload by row; the first is the conversation of which nothing is written anew."""


class Wrong(Exception):
    """A contender that must not fail gave a wrong response: the bench ends."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    rounds: int
    sample_cpu_seconds: float
    """Approximate CPU for one sample of a contender: a slow one sends fewer requests, but at least `least_requests`."""
    first_tokens: int
    """Streams begun for one sample of the first token's delay."""
    growths: int
    """How often a growing conversation is sent from its start."""
    starts: int
    """How often each contender is started, after a first start that is not counted."""
    least_requests: int = 4


class Session:
    """The running contenders, the client, and the results so far."""

    def __init__(self, client: LoadClient, proxies: Sequence[Running], direct: Running, effort: Effort) -> None:
        self.results = Results()
        self._client = client
        self._proxies = proxies
        self._direct = direct
        self._effort = effort
        self._affordable: dict[tuple[str, str], int] = {}

    def run(self) -> Results:
        """Every figure; raises Wrong."""
        time.sleep(6.0)  # late start-up work, and what it frees, has to be in the idle memory
        self._memory("idle")
        # The first round warms up and shows how many requests a sample may have; its figures are discarded.
        for round_number in range(self._effort.rounds + 1):
            tell(f"round {round_number} of {self._effort.rounds}" if round_number else "warming up")
            for position, figure in enumerate(CPU_FIGURES):
                for proxy in self._proxies:
                    self._cpu(figure, proxy, seed=round_number * 100 + position, keep=round_number > 0)
            if round_number:
                self.first_token(seed=round_number * 100 + 50)
                self._latency(seed=round_number * 100 + 51)
        self._growth()
        self.written_anew()
        self._memory("after")
        for round_number in range(self._effort.rounds):
            tell(f"beside large ones, and many streams: round {round_number + 1} of {self._effort.rounds}")
            self.beside_large(seed=9_000 + round_number)
            self.streams(seed=9_500 + round_number)
        return self.results

    def _memory(self, row: str) -> None:
        for proxy in self._proxies:
            self.results.add(row, proxy.contender.name, resident_bytes(proxy.pid) / 1e6)

    def _cpu(self, figure: CpuFigure, proxy: Running, *, seed: int, keep: bool) -> None:
        """A sample: the CPU that the proxy's processes used in a series of requests, over their number."""
        name = proxy.contender.name
        if figure.only_ours and proxy.contender.name != OURS:
            return
        requests = self._affordable.get((figure.row, name), self._effort.least_requests)
        requests = min(requests, figure.most_requests)
        seen = self._send(proxy, figure.row, figure.workload, seed, requests=requests, warm=figure.warm)
        if seen is None:
            return
        seconds = (seen.cpu_seconds[-1] - seen.cpu_seconds[0]) / requests
        affordable = int(self._effort.sample_cpu_seconds / max(seconds, 1e-6))
        self._affordable[figure.row, name] = max(self._effort.least_requests, affordable)
        if keep:
            self.results.add(figure.row, name, seconds / figure.per_request * figure.scale)
            if figure.per_request > 1:
                self.results.add("events_a_read", name, figure.per_request * requests / seen.reads)

    def first_token(self, seed: int) -> None:
        """A sample: the median time to the first event, minus that without a proxy, or that of ourselves switched off,
        in the same round."""
        waits: dict[str, float] = {}
        for proxy in (self._direct, *self._proxies):
            seen = self._send(
                proxy, "first_token", "first_token", seed, requests=self._effort.first_tokens, warm=3, watched_pid=0
            )
            if seen is None:
                continue
            waits[proxy.contender.name] = statistics.median(seen.first_byte_ms)
        direct = waits.pop(DIRECT)
        for name, waited in waits.items():
            self.results.add("first_token", name, waited - direct)
        if OURS in waits and OFF in waits:
            self.results.add("first_token_off", OURS, waits[OURS] - waits[OFF])

    def _latency(self, seed: int) -> None:
        """A sample: the median and the 99th percentile of the time of a request, a few at a time."""
        for proxy in (self._direct, *self._proxies):
            name = proxy.contender.name
            requests = max(50, min(1_000, self._affordable.get(("chat_2kb", name), 1_000)))
            seen = self._send(
                proxy,
                "p50",
                "chat_2kb",
                seed,
                requests=requests,
                warm=4,
                manner=Manner.AT_ONCE,
                connections=LATENCY_CONNECTIONS,
                watched_pid=0,
            )
            if seen is not None:
                percentiles = statistics.quantiles(seen.answer_ms, n=100)
                self.results.add("p50", name, percentiles[49])
                self.results.add("p99", name, percentiles[98])

    def beside_large(self, seed: int) -> None:
        """A sample: the 99th percentile of the time of small requests, a few at a time, while one more connection sends
        large ones that were never seen before, one after another."""
        for proxy in (self._direct, *self._proxies):
            if proxy.contender.peer:  # minutes, with a quarter of a second for each large one
                continue
            seen = self._send(
                proxy,
                "p99_beside",
                "chat_2kb",
                seed,
                requests=BESIDE_REQUESTS,
                warm=4,
                manner=Manner.AT_ONCE,
                connections=LATENCY_CONNECTIONS,
                beside="marked_2mb",
                beside_requests=_MOST_BESIDE,
                watched_pid=0,
            )
            if seen is None:
                continue
            name = proxy.contender.name
            if len(seen.answer_ms) < _LEAST_OF_A_PERCENTILE:
                why = f"only {len(seen.answer_ms)} were answered before the large ones had run out"
                self.results.failures["p99_beside", name] = why
            else:
                self.results.add("p99_beside", name, statistics.quantiles(seen.answer_ms, n=100)[98])
                self.results.add("beside_a_second", name, seen.answered_beside / seen.seconds)

    def _growth(self) -> None:
        """One sample in all: the turns of the median run, added up, minus the same for nginx or ourselves off."""
        fits = self._turns("planning", "from_start", seed=20_000, proxies=self._proxies)
        cutting = [proxy for proxy in self._proxies if proxy.contender.cuts]
        cut = self._turns("planning_cut", "from_start_cut", seed=30_000, proxies=cutting)
        for suffix, floor, turns in (
            ("", NGINX, fits),
            ("_own", OFF, {name: own for name, own in fits.items() if name == OURS}),
            ("_cut", NGINX, cut),  # nginx forwards both alike: its figure for one holds for the other
        ):
            if floor not in fits:
                continue
            for name, own in turns.items():
                if name == floor:
                    continue
                totals = growth.beyond(own, fits[floor])
                self.results.add(f"planning{suffix}", name, totals[-1])
                slope = growth.exponent(totals)
                if slope is not None:
                    self.results.add(f"exponent{suffix}", name, slope)

    def written_anew(self) -> None:
        """A sample: the CPU of a whole run, and that of runs like it that are written anew, as a multiple of it.

        Each is of its own words and has its own key, because a proxy may remember texts that it has counted and
        conversations under their key. Another one comes first each time.
        """
        rows = list(_ANEW)
        for again in range(self._effort.rounds):
            tell(f"{ANEW_TURNS} turns, written anew, run {again + 1} of {self._effort.rounds}")
            first = again % len(rows)
            for proxy in (proxy for proxy in self._proxies if proxy.contender.cuts):
                seconds: dict[str, float] = {}
                for row in (*rows[first:], *rows[:first]):
                    headers = {**proxy.headers, "Authorization": f"Bearer sk-bench-{row}"}
                    seed = 40_000 + again * len(rows) + rows.index(row)
                    seen = self._send(proxy, row, _ANEW[row], seed, requests=ANEW_TURNS, headers=headers)
                    if seen is not None:
                        seconds[row] = seen.cpu_seconds[-1] - seen.cpu_seconds[0]
                plain = seconds.pop("anew", None)
                if plain is None:
                    continue
                self.results.add("anew", proxy.contender.name, plain)
                for row, own in seconds.items():
                    self.results.add(row, proxy.contender.name, own / plain)

    def streams(self, seed: int) -> None:
        """A sample: the CPU that the proxy used from the moment when many streams had begun until the first one ended,
        over the events that arrived in between."""
        for proxy in self._proxies:
            name = proxy.contender.name
            if name not in (NGINX, OURS, OFF):
                continue
            seen = self._send(proxy, "streams", "streams", seed, requests=STREAMS_AT_ONCE, manner=Manner.STREAMS)
            if seen is None:
                continue
            if not seen.events:
                self.results.failures["streams", name] = "a stream had ended before the last one began"
                continue
            seconds = seen.cpu_seconds[-1] - seen.cpu_seconds[0]
            self.results.add("streams", name, seconds / seen.events * 1e6)
            self.results.add("streams_a_second", name, seen.events / seen.seconds)
            self.results.add("streams_a_read", name, seen.events / seen.reads)

    def workers(self, one: Running, several: Running) -> None:
        """A sample: the CPU of one growing conversation over several workers, as a multiple of the same over one.

        Forwarding costs the same in both, so nothing is subtracted.
        """
        for again in range(self._effort.rounds + 1):
            tell(f"{GROWTH_TURNS} turns over workers, run {again} of {self._effort.rounds}")
            seconds = []
            for proxy in (one, several):
                seen = self._send(
                    proxy,
                    "workers",
                    "from_start",
                    50_000 + again,
                    requests=GROWTH_TURNS if again else _WARMING_TURNS,
                    manner=Manner.SCATTERED,
                    connections=WORKER_CONNECTIONS,
                    settle_seconds=_WORKERS_SETTLE_SECONDS,
                )
                if seen is not None:
                    seconds.append(seen.cpu_seconds[-1] - seen.cpu_seconds[0])
            if again:  # in the first run, each worker loads what it needs for its first request
                self.results.add("workers", OURS, seconds[1] / seconds[0])

    def _turns(self, row: str, workload: str, *, seed: int, proxies: Sequence[Running]) -> dict[str, list[float]]:
        """CPU seconds of each turn, by contender."""
        runs: dict[str, list[list[float]]] = {}
        for again in range(self._effort.growths):
            tell(f"{GROWTH_TURNS} turns, {workload}, run {again + 1} of {self._effort.growths}")
            for proxy in proxies:
                seen = self._send(proxy, row, workload, seed + again, requests=GROWTH_TURNS, cpu_each_request=True)
                if seen is not None:
                    runs.setdefault(proxy.contender.name, []).append(growth.of_each_turn(seen.cpu_seconds))
        return {name: growth.typical(taken) for name, taken in runs.items()}

    def _send(self, proxy: Running, row: str, workload: str, seed: int, **how: Any) -> Seen | None:
        """Run a job; None if a peer's responses were wrong, now or before."""
        contender = proxy.contender
        if (row, contender.name) in self.results.failures:
            return None
        job = msgspec.structs.replace(proxy.job(workload, seed), **how)
        seen = self._client.send(job)
        if seen.wrong is None:
            return seen
        if not contender.peer:
            raise Wrong(f"{contender.name}: {seen.wrong}")
        tell(f"{contender.name}: {seen.wrong}")
        self.results.failures[row, contender.name] = seen.wrong
        return None


def tell(what: str) -> None:
    """Report progress where it does not mix with the tables."""
    print(what, file=sys.stderr, flush=True)
