"""Collectors of Prometheus that are read at each scrape, and a histogram cheaper than prometheus_client's.

Rule: reading changes no count. Prices are read in a thread; everything else is at hand.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from proxy.shell.models import Learning, Price
from proxy.wire import NOTHING

USAGE: Final = "context_proxy_usage_tokens"
_NOT_ADDED: Final = frozenset(("process_start_time_seconds", "process_max_fds"))


class Spread(Collector):
    """A histogram of one process in plain numbers: adding to prometheus_client's takes two locks and a dozen calls."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry | None,
    ) -> None:
        self._described = name, documentation
        self._labelnames = labelnames
        self._buckets = buckets
        self._bounds = [*buckets, math.inf]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._children: dict[tuple[str, ...], Spread] = {}
        if registry is not None:
            registry.register(self)

    def labels(self, *values: str) -> Spread:
        """The histogram of these values of the labels."""
        found = self._children.get(values)
        if found is None:
            found = self._children[values] = Spread(*self._described, buckets=self._buckets, registry=None)
        return found

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> list[Metric]:
        """The family with its values."""
        family = HistogramMetricFamily(*self._described, labels=self._labelnames)
        for values, one in self._children.items() if self._labelnames else [((), self)]:
            counts = zip(one._bounds, accumulate(one._counts), strict=True)
            family.add_metric(values, [(_written(bound), count) for bound, count in counts], one._sum)
        return [family]


def _written(bound: float) -> str:
    """A bound in prometheus_client's format."""
    return "+Inf" if math.isinf(bound) else str(float(bound))


class LearnedCollector(Collector):
    """Limits learned from refusals, read on request; the same in all workers, as they share one file."""

    learning: Sequence[Learning] = ()

    def collect(self) -> list[Metric]:
        """The family with a value for each model and scope."""
        family = GaugeMetricFamily(
            "context_proxy_learned_limit_tokens",
            "Limits that the upstream's refusals have taught, by model and by what they limit.",
            labels=["model", "scope"],
        )
        found: dict[tuple[str, str], int] = {}
        for learning in reversed(self.learning):  # the first upstream that has a model serves it
            for model in learning.models:
                limits, _ = learning.limits(model) or (NOTHING, "")
                for scope, tokens in (("window", limits.window_tokens), ("input", limits.input_tokens)):
                    if tokens is not None:
                        found[model, scope] = tokens
        for (model, scope), tokens in found.items():
            family.add_metric([model, scope], tokens)
        return [family]


class Spending(Collector):
    """Cost of the tokens that upstreams have counted, at the catalogue's list prices; computed at each scrape."""

    def __init__(self, usage: Counter) -> None:
        self._usage = usage
        self._price_of: Mapping[str, Callable[[str], Price | None]] = {}
        self._prices: dict[tuple[str, str], Price | None] = {}
        self.unread: set[tuple[str, str]] = set()
        """Models and their upstreams whose prices `look_up` will read."""

    def follow(self, price_of: Mapping[str, Callable[[str], Price | None]]) -> None:
        """Use these sources of prices from now on, by upstream."""
        self._price_of, self._prices = price_of, {}

    def look_up(self) -> None:
        """Read the prices that were missing; in a thread, as each may take 20 ms."""
        for model, upstream in self.unread.copy():
            price_of = self._price_of.get(upstream)
            self._prices[model, upstream] = None if price_of is None else price_of(model)
        self.unread.clear()

    def collect(self) -> list[Metric]:
        """The family, of the tokens of this process."""
        (usage,) = self._usage.collect()
        return [self.of(usage)]

    def of(self, usage: Metric) -> CounterMetricFamily:
        """The family, of these tokens; models without a price are left out."""
        # Another worker may have counted one of the three so far.
        tokens = defaultdict[tuple[str, str, str], defaultdict[str, float]](lambda: defaultdict(float))
        for sample in usage.samples:
            if sample.name.endswith("_total"):
                labels = sample.labels
                tokens[labels["client"], labels["model"], labels["upstream"]][labels["usage"]] = sample.value
        family = CounterMetricFamily(
            "context_proxy_spent_dollars",
            "What these tokens cost in US dollars by the catalogue's list prices; models without a price are left out.",
            labels=["client", "model", "upstream"],
        )
        for (client, model, upstream), counted in tokens.items():
            if (model, upstream) not in self._prices:
                self.unread.add((model, upstream))
            elif price := self._prices[model, upstream]:
                spent = price.spent(counted["prompt"], counted["cached"], counted["reply"])
                family.add_metric([client, model, upstream], spent)
        return family


class AllWorkers(Collector):
    """Sums of the counts of all workers that share a folder."""

    def __init__(self, folder: Path, spending: Spending) -> None:
        self._folder = folder
        self._spending = spending

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics, and those of the processes."""
        forget_the_dead(self._folder)
        counted = MultiProcessCollector(None, str(self._folder))  # type: ignore[no-untyped-call] # it has no types
        for family in counted.collect():  # type: ignore[no-untyped-call] # as above
            yield family
            if family.name == USAGE:
                yield self._spending.of(family)
        yield from self._processes()

    def _processes(self) -> Iterable[Metric]:
        """`process_*`: sums, with the earliest start and the lowest limit."""
        pids = {int(name) for file in self._folder.glob("*.db") if (name := file.stem.rpartition("_")[2]).isdigit()}
        families: dict[str, Metric] = {}
        for pid in pids:
            for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                (known, *_) = families.setdefault(family.name, family).samples
                if families[family.name] is not family:
                    both = (known.value, family.samples[0].value)
                    total = min(both) if family.name in _NOT_ADDED else sum(both)
                    families[family.name].samples[:] = [known._replace(value=total)]
        return families.values()


def forget_the_dead(folder: Path) -> None:
    """The gauges of a killed worker would show its requests as under way for ever."""
    for file in folder.glob("gauge_live*.db"):
        number = file.stem.rpartition("_")[2]
        if not number.isdigit():
            continue
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):  # two workers may be scraped at once
                mark_process_dead(int(number), str(folder))  # type: ignore[no-untyped-call] # as above
        except PermissionError:
            pass  # another user's process has this number
