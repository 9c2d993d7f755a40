"""Counters for Prometheus: the content of `/metrics`.

Rule: names and units follow Prometheus' conventions; the only foreign words in labels are the names of clients and of
models, and their number is limited; a request costs a handful of additions. Several workers count in files that each
of them can add up.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from proxy import __version__
from proxy.core.conversation import Reason
from proxy.core.overflow import AttemptKind, VerdictKind
from proxy.shell.models import Learning, Price
from proxy.shell.resources import Waiting
from proxy.shell.telemetry.record import RequestOutcome, RequestRecord
from proxy.wire import NOTHING

SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable from which prometheus_client reads, at its import, where the workers keep their counts."""

LABEL_VALUES: Final = {
    "outcome": [outcome.value for outcome in RequestOutcome],
    "reason": [reason.value for reason in Reason],
    "attempt_kind": [kind.value for kind in AttemptKind],
    "kind": [
        kind.value
        for kind in (
            VerdictKind.PROMPT,
            VerdictKind.PROMPT_PLUS_REPLY,
            VerdictKind.RATE,
            VerdictKind.EMPTY,
            VerdictKind.UNKNOWN,
        )
    ],
    "scope": ["window", "input"],
    "usage": ["prompt", "cached", "reply"],
}
"""The values of a label with a closed set."""


MAX_RESPONSE_SERIES: Final = 500
"""Limit of `context_proxy_responses_total`; later ones are counted with `other` as their client and model."""
MAX_TIMED_SERIES: Final = 50
"""Limit of the histogram of first bytes, which has fifteen lines for each."""
MAX_LABEL_CHARACTERS: Final = 100
OTHER: Final = "other"
USAGE: Final = "context_proxy_usage_tokens"
_OWN_STATUS: Final = frozenset((401, 403, 404, 413, 429))
"""Statuses with a value of their own; the others are counted by class."""


_Kind = tuple[str, int, str, str, str, str, bool]
"""Outcome, status, API, client, model, upstream, and whether the upstream has counted tokens."""


class _Series(NamedTuple):
    """What requests with one outcome, status, API, client, model and upstream count in: looking up the child of a label
    costs as much as counting."""

    requests: Counter
    responses: Counter
    waits: Histogram
    usage: Sequence[Counter]
    """Prompt, cached, reply; empty until the upstream has counted any."""


class Metrics:
    """The counters of one process; one set for each app, so that tests do not share them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.under_way: Mapping[int, RequestRecord] = {}
        self._learning: Sequence[Learning] = ()
        self._price_of: Mapping[str, Callable[[str], Price | None]] = {}
        self._series: dict[_Kind, _Series] = {}
        self._counted: set[tuple[str, ...]] = set()
        self._timed: set[tuple[str, ...]] = set()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "context_proxy_requests", "Finished chat requests, by outcome.", ["outcome"], registry=registry
        )
        self.responses = Counter(
            "context_proxy_responses",
            "Finished chat requests by outcome and by the status that the client got: 401, 403, 404, 413 and 429 by "
            "number, others by class (`2xx`); `none`: the client left before. A stream that has begun keeps its `2xx`, "
            "however it ends. `client` is the first word of its user agent, or what `x-context-proxy-client` says; "
            "`upstream` is empty for what was sent nowhere.",
            ["outcome", "status", "api", "client", "model", "upstream"],
            registry=registry,
        )
        self.usage = Counter(
            USAGE,
            "Tokens as upstreams have counted them, by usage: those of prompts, of these those read from a prompt "
            "cache, and those of replies.",
            ["usage", "client", "model", "upstream"],
            registry=registry,
        )
        self.build = Gauge(
            "context_proxy_build_info",
            "Always 1; its label is the version that runs.",
            ["version"],
            multiprocess_mode="mostrecent",
            registry=registry,
        )
        self.build.labels(__version__).set(1)
        self.attempts = Counter(
            "context_proxy_attempts",
            "Chat requests sent upstream, by kind: `first`, or a second one that the client does not see.",
            ["attempt_kind"],
            registry=registry,
        )
        self.overflows = Counter(
            "context_proxy_overflows", "Refusals for length by the upstream, by kind.", ["kind"], registry=registry
        )
        self.overflows_cured = Counter(
            "context_proxy_overflows_cured",
            "Chat requests that the upstream refused for length and that were answered all the same.",
            registry=registry,
        )
        self.edits = Counter(
            "context_proxy_edits",
            "Edits in chat requests, by reason; an edit that stays in a conversation counts in each of its requests.",
            ["reason"],
            registry=registry,
        )
        self.cut_results = Counter(
            "context_proxy_cut_results",
            "Tool results cut when they arrived, by the limit that they exceeded: the setting's name, `window`, or "
            "`tool_output.tools` if it is one of the tool's own.",
            ["limit"],
            registry=registry,
        )
        self.received_tokens = Counter(
            "context_proxy_received_tokens",
            "Tokens, before edits, of the chat requests that were sent upstream; estimated.",
            registry=registry,
        )
        self.sent_tokens = Counter(
            "context_proxy_sent_tokens", "Tokens of the same requests after edits; estimated.", registry=registry
        )
        self.prefix_kept = Histogram(
            "context_proxy_prefix_kept_ratio",
            "Share of a conversation's previous request with which the next one begins, as sent.",
            buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999999, 1),
            registry=registry,
        )
        self.own_seconds = Histogram(
            "context_proxy_own_seconds",
            "Time from the last byte of a chat request until it is sent upstream, without waits for images.",
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
            registry=registry,
        )
        self.upstream_seconds = Histogram(
            "context_proxy_upstream_first_byte_seconds",
            "Time from sending a chat request to the head of its response.",
            ["client", "model", "upstream"],
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
            registry=registry,
        )
        self.running = _level("context_proxy_running_requests", "Chat requests under way.", registry)
        self.streams = _level(
            "context_proxy_running_streams", "Chat requests under way whose response is a stream.", registry
        )
        self.saved_artifacts = Counter(
            "context_proxy_saved_artifacts", "Artifacts written to the store.", registry=registry
        )
        self.saved_bytes = Counter("context_proxy_saved_artifact_bytes", "Bytes of these artifacts.", registry=registry)
        self.store_failures = Counter(
            "context_proxy_store_failures",
            "Artifacts that could not be written to the store; the cut was not made, or its notice says so.",
            registry=registry,
        )
        self.stored_artifacts = Gauge(
            "context_proxy_stored_artifacts",
            "Artifacts in the store at the last sweep, once an hour.",
            multiprocess_mode="mostrecent",
            registry=registry,
        )
        self.stored_bytes = Gauge(
            "context_proxy_stored_artifact_bytes",
            "Bytes of these artifacts.",
            multiprocess_mode="mostrecent",
            registry=registry,
        )
        self.queued = _level(
            "context_proxy_queued_requests", "Requests that wait until there is room to read and plan them.", registry
        )
        self.waiting = _level(
            "context_proxy_waiting_requests",
            "Requests over 16 KB that were sent and are kept until it is clear what their response is.",
            registry,
        )
        self.waiting_compressed = _level(
            "context_proxy_waiting_compressed_requests", "Of these, those that are compressed.", registry
        )
        self.waiting_bytes = _level(
            "context_proxy_waiting_bytes", "Memory of them all; `server.max_waiting_bytes` limits it.", registry
        )
        self.waiting_lost = Counter(
            "context_proxy_lost_waiting_requests",
            "Requests that could no longer be sent again, because too much was waiting.",
            registry=registry,
        )
        self.retrieval_rounds = Counter(
            "context_proxy_retrieval_rounds",
            "Reads of artifacts for a model before its client had the response.",
            registry=registry,
        )
        self.state_failures = Counter(
            "context_proxy_state_failures",
            "Exchanges with the server at `state.url` that failed; a few every four seconds while it is unreachable.",
            registry=registry,
        )
        # Looked up once: finding the child of a label costs as much as counting.
        for outcome in RequestOutcome:
            self.requests.labels(outcome.value)  # from 0 on, so that an alert sees the first one, too
        self._first = self.attempts.labels(AttemptKind.FIRST.value)
        self._edits = {reason.value: self.edits.labels(reason.value) for reason in Reason}

    def load(self, queued: int, waiting: Waiting) -> None:
        """How many requests wait for room, and what waits for responses."""
        self._note_running()
        self.queued.set(queued)
        self.waiting.set(waiting.requests)
        self.waiting_compressed.set(waiting.compressed)
        self.waiting_bytes.set(waiting.memory_bytes)

    def _note_running(self) -> None:
        planned = [one.planned for one in list(self.under_way.values())]
        self.running.set(len(planned))
        self.streams.set(sum(one is not None and one.request.stream for one in planned))

    def follow(self, learning: Sequence[Learning], price_of: Mapping[str, Callable[[str], Price | None]]) -> None:
        """Report lessons and prices of these upstreams from now on."""
        self._learning, self._price_of = learning, price_of

    def _series_of(self, kind: _Kind) -> _Series:
        """The series of one kind of request; once there are too many, those that count the rest."""
        outcome, status, api, client, model, upstream, is_counted = kind
        code = str(status) if status in _OWN_STATUS else f"{status // 100}xx" if status else "none"
        names, rest = (client, model[:MAX_LABEL_CHARACTERS], upstream), (OTHER, OTHER, upstream)
        what = (outcome, code, api)
        counted = _bounded(self._counted, MAX_RESPONSE_SERIES, (*what, *names), (*what, *rest))
        timed = _bounded(self._timed, MAX_TIMED_SERIES, names, rest)
        found = _Series(
            self.requests.labels(outcome),
            self.responses.labels(*counted),
            self.upstream_seconds.labels(*timed),
            [self.usage.labels(kind, *counted[3:]) for kind in LABEL_VALUES["usage"]] if is_counted else (),
        )
        if len(self._series) < MAX_RESPONSE_SERIES:
            self._series[kind] = found
        return found

    def planned(self, record: RequestRecord) -> None:
        """Count a request once its plan is made."""
        planned = record.planned
        if planned is None:
            return
        for reason, count in planned.reasons.items():
            self._edits[reason].inc(count)

    def result_cut(self, limit: str) -> None:
        """A tool result was cut when it arrived, for a limit such as `tool_output.max_lines=2000`."""
        setting = limit.partition("=")[0]
        is_of_tool = setting.startswith("tool_output.tools.")  # then it contains a tool's name
        self.cut_results.labels("tool_output.tools" if is_of_tool else setting).inc()

    def finished(self, record: RequestRecord) -> None:
        """A chat request is finished."""
        is_counted = record.prompt_tokens is not None
        kind = record.outcome, record.status, record.api, record.client, record.model, record.upstream, is_counted
        series = self._series.get(kind) or self._series_of(kind)
        series.requests.inc()
        series.responses.inc()
        if is_counted:
            counts = record.prompt_tokens, record.cached_tokens, record.reply_tokens
            for counter, tokens in zip(series.usage, counts, strict=True):
                if tokens:
                    counter.inc(tokens)
        if record.too_long and record.went_well:
            self.overflows_cured.inc()
        if record.prefix_kept is not None:
            self.prefix_kept.observe(record.prefix_kept)
        if record.retrieval_rounds:
            self.retrieval_rounds.inc(record.retrieval_rounds)
        if record.sent is None:
            return
        self._first.inc()
        self.received_tokens.inc(record.tokens_before)
        self.sent_tokens.inc(record.tokens_sent or 0)
        if record.own_ms is not None:
            self.own_seconds.observe(record.own_ms / 1000)
        if record.first_byte_ms is not None:
            series.waits.observe(record.first_byte_ms / 1000)

    def saved(self, size: int) -> None:
        """An artifact of this many bytes is new in the store."""
        self.saved_artifacts.inc()
        self.saved_bytes.inc(size)

    def stored(self, artifacts: int, size: int) -> None:
        """A sweep of the store is over."""
        self.stored_artifacts.set(artifacts)
        self.stored_bytes.set(size)

    def exposed(self) -> bytes:
        """The content of `/metrics`: of all workers if they share a folder that no cleaner has deleted, or of this
        process. In a thread, as prices may have to be read."""
        self._note_running()
        registry, folder = self.registry, os.environ.get(SHARED_FOLDER)
        if folder is not None and os.path.isdir(folder):
            forget_the_dead(Path(folder))
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call] # it has no types
        families = list(registry.collect())
        usage = [sample for family in families if family.name == USAGE for sample in family.samples]
        together = CollectorRegistry()
        together.register(_Families([*families, learned_limits(self._learning), spent(usage, self._price_of)]))
        return generate_latest(together)


class _Families(Collector):
    """Metrics that were read before."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Those."""
        return self._families


def learned_limits(learning: Sequence[Learning]) -> GaugeMetricFamily:
    """Limits learned from refusals; the same in all workers, as they share one file."""
    family = GaugeMetricFamily(
        "context_proxy_learned_limit_tokens",
        "Limits that the upstream's refusals have taught, by model and by what they limit.",
        labels=["model", "scope"],
    )
    found: dict[tuple[str, str], int] = {}
    for one in reversed(learning):  # the first upstream that has a model serves it
        for model in one.models:
            limits, _ = one.limits(model) or (NOTHING, "")
            for scope, tokens in (("window", limits.window_tokens), ("input", limits.input_tokens)):
                if tokens is not None:
                    found[model, scope] = tokens
    for labels, tokens in found.items():
        family.add_metric(labels, tokens)
    return family


def spent(usage: Iterable[Sample], price_of: Mapping[str, Callable[[str], Price | None]]) -> CounterMetricFamily:
    """Cost of the tokens that upstreams have counted, at list prices; models without a price are left out."""
    tokens = defaultdict[tuple[str, str, str], dict[str, float]](dict)
    for sample in usage:
        if sample.name.endswith("_total"):
            labels = sample.labels
            tokens[labels["client"], labels["model"], labels["upstream"]][labels["usage"]] = sample.value
    family = CounterMetricFamily(
        "context_proxy_spent_dollars",
        "What these tokens cost in US dollars by the catalogue's list prices; models without a price are left out.",
        labels=["client", "model", "upstream"],
    )
    for (client, model, upstream), counted in tokens.items():
        price = price_of[upstream](model) if upstream in price_of else None
        if price is not None:  # another worker may have counted one of the three so far
            paid = price.spent(*(counted.get(kind, 0.0) for kind in LABEL_VALUES["usage"]))
            family.add_metric([client, model, upstream], paid)
    return family


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


def _bounded(known: set[tuple[str, ...]], most: int, labels: tuple[str, ...], rest: tuple[str, ...]) -> tuple[str, ...]:
    """These labels, or those of the rest once so many are known."""
    if labels not in known:
        if len(known) >= most:
            labels = rest
        known.add(labels)
    return labels


def _level(name: str, documentation: str, registry: CollectorRegistry) -> Gauge:
    """A gauge of which the levels of all workers are added up."""
    return Gauge(name, documentation, multiprocess_mode="livesum", registry=registry)
