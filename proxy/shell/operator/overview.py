"""Data for the dashboard's overview: health, savings, timeline.

Rule: figures of all workers, summed up on request; sizes, names, times and money, never content. Money is by the
catalogue's list prices and says so; a model without one has none.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from proxy import __version__
from proxy.core.conversation import Reason
from proxy.core.overflow import CURES
from proxy.shell.models import Price, Prices
from proxy.shell.telemetry import FAILED, REFUSED, Block, History, RequestRecord, Sums, Table, Wait, Wanted

BARS: Final = 96
"""Limit of the timeline."""
BAR_SECONDS: Final = 300
"""The shortest part of it."""
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


@dataclass
class Dollars:
    """US dollars, by the catalogue's list prices, for tokens that the upstream has counted."""

    spent: float
    by_cache: float
    """What the upstream's prompt cache has saved: its cached tokens, at the difference of the prices."""


@dataclass
class Page:
    """One request, message by message."""

    record: RequestRecord
    blocks: Sequence[Block]
    """Empty if the request could not be read, or was long and not edited."""
    usd: Dollars | None
    """Empty if its upstream has counted no tokens, or if no price is known."""


@dataclass
class Health:
    """Something that needs attention."""

    level: Literal["warn", "bad"]
    words: str
    status: str = ""
    """Status of the requests concerned, as the filter of `/decisions` takes it; empty: any."""
    show: Literal["", "troubled"] = ""
    """The requests concerned are among these, as the same filter takes them."""


@dataclass
class UpstreamState:
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


@dataclass
class Bar:
    """A part of the time line."""

    at: int
    """Its beginning, Unix time."""
    sums: Sums
    first_byte_ms: list[float]
    """Median and 95th percentile of the wait for the upstream's first byte; empty: no request was sent."""
    own_ms: list[float]
    """The proxy's own time."""


@dataclass
class ModelSums:
    """Sums for one model at one upstream."""

    model: str
    upstream: str
    window_tokens: int | None
    """That its latest request was fitted to; empty: none is known."""
    window_is_guessed: bool
    sums: Sums
    usd: Dollars | None
    """Empty: no price is known."""


@dataclass
class Refusals:
    """Requests that were refused with one status."""

    status: int
    requests: int


@dataclass
class Proxy:
    """The process that responds."""

    version: str
    mode: Literal["on", "observe", "off"]
    seconds: int
    """Since its start."""
    replica: str
    """Name of the machine, container or pod: requests that others have served are in their pages and logs."""
    log: str
    """Where its log is."""


@dataclass
class Worker:
    """The process that responds."""

    pid: int
    workers: int
    seconds: int
    """Since its start."""
    remembered: int
    """Number of requests that can be listed."""
    shared: bool
    """True if these are of all workers, and outlive them."""
    problem: str
    """Why they are not, although they should be; empty: nothing."""


@dataclass
class Decisions:
    """The latest requests, the newest first."""

    running: Sequence[RequestRecord]
    decisions: Sequence[RequestRecord]
    matching: int
    """How many there are on all pages together."""
    totals: Sums
    """Of all that are kept."""
    worker: Worker
    reasons: dict[str, Sequence[str]]
    """What each reason for an edit means, in words: if it was done once, and if it was done `#` times."""
    causes: dict[str, str]
    """What each cause of another send means, in words."""


@dataclass
class OverviewFigures:
    """The last hours, of all workers."""

    hours: int
    kept_since: float | None
    """When the oldest request ended that is kept, Unix time: sums reach no further back; empty: none is."""
    proxy: Proxy
    health: Sequence[Health]
    """Empty: nothing needs attention."""
    refusals: Sequence[Refusals]
    """The most frequent status first."""
    clients: Sequence[str]
    """Names of clients, the most frequent first."""
    upstreams: Sequence[UpstreamState]
    totals: Sums
    usd: Dollars | None
    """Over all models that have a price; empty: none has."""
    unpriced_models: int
    """Models in this time without a price."""
    models: Sequence[ModelSums]
    bars: Sequence[Bar]
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
        begun = await ask(Table.begun)
        if hours is None:
            age = 0 if begun is None else now - begun
            hours = next((one for one in PERIODS if age <= one * 3600), PERIODS[-1])
        since = now - hours * 3600
        width = max(BAR_SECONDS, -(-hours * 3600 // BARS // BAR_SECONDS) * BAR_SECONDS)
        problems = await self._problems()
        by_model = await ask(Table.sums, since, now, "model", "upstream")
        models = await asyncio.to_thread(self._by_model, by_model, await ask(Table.windows, since))
        paid = [one.usd for one in models if one.usd is not None]
        ((lately,),) = await ask(Table.sums, now - _RECENT_SECONDS, now)
        waits = await ask(Table.waits, since)
        upstreams = [_state_of(one, problems.get(one.check, ""), by_model, waits) for one in self._upstreams]
        return OverviewFigures(
            hours,
            begun,
            self._proxy(now),
            [
                *_unwell(upstreams, problems, lately),
                *_refused(await ask(Table.refusals, now - _RECENT_SECONDS), lately),
                *self._unshared(),
                *_unkept(self._history),
            ],
            [Refusals(*one) for one in await ask(Table.refusals, since)],
            await ask(Table.clients, since),
            upstreams,
            Sums.of(sums for *_, sums in by_model),
            Dollars(*(round(sum(one), 6) for one in zip(*map(astuple, paid), strict=True))) if paid else None,
            len(models) - len(paid),
            models[:MAX_MODELS],
            _bars(dict(await ask(Table.sums, since, now, "at", width=width)), waits, since, now, width),
            width,
        )

    def _proxy(self, now: float) -> Proxy:
        seconds = round(now - self._history.started)
        return Proxy(__version__, self._mode, seconds, socket.gethostname(), log_place(os.environ))

    async def decisions(self, wanted: Wanted, workers: int) -> Decisions:
        """Requests of a kind, and sums of all."""
        history = self._history
        ((totals,),) = await history.ask(Table.sums, 0.0, self._clock())
        return Decisions(
            (await history.running())[: wanted.limit],
            await history.ask(Table.page, wanted),
            await history.ask(Table.count, replace(wanted, before=None)),
            totals,
            Worker(
                os.getpid(),
                workers,
                round(time.time() - history.started),
                await history.ask(Table.count, Wanted()),
                history.is_kept and history.problem is None,
                history.problem or "",
            ),
            {reason.value: (reason.one, reason.several) for reason in Reason},
            {row.cause: row.words for row in CURES},
        )

    async def page(self, request_id: str) -> Page | None:
        """One request with what it cost and saved in money, where its upstream has counted and has a price."""
        found = await self._history.find(request_id)
        if found is None:
            return None
        record, blocks = found
        price = None
        if record.prompt_tokens is not None:
            price = await asyncio.to_thread(self._price_of, record.model, record.upstream)
        counted = record.prompt_tokens or 0, record.cached_tokens or 0, record.reply_tokens or 0
        return Page(record, blocks, None if price is None else dollars(price, *counted))

    def _price_of(self, model: str, upstream: str) -> Price | None:
        prices = next((one.prices for one in self._upstreams if one.host == upstream), None)
        return None if prices is None else prices.of(model)

    def _unshared(self) -> Iterable[Health]:
        problem = None if self._state is None else self._state()
        if problem is not None:
            words = f"Replicas share nothing, and each uses only what it knows itself: {problem}"
            yield Health("warn", words)

    def _by_model(
        self, rows: Sequence[tuple[str, str, Sums]], windows: Mapping[tuple[str, str], tuple[int, bool]]
    ) -> list[ModelSums]:
        """One entry for each model at each upstream, the largest first; in a thread, as prices may have to be read."""
        found: list[ModelSums] = []
        for model, upstream, sums in sorted(rows, key=lambda row: -row[2].tokens_before):
            if model:  # or requests that could not be read
                price = self._price_of(model, upstream)
                counted = sums.prompt_tokens, sums.cached_tokens, sums.reply_tokens
                usd = None if price is None else dollars(price, *counted)
                window, is_guess = windows.get((model, upstream), (None, False))
                found.append(ModelSums(model, upstream, window, is_guess, sums, usd))
        return found


def log_place(environment: Mapping[str, str]) -> str:
    """The command that shows the log of this process, or where it goes.

    >>> log_place({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) == f"kubectl logs {socket.gethostname()}"
    True
    """
    host, pid = socket.gethostname(), os.getpid()
    if "KUBERNETES_SERVICE_HOST" in environment:
        return f"kubectl logs {host}"
    if os.path.exists("/.dockerenv"):
        return f"docker logs {host}"
    return f"journalctl _PID={pid}" if "JOURNAL_STREAM" in environment else f"standard error of process {pid}"


def dollars(price: Price, prompt_tokens: int, cached_tokens: int, reply_tokens: int) -> Dollars:
    """Cost of prompts and replies, as far as the upstream has counted them, and the savings by its cache.

    >>> dollars(Price(2.0, 1.0, 8.0), 1_000_000, 500_000, 0)
    Dollars(spent=1.5, by_cache=0.5)
    """
    cached = min(cached_tokens, prompt_tokens)
    by_cache = round(cached * (price.prompt - price.cached) / 1e6, 6)
    return Dollars(price.spent(prompt_tokens, cached, reply_tokens), by_cache)


def _state_of(one: Priced, problem: str, rows: Iterable[tuple[str, str, Sums]], waits: Sequence[Wait]) -> UpstreamState:
    sums = Sums.of(sums for _, upstream, sums in rows if upstream == one.host)
    times = [wait.first_byte_ms for wait in waits if wait.upstream == one.host and wait.first_byte_ms is not None]
    latest = sorted(times[-_TIMED:])
    return UpstreamState(one.host, problem, sums.requests, sums.failed, _at(latest, 0.5), _at(latest, 0.95))


def _at(ascending: Sequence[float], share: float) -> float | None:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else None


def _bars(sums: Mapping[int, Sums], waits: Iterable[Wait], since: float, now: float, width: int) -> list[Bar]:
    """The sums for each `width` seconds, those without requests included, with median and 95th percentile of times."""
    times = defaultdict[int, list[Wait]](list)
    for wait in waits:
        times[int(wait.ended // width) * width].append(wait)

    def shares(found: Iterable[float | None]) -> list[float]:
        ascending = sorted(value for value in found if value is not None)
        return [value for share in (0.5, 0.95) if (value := _at(ascending, share)) is not None]

    return [
        Bar(
            at,
            sums.get(at) or Sums.of(()),
            shares(wait.first_byte_ms for wait in times[at]),
            shares(wait.own_ms for wait in times[at]),
        )
        for at in range(int(since // width) * width, int(now // width) * width + 1, width)
    ]


def _refused(refusals: Sequence[tuple[int, int]], lately: Sums) -> Iterable[Health]:
    """Keys and rates that are refused too often."""
    of_keys = [(status, count) for status, count in refusals if status in (401, 403, 429)]
    total = sum(count for _, count in of_keys)
    if total > lately.requests * _REFUSED_SHARE:
        each = ", ".join(f"{count:,} × {status}" for status, count in of_keys)
        words = f"In the last 15 minutes, {total:,} of {lately.requests:,} requests were refused: {each}."
        yield Health("warn", words, str(of_keys[0][0]) if len(of_keys) == 1 else REFUSED)


def _unwell(upstreams: Iterable[UpstreamState], problems: Mapping[str, str], lately: Sums) -> Iterable[Health]:
    for one in upstreams:
        if one.problem:
            yield Health("bad", f"{one.upstream} does not answer: {one.problem}")
    if "store" in problems:
        yield Health("bad", f"Nothing can be taken out of requests: {problems['store']}")
    unhealed = lately.overflows - lately.survived
    if unhealed:
        which = "1 request was" if unhealed == 1 else f"{unhealed} requests were"
        yield Health("bad", f"In the last 15 minutes, {which} too long and could not be saved.", show="troubled")
    if lately.failed > lately.requests * _FAILING_SHARE:
        failed = f"{lately.failed:,} of {lately.requests:,} requests failed"
        yield Health("warn", f"In the last 15 minutes, {failed}.", FAILED)


def _unkept(history: History) -> Iterable[Health]:
    if history.is_kept and history.problem is not None:
        yield Health("warn", f"Decisions are not kept, and you see those of one worker only: {history.problem}")
