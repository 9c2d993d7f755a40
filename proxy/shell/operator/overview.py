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
from itertools import groupby
from typing import Any, Final, Literal

from msgspec import Struct, field

from proxy import __version__
from proxy.config import Settings
from proxy.core.conversation import Reason
from proxy.core.overflow import CURES
from proxy.shell.models import ModelResolver
from proxy.shell.operator.health import Health, failed_checks, findings
from proxy.shell.telemetry import Block, Filters, History, RequestRecord, Sums, Table

MAX_BARS: Final = 96
"""Limit of the timeline, but for one that has begun."""
BAR_SECONDS: Final = (1, 5, 15, 60, 300, 900, 3600, 2 * 3600, 4 * 3600)
"""What a part of it may last: the first with which there are few enough."""
MAX_HOURS: Final = 24 * 14
PERIODS: Final = (1, 24, 24 * 7, 24 * 14)
"""Hours that the dashboard offers."""
_ERROR_SHARE: Final = 0.01
"""Share of an upstream's requests that were not answered from which its level is not `good`."""
_TIMED: Final = 200
"""Requests whose wait for the first byte is looked at."""
MAX_MODELS: Final = 50
"""Most rows in the table: those with the most tokens."""
MAX_CLIENTS: Final = 50
"""Named in one answer."""
MAX_PROBLEMS: Final = 5
_LATEST_WINDOWS: Final = """
SELECT coalesce(model, ''), coalesce(upstream, ''), window_tokens, window_is_guessed, max(id) FROM requests
WHERE ended >= :since AND window_tokens IS NOT NULL GROUP BY model, upstream"""
_CLIENTS: Final = """
SELECT client FROM requests WHERE ended >= :since AND client <> '' GROUP BY client
ORDER BY count(*) DESC LIMIT :limit"""
_TIMES: Final = """
SELECT coalesce(upstream, ''), CAST(ended / :width AS INTEGER) * :width, outcome <> 'answered', first_byte_ms, own_ms
FROM requests WHERE ended >= :since ORDER BY ended"""


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
class UpstreamBar:
    """A part of the timeline, as far as one upstream is concerned; there is none in which it had no request."""

    at: int
    """Its beginning, Unix time."""
    requests: int
    unanswered: int
    first_byte_ms: list[float]
    """Median and 95th percentile of the wait for the first byte; empty: none came."""


@dataclass
class UpstreamState:
    """An upstream, and how it has answered."""

    upstream: str
    """Host and port."""
    problem: str
    """Why it does not answer; empty: it does."""
    level: Literal["good", "warn", "bad"]
    """That of the worst in `health` that concerns it; `warn` also if a hundredth of its requests was not answered."""
    requests: int
    unanswered: int
    first_byte_ms: list[float]
    """Median and 95th percentile of the latest 200; empty: none."""
    bars: Sequence[UpstreamBar]


@dataclass
class Bar:
    """A part of the timeline."""

    at: int
    """Its beginning, Unix time."""
    sums: Sums


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
class Process:
    """The process that responds."""

    version: str
    mode: Literal["on", "observe", "off"]
    pid: int
    workers: int
    seconds: int
    """Since its start."""
    replica: str
    """Name of the machine, container or pod: requests that others have served are in their pages and logs."""
    log: str
    """Where its log is."""
    shared: bool
    """True if requests of all workers can be listed, and outlive them."""
    problem: str
    """Why they cannot, although they should; empty: nothing."""


@dataclass
class Decisions:
    """The latest requests, the newest first."""

    running: Sequence[RequestRecord]
    decisions: Sequence[RequestRecord]
    matching: int
    """How many there are on all pages together."""
    totals: Sums
    """Of all that are kept."""
    worker: Process
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
    proxy: Process
    health: Sequence[Health]
    """Empty: nothing needs attention."""
    clients: Sequence[str]
    """Names of clients, the most frequent first."""
    upstreams: Sequence[UpstreamState]
    totals: Sums
    usd: Dollars | None
    """Over all models that have a price; empty: none has."""
    models: Sequence[ModelSums]
    own_ms: list[float]
    """The proxy's own time for a request: median and 95th percentile of the latest 200; empty: none."""
    bars: Sequence[Bar]
    bar_seconds: int


@dataclass
class Status:
    """A running proxy."""

    process: Process
    data_dir: str
    artifacts: str
    """Folder or bucket of what was taken out of requests."""
    upstreams: Sequence[str]
    """Base URLs, by the order in which they are tried."""
    served: Sums
    """Of what is kept since the start of this process."""
    health: Sequence[Health] | None = None
    """What needs attention; empty: nothing. This and what follows only with `full`."""
    problems: Sequence[RequestRecord] | None = None
    """The latest requests that went wrong."""


class Overview(Struct, frozen=True):
    """Sums up the history."""

    settings: Settings
    history: History
    problems: Callable[[], Awaitable[Mapping[str, str]]]
    """What was wrong at the last check, by name."""
    upstreams: Mapping[str, ModelResolver]
    """By their places in the settings, which name their checks."""
    artifacts: str
    """Folder or bucket of what was taken out of requests."""
    state: Callable[[], str | None] | None = None
    """Why nothing is shared with other replicas; None where nothing is to be."""
    clock: Callable[[], float] = time.time
    seen: dict[str, float] = field(default_factory=dict)
    """What does not work → when that was first seen, Unix time."""

    async def of(self, hours: int | None) -> OverviewFigures:
        """The last hours; None: the shortest of `PERIODS` that has everything."""
        return await self.history.ask(self._figures, hours, await self.problems())

    def _figures(self, table: Table, hours: int | None, problems: Mapping[str, str]) -> OverviewFigures:
        """In the history's thread: prices may have to be read, too."""
        now = self.clock()
        ((begun,),) = table.query("SELECT min(ended) FROM requests")
        age = now - (begun or now)
        is_chosen, hours = hours is not None, hours or next((one for one in PERIODS if age <= one * 3600), PERIODS[-1])
        length = hours * 3600 if is_chosen or begun is None else min(age, hours * 3600)
        since, width = now - hours * 3600, next(one for one in BAR_SECONDS if length <= one * MAX_BARS)
        first = int(max(since, now - length) // width) * width
        sums_at = dict(table.sums(since, now, f"max({first}, CAST(ended / {width} AS INTEGER) * {width})"))
        health = self._health(table, problems, now)
        by_model = table.sums(since, now, "coalesce(model, '')", "coalesce(upstream, '')")
        models = self._by_model(by_model, table.query(_LATEST_WINDOWS, since=since))
        paid = [one.usd for one in models if one.usd is not None]
        times = table.query(_TIMES, since=since, width=width)
        return OverviewFigures(
            hours,
            begun,
            self._process(),
            health,
            [name for (name,) in table.query(_CLIENTS, since=since, limit=MAX_CLIENTS)],
            [*self._upstreams(times, problems, health)],
            Sums.of(sums for *_, sums in by_model),
            Dollars(*(round(sum(one), 6) for one in zip(*map(astuple, paid), strict=True))) if paid else None,
            models[:MAX_MODELS],
            _half_and_most([own_ms for *_, own_ms in times[-_TIMED:]]),
            [Bar(at, sums_at.get(at) or Sums.of(())) for at in range(first, int(now // width) * width + 1, width)],
            width,
        )

    def _health(self, table: Table, problems: Mapping[str, str], now: float) -> list[Health]:
        """What the requests show, and what checks have found, dated by when this process first saw it: the worst first,
        and of the same level what most requests show."""
        notes = {"state": self.state and self.state(), "decisions": self.history.is_kept and self.history.problem}
        failed = {**problems, **{name: problem for name, problem in notes.items() if problem}}
        for name in self.seen.keys() - failed:
            del self.seen[name]
        dated = {name: (why, self.seen.setdefault(name, now)) for name, why in failed.items()}
        checks = failed_checks(dated, {check: one.upstream.host for check, one in self.upstreams.items()})
        return sorted([*checks, *findings(table, now)], key=lambda one: (one.level, -one.requests))

    def _upstreams(
        self,
        times: Iterable[tuple[str, int, int, float | None, float | None]],
        problems: Mapping[str, str],
        health: Iterable[Health],
    ) -> Iterable[UpstreamState]:
        """The upstreams, with what each has done in each part of the timeline."""
        of_host = defaultdict[str, list[tuple[int, int, float | None]]](list)
        for host, at, is_unanswered, first_byte_ms, _ in times:
            of_host[host].append((at, is_unanswered, first_byte_ms))
        levels: dict[str, Literal["good", "warn", "bad"]] = {
            one.upstream: one.level for one in reversed([*health])
        }  # of several, the first is the worst
        for check, models in self.upstreams.items():
            host = models.upstream.host
            own = of_host[host]
            bars = [
                UpstreamBar(at, len(several), sum(row[1] for row in several), _half_and_most(row[2] for row in several))
                for at, several in ((at, [*rows]) for at, rows in groupby(own, lambda row: row[0]))
            ]
            unanswered = sum(bar.unanswered for bar in bars)
            level = levels.get(host, "warn" if unanswered > _ERROR_SHARE * len(own) else "good")
            waits = _half_and_most(wait for *_, wait in own[-_TIMED:])
            yield UpstreamState(host, problems.get(check, ""), level, len(own), unanswered, waits, bars)

    def _process(self) -> Process:
        settings, history = self.settings, self.history
        return Process(
            __version__,
            settings.mode if settings.enabled else "off",
            os.getpid(),
            settings.server.workers,
            round(self.clock() - history.started),
            socket.gethostname(),
            log_place(os.environ),
            history.is_kept and history.problem is None,
            history.problem or "",
        )

    async def decisions(self, filters: Filters) -> Decisions:
        """Requests of a kind, and sums of all."""
        running = await self.history.running()

        def found(table: Table) -> Decisions:
            ((totals,),) = table.sums(0.0, self.clock())
            return Decisions(
                running[: filters["limit"]],
                table.page(filters),
                table.count({**filters, "before": None}),
                totals,
                self._process(),
                {reason.value: (reason.one, reason.several) for reason in Reason},
                {row.cause: row.words for row in CURES},
            )

        return await self.history.ask(found)

    async def page(self, request_id: str) -> Page | None:
        """One request with what it cost and saved in money, where its upstream has counted and has a price."""
        found = await self.history.find(request_id)
        if found is None:
            return None
        record, blocks = found
        counted = record.prompt_tokens or 0, record.cached_tokens or 0, record.reply_tokens or 0
        usd = await asyncio.to_thread(self._paid, record.model, record.upstream, counted)
        return Page(record, blocks, None if record.prompt_tokens is None else usd)

    async def status(self, *, full: bool) -> Status:
        """What runs here; `full`: with health and problems, for which upstreams are asked."""
        history, settings = self.history, self.settings
        ((served,),) = await history.ask(Table.sums, history.started, self.clock())
        named = [one.base_url for one in settings.named_upstreams.values()]
        found = Status(self._process(), str(settings.data_dir.absolute()), self.artifacts, named, served)
        if full:
            found.health = await history.ask(self._health, await self.problems(), self.clock())
            found.problems = await history.ask(Table.page, {"limit": MAX_PROBLEMS, "troubled": True})
        return found

    def _by_model(self, rows: Iterable[Sequence[Any]], windows: Iterable[Sequence[Any]]) -> list[ModelSums]:
        """One entry for each model at each upstream, the largest first."""
        latest = {(model, upstream): (tokens, bool(is_guess)) for model, upstream, tokens, is_guess, _ in windows}
        return [
            ModelSums(
                *(model, upstream, *latest.get((model, upstream), (None, False)), sums),
                self._paid(model, upstream, (sums.prompt_tokens, sums.cached_tokens, sums.reply_tokens)),
            )
            for model, upstream, sums in sorted(rows, key=lambda row: -row[2].tokens_before)
            if model  # or requests that could not be read
        ]

    def _paid(self, model: str, upstream: str, counted: tuple[int, int, int]) -> Dollars | None:
        """The price of prompts, of what the cache had of them, and of replies; None if it is not known."""
        asked = (one for one in self.upstreams.values() if one.upstream.host == upstream)
        price = next((one.catalogue.price_of(model) for one in asked), None)
        if price is None:
            return None
        prompt_tokens, cached_tokens, reply_tokens = counted
        cached = min(cached_tokens, prompt_tokens)
        by_cache = round(cached * (price.prompt - price.cached) / 1e6, 6)
        return Dollars(price.spent(prompt_tokens, cached, reply_tokens), by_cache)


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


def _half_and_most(found: Iterable[float | None]) -> list[float]:
    """Median and 95th percentile of those that are known; empty: none is."""
    ascending = sorted(value for value in found if value is not None)
    return [ascending[min(len(ascending) - 1, int(len(ascending) * share))] for share in (0.5, 0.95) if ascending]
