"""Data for the dashboard's overview: health, savings, timeline.

Rule: figures of all workers, summed up on request; sizes, names, times and money, never content. Money is by the
catalogue's list prices and says so; a model without one has none.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NotRequired, cast

from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy import __version__
from proxy.core.conversation import Reason
from proxy.shell.models import Price, Prices
from proxy.shell.telemetry import FAILED, REFUSED, SLOT_SECONDS, Detail, History, Ledger, Running, Summary, Wanted

BARS: Final = 96
"""Limit of the timeline."""
MAX_HOURS: Final = 24 * 14
_RECENT_SECONDS: Final = 900.0
"""How recent a problem is that counts as current."""
_REFUSED_SHARE: Final = 0.05
"""Share of recent requests from which refusals for a key or a rate are reported."""
PERIODS: Final = (1, 24, 24 * 7, 24 * 14)
"""Hours that the dashboard offers."""
_FAILING_SHARE: Final = 0.1
"""Share of an upstream's recent requests from which its failures are reported."""
_TIMED: Final = 200
"""Requests whose wait for the first byte is looked at."""
MAX_MODELS: Final = 50
"""Most rows in the table: those with the most tokens."""


class Dollars(TypedDict):
    """US dollars, by the catalogue's list prices, for tokens that the upstream has counted."""

    spent: float
    by_cache: float
    """What the upstream's prompt cache has saved: its cached tokens, at the difference of the prices."""


class PricedDetail(Detail):
    """One request, with a block for each of its messages, and its price."""

    usd: Dollars | None
    """Empty if its upstream has counted no tokens, or if no price is known."""


class Health(TypedDict):
    """Something that needs attention."""

    level: Literal["warn", "bad"]
    words: str
    status: NotRequired[str]
    """Status of the requests concerned, as the filter of `/decisions` takes it."""
    show: NotRequired[Literal["troubled"]]
    """The requests concerned are among these, as the same filter takes them."""


class UpstreamState(TypedDict):
    """An upstream, and how it has answered."""

    upstream: str
    """Host and port."""
    problem: str
    """Why it does not answer; empty: it does."""
    requests: int
    failed: int
    """Those with an outcome that is the upstream's or the proxy's fault."""
    first_byte_ms: float | None
    """The median of the latest 200; empty: none."""
    slow_first_byte_ms: float | None
    """The slowest twentieth of these took at least this long."""


class Counts(TypedDict):
    """Numbers of requests."""

    requests: int
    failed: int
    """Those with an outcome that is the upstream's or the proxy's fault."""
    refused: int
    """Those with the outcome `refused`."""
    edited: int
    fitted: int
    """Made to fit: answered requests that the upstream would have refused or cut silently for their length."""
    overflows: int
    tokens_saved: int
    """Estimate for answered requests: tokens that were not sent, as far as they would have fit into the window."""
    tokens_before: int
    """Estimated size before edits of the requests sent."""
    tokens_sent: int
    cached_tokens: int


class Bar(Counts):
    """A part of the time line."""

    at: int
    """Its beginning, Unix time."""
    first_byte_ms: list[float]
    """Median and 95th percentile of the wait for the upstream's first byte; empty: no request is remembered."""
    own_ms: list[float]
    """The proxy's own time."""


class Sums(Counts):
    """Sums over requests."""

    survived: int
    prompt_tokens: int
    """Counted by the upstreams, where they report usage."""
    reply_tokens: int
    prefix_kept: float | None
    """Mean over the requests that continued a known conversation."""
    usd: Dollars | None
    """Empty: no price is known."""


class AllSums(Sums):
    """Sums over all models."""

    unpriced_models: int
    """Models in this time without a price."""


class ModelSums(Sums):
    """Sums for one model at one upstream."""

    model: str
    upstream: str
    window_tokens: int | None
    """That its latest request was fitted to; empty: none is remembered."""
    window_is_guessed: bool


class Refusals(TypedDict):
    """Requests that were refused with one status."""

    status: int
    requests: int


class Proxy(TypedDict):
    """The process that responds."""

    version: str
    mode: Literal["on", "observe", "off"]
    seconds: int
    """Since its start."""
    replica: str
    """Name of the machine, container or pod: requests that others have served are in their pages and logs."""
    log: str
    """Where its log is."""


class Totals(TypedDict):
    """Totals of all workers, over everything that is kept; with `decisions.stored: 0`, of one worker since its
    start."""

    requests: int
    running: int
    tokens_before: int
    tokens_saved: int
    overflows: int
    """Requests that the upstream refused as too long."""
    overflows_survived: int
    """Overflows that succeeded after a second send."""
    prefix_kept: float | None
    """Mean over the requests that continued a known conversation."""


class Worker(TypedDict):
    """The process that responds."""

    pid: int
    workers: int
    seconds: int
    """Since its start."""
    remembered: int
    """Number of requests that can be listed."""
    shared: bool
    """Whether these are of all workers, and outlive them."""
    problem: str
    """Why they are not, although they should be; empty: nothing."""


class Decisions(TypedDict):
    """The latest requests, the newest first."""

    running: list[Running]
    decisions: list[Summary]
    matching: int
    """How many there are on all pages together."""
    totals: Totals
    worker: Worker
    reasons: dict[str, Sequence[str]]
    """What each reason for an edit means, in words: if it was done once, and if it was done `#` times."""


class OverviewFigures(TypedDict):
    """The last hours, of all workers."""

    hours: int
    proxy: Proxy
    health: list[Health]
    """Empty: nothing needs attention."""
    refusals: list[Refusals]
    """The most frequent status first."""
    clients: list[str]
    """Names of clients, the most frequent first."""
    upstreams: list[UpstreamState]
    totals: AllSums
    models: list[ModelSums]
    bars: list[Bar]
    bar_seconds: int


class Priced(NamedTuple):
    """An upstream, as far as the overview is concerned."""

    host: str
    check: str
    """The name of its check."""
    prices: Prices


class Overview:
    """Sums up the history."""

    def __init__(
        self,
        history: History,
        problems: Callable[[], Awaitable[Mapping[str, str]]],
        upstreams: Sequence[Priced],
        clock: Callable[[], float] = time.time,
        state: Callable[[], str | None] | None = None,
        mode: Literal["on", "observe", "off"] = "on",
    ) -> None:
        """`problems`: what was wrong at the last check, by name. `state`: why nothing is shared with other
        replicas; None where nothing is to be."""
        self._history = history
        self._problems = problems
        self._upstreams = upstreams
        self._clock = clock
        self._state = state
        self._mode = mode

    async def of(self, hours: int | None) -> OverviewFigures:
        """The last hours; None: the shortest of `PERIODS` that has everything."""
        now, ask = self._clock(), self._history.ask
        if hours is None:
            begun = await ask(Ledger.begun)
            age = 0 if begun is None else now - begun
            hours = next((one for one in PERIODS if age <= one * 3600), PERIODS[-1])
        since = now - hours * 3600
        problems = await self._problems()
        by_model = await ask(Ledger.slots, since, "model", "upstream")
        windows = {
            (model, upstream): (tokens, bool(guess))
            for model, upstream, tokens, guess in await ask(Ledger.windows, since)
        }
        models = await asyncio.to_thread(self._by_model, by_model, windows)
        upstreams = [
            await self._described_upstream(one, problems.get(one.check, ""), by_model) for one in self._upstreams
        ]
        (sums,) = await ask(Ledger.slots, since)
        (lately,) = await ask(Ledger.slots, now - _RECENT_SECONDS)
        refused_lately = await ask(Ledger.refusals, now - _RECENT_SECONDS)
        width = max(SLOT_SECONDS, -(-hours * 3600 // BARS // SLOT_SECONDS) * SLOT_SECONDS)
        bars = _bars(await ask(Ledger.slots, since, "slot"), since, now, width)
        _add_timings(bars, await ask(Ledger.timings, since), width)
        return {
            "hours": hours,
            "proxy": {
                "version": __version__,
                "mode": self._mode,
                "seconds": round(now - self._history.started),
                "replica": socket.gethostname(),
                "log": log_place(os.environ),
            },
            "health": [
                *_unwell(upstreams, problems, lately),
                *_refused(refused_lately, lately),
                *self._unshared(),
                *_unkept(self._history),
            ],
            "refusals": [{"status": status, "requests": count} for status, count in await ask(Ledger.refusals, since)],
            "clients": await ask(Ledger.clients, since),
            "upstreams": upstreams,
            "totals": _totals(sums, models),
            "models": models[:MAX_MODELS],
            "bars": bars,
            "bar_seconds": width,
        }

    async def decisions(self, wanted: Wanted, workers: int) -> Decisions:
        """Requests of a kind, and sums of all."""
        history = self._history
        running = await history.running()
        (sums,) = await history.ask(Ledger.slots, 0.0)
        return {
            "running": running[: wanted.limit],
            "decisions": await history.ask(Ledger.page, wanted),
            "matching": await history.ask(Ledger.count, replace(wanted, before=None)),
            "totals": {
                "requests": sums["requests"],
                "running": len(running),
                "tokens_before": sums["tokens_before"],
                "tokens_saved": sums["tokens_before"] - sums["tokens_sent"],
                "overflows": sums["overflows"],
                "overflows_survived": sums["survived"],
                "prefix_kept": _mean_kept(sums),
            },
            "worker": {
                "pid": os.getpid(),
                "workers": workers,
                "seconds": round(time.time() - history.started),
                "remembered": await history.ask(Ledger.count, Wanted()),
                "shared": history.is_kept and history.problem is None,
                "problem": history.problem or "",
            },
            "reasons": {reason.value: (reason.one, reason.several) for reason in Reason},
        }

    async def priced(self, line: Detail) -> PricedDetail:
        """One request with what it cost and saved in money; None where its upstream has counted nothing or has no
        price."""
        is_counted = "prompt_tokens" in line and "model" in line
        price = await asyncio.to_thread(self._price_of, line) if is_counted else None
        return {**line, "usd": None if price is None else dollars(line, price)}

    def _price_of(self, row: Mapping[str, Any]) -> Price | None:
        prices = next((one.prices for one in self._upstreams if one.host == row["upstream"]), None)
        return None if prices is None else prices.of(row["model"])

    def _unshared(self) -> Iterable[Health]:
        problem = None if self._state is None else self._state()
        if problem is not None:
            words = f"Replicas share nothing, and each uses only what it knows itself: {problem}"
            yield {"level": "warn", "words": words}

    async def _described_upstream(self, one: Priced, problem: str, rows: Iterable[Mapping[str, Any]]) -> UpstreamState:
        sums = _added([row for row in rows if row["upstream"] == one.host])
        waits = await self._history.ask(Ledger.first_bytes, one.host, _TIMED)
        return {
            "upstream": one.host,
            "problem": problem,
            "requests": sums.get("requests", 0),
            "failed": sums.get("failed", 0),
            "first_byte_ms": _at(waits, 0.5),
            "slow_first_byte_ms": _at(waits, 0.95),
        }

    def _by_model(
        self, rows: Sequence[Mapping[str, Any]], windows: Mapping[tuple[str, str], tuple[int, bool]]
    ) -> list[ModelSums]:
        """One entry for each model at each upstream, the largest first; in a thread, as prices may have to be read."""
        found: list[ModelSums] = []
        for row in sorted(rows, key=lambda row: -row["tokens_before"]):
            if not row["model"]:
                continue  # requests that could not be read
            price = self._price_of(row)
            usd = None if price is None else dollars(row, price)
            window, is_guess = windows.get((row["model"], row["upstream"]), (None, False))
            found.append(
                {
                    "model": row["model"],
                    "upstream": row["upstream"],
                    "window_tokens": window,
                    "window_is_guessed": is_guess,
                    **_sums(row, usd),
                }
            )
        return found


def log_place(environment: Mapping[str, str]) -> str:
    """The command that shows the log of this process, or where it goes.

    >>> log_place({"JOURNAL_STREAM": "8:1"}) == f"journalctl _PID={os.getpid()}"
    True
    """
    host, pid = socket.gethostname(), os.getpid()
    if "KUBERNETES_SERVICE_HOST" in environment:
        return f"kubectl logs {host}"
    if os.path.exists("/.dockerenv"):
        return f"docker logs {host}"
    return f"journalctl _PID={pid}" if "JOURNAL_STREAM" in environment else f"standard error of process {pid}"


def dollars(sums: Mapping[str, Any], price: Price) -> Dollars:
    """Cost of prompts and replies, as far as the upstream has counted them, and the savings by its cache.

    >>> counted = {"prompt_tokens": 1_000_000, "cached_tokens": 500_000, "reply_tokens": 0}
    >>> dollars(counted, Price(2.0, 1.0, 8.0))
    {'spent': 1.5, 'by_cache': 0.5}
    """
    prompt, cached = sums["prompt_tokens"], min(sums["cached_tokens"], sums["prompt_tokens"])
    return {
        "spent": price.spent(prompt, cached, sums["reply_tokens"]),
        "by_cache": round(cached * (price.prompt - price.cached) / 1e6, 6),
    }


def _sums(row: Mapping[str, Any], usd: Dollars | None) -> Sums:
    counts = {name: row[name] for name in Sums.__annotations__ if name not in ("prefix_kept", "usd")}
    return cast(Sums, {**counts, "prefix_kept": _mean_kept(row), "usd": usd})


def _mean_kept(row: Mapping[str, Any]) -> float | None:
    return round(row["prefix_kept"] / row["followed"], 4) if row["followed"] else None


def _totals(row: Mapping[str, Any], models: Sequence[ModelSums]) -> AllSums:
    """The sums of all models, with the money of those that have a price."""
    priced = [model["usd"] for model in models if model["usd"] is not None]
    usd = cast(Dollars, {name: round(sum(one[name] for one in priced), 6) for name in ("spent", "by_cache")})
    return {**_sums(row, usd if priced else None), "unpriced_models": len(models) - len(priced)}


def _added(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: sum(row[name] for row in rows) for name in ("requests", "failed")}


def _at(ascending: Sequence[float], share: float) -> float | None:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else None


def _bars(rows: Iterable[Mapping[str, Any]], since: float, now: float, width: int) -> list[Bar]:
    """The sums for each `width` seconds, those without requests included."""
    names = tuple(Counts.__annotations__)
    first, last = int(since // width), int(now // width)
    bars: dict[int, dict[str, Any]] = {
        number: {"at": number * width, "first_byte_ms": [], "own_ms": [], **dict.fromkeys(names, 0)}
        for number in range(first, last + 1)
    }
    for row in rows:
        bar = bars.get(row["slot"] * SLOT_SECONDS // width)
        if bar is not None:
            for name in names:
                bar[name] += row[name]
    return cast(list[Bar], list(bars.values()))


def _add_timings(bars: Sequence[Bar], timings: Iterable[tuple[float, float | None, float | None]], width: int) -> None:
    """Median and 95th percentile of each bar."""
    waits = {bar["at"]: (list[float](), list[float]()) for bar in bars}
    for ended, first_byte_ms, own_ms in timings:
        of_bar = waits.get(int(ended // width) * width)
        if of_bar is not None:
            for found, value in zip(of_bar, (first_byte_ms, own_ms), strict=True):
                if value is not None:
                    found.append(value)
    for bar in bars:
        first, own = map(sorted, waits[bar["at"]])
        bar["first_byte_ms"] = [value for value in (_at(first, 0.5), _at(first, 0.95)) if value is not None]
        bar["own_ms"] = [value for value in (_at(own, 0.5), _at(own, 0.95)) if value is not None]


def _refused(refusals: Sequence[tuple[int, int]], lately: Mapping[str, Any]) -> Iterable[Health]:
    """Keys and rates that are refused too often."""
    of_keys = [(status, count) for status, count in refusals if status in (401, 403, 429)]
    total = sum(count for _, count in of_keys)
    if total > lately["requests"] * _REFUSED_SHARE:
        each = ", ".join(f"{count:,} × {status}" for status, count in of_keys)
        words = f"In the last 15 minutes, {total:,} of {lately['requests']:,} requests were refused: {each}."
        yield {"level": "warn", "words": words, "status": str(of_keys[0][0]) if len(of_keys) == 1 else REFUSED}


def _unwell(
    upstreams: Iterable[Mapping[str, Any]], problems: Mapping[str, str], lately: Mapping[str, Any]
) -> Iterable[Health]:
    for one in upstreams:
        if one["problem"]:
            yield {"level": "bad", "words": f"{one['upstream']} does not answer: {one['problem']}"}
    if "store" in problems:
        yield {"level": "bad", "words": f"Nothing can be taken out of requests: {problems['store']}"}
    unhealed = lately["overflows"] - lately["survived"]
    if unhealed:
        which = "1 request was" if unhealed == 1 else f"{unhealed} requests were"
        words = f"In the last 15 minutes, {which} too long and could not be saved."
        yield {"level": "bad", "words": words, "show": "troubled"}
    if lately["failed"] > lately["requests"] * _FAILING_SHARE:
        failed = f"{lately['failed']:,} of {lately['requests']:,} requests failed"
        yield {"level": "warn", "words": f"In the last 15 minutes, {failed}.", "status": FAILED}


def _unkept(history: History) -> Iterable[Health]:
    if history.is_kept and history.problem is not None:
        words = f"Decisions are not kept, and you see those of one worker only: {history.problem}"
        yield {"level": "warn", "words": words}
