"""Counters for Prometheus: the content of `/metrics`.

Rule: names and units follow Prometheus' conventions; the only foreign words in labels are the names of clients and of
models, and their number is limited; a request costs a handful of additions. Several workers count in files that each
of them can add up.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from proxy import __version__
from proxy.core.conversation import Reason
from proxy.core.overflow import AttemptKind, VerdictKind
from proxy.shell.models import Learning, Price
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
_PREFIX: Final = "context_proxy_"
_OTHER: Final = "other"
_OWN_STATUS: Final = frozenset((401, 403, 404, 413, 429))
"""Statuses with a value of their own; the others are counted by class."""

_COUNTERS: Final[Mapping[str, tuple[str, *tuple[str, ...]]]] = {
    "requests": ("Finished chat requests, by outcome.", "outcome"),
    "responses": (
        "Finished chat requests by outcome and by the status that the client got: 401, 403, 404, 413 and 429 by "
        "number, others by class (`2xx`); `none`: the client left before. A stream that has begun keeps its `2xx`, "
        "however it ends. `client` is the first word of its user agent, or what `x-context-proxy-client` says; "
        "`upstream` is empty for what was sent nowhere.",
        *("outcome", "status", "api", "client", "model", "upstream"),
    ),
    "usage_tokens": (
        "Tokens as upstreams have counted them, by usage: those of prompts, of these those read from a prompt cache, "
        "and those of replies.",
        *("usage", "client", "model", "upstream"),
    ),
    "attempts": (
        "Chat requests sent upstream, by kind: `first`, or a second one that the client does not see.",
        "attempt_kind",
    ),
    "overflows": ("Refusals for length by the upstream, by kind.", "kind"),
    "overflows_cured": ("Chat requests that the upstream refused for length and that were answered all the same.",),
    "warned_requests": (
        "Chat requests that need attention though they may be answered, by reason: `window_guessed`, longer than half "
        "of a window that no source states; `window_too_small`, silently cut by the server.",
        *("reason", "upstream"),
    ),
    "edits": (
        "Edits in chat requests, by reason; an edit that stays in a conversation counts in each of its requests.",
        "reason",
    ),
    "cut_results": (
        "Tool results cut when they arrived, by the limit that they exceeded: the setting's name, `window`, or "
        "`tool_output.tools` if it is one of the tool's own.",
        "limit",
    ),
    "received_tokens": ("Tokens, before edits, of the chat requests that were sent upstream; estimated.",),
    "sent_tokens": ("Tokens of the same requests after edits; estimated.",),
    "saved_artifacts": ("Artifacts written to the store.",),
    "saved_artifact_bytes": ("Bytes of these artifacts.",),
    "store_failures": (
        "Artifacts that could not be written to the store; the cut was not made, or its notice says so.",
    ),
    "lost_waiting_requests": ("Requests that could no longer be sent again, because too much was waiting.",),
    "retrieval_rounds": ("Reads of artifacts for a model before its client had the response.",),
    "state_failures": (
        "Exchanges with the server at `state.url` that failed; a few every four seconds while it is unreachable.",
    ),
}
"""Without their prefix: what they count, and their labels."""
_GAUGES: Final[Mapping[Literal["livesum", "mostrecent"], Mapping[str, str]]] = {
    "livesum": {
        "running_requests": "Chat requests under way.",
        "running_streams": "Chat requests under way whose response is a stream.",
        "queued_requests": "Requests that wait until there is room to read and plan them.",
        "waiting_requests": "Requests over 16 KB that were sent and are kept until it is clear what their response is.",
        "waiting_compressed_requests": "Of these, those that are compressed.",
        "waiting_bytes": "Memory of them all; `server.max_waiting_bytes` limits it.",
    },
    "mostrecent": {
        "stored_artifacts": "Artifacts in the store at the last sweep, once an hour.",
        "stored_artifact_bytes": "Bytes of these artifacts.",
    },
}
"""By what they are in all workers together: the sum of those that live, or what was set last."""
_HISTOGRAMS: Final[Mapping[str, tuple[str, Sequence[str], Sequence[float]]]] = {
    "prefix_kept_ratio": (
        "Share of a conversation's previous request with which the next one begins, as sent.",
        (),
        (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999999, 1),
    ),
    "own_seconds": (
        "Time from the last byte of a chat request until it is sent upstream, without waits for images.",
        (),
        (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
    ),
    "upstream_first_byte_seconds": (
        "Time from sending a chat request to the head of its response.",
        ("client", "model", "upstream"),
        (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    ),
}
"""What they time, their labels, and their buckets."""

_Kind: TypeAlias = tuple[str, int, str, str, str, str, bool]
"""Outcome, status, API, client, model, upstream, and whether the upstream has counted tokens."""
_Counted: TypeAlias = tuple[Counter, Counter, Histogram, Sequence[Counter]]
"""What requests of a kind count in: requests, responses, waits; and prompt, cached and reply, if the upstream has
counted any."""


class Metrics(Collector):
    """The metrics of one process; one set for each app, so that tests do not share them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.under_way: Mapping[int, RequestRecord] = {}
        self.learning: Sequence[Learning] = ()
        """Of the upstreams, in the order in which they are tried."""
        self.price_of: Mapping[str, Callable[[str], Price | None]] = {}
        """Prices of models, by their upstream's host."""
        self._series = functools.lru_cache(MAX_RESPONSE_SERIES)(self._series_of)
        """Looking up the child of a label costs as much as counting."""
        self._known: tuple[set[tuple[str, ...]], set[tuple[str, ...]]] = set(), set()
        """Labels of responses, and of waits."""
        ProcessCollector(registry=registry)
        self.counters = {
            name: Counter(_PREFIX + name, says, labels, registry=registry)
            for name, (says, *labels) in _COUNTERS.items()
        }
        self.gauges = {
            name: Gauge(_PREFIX + name, says, multiprocess_mode=mode, registry=registry)
            for mode, described in _GAUGES.items()
            for name, says in described.items()
        }
        self.histograms = {
            name: Histogram(_PREFIX + name, says, labels, buckets=buckets, registry=registry)
            for name, (says, labels, buckets) in _HISTOGRAMS.items()
        }
        version = self.gauges["build_info"] = Gauge(
            f"{_PREFIX}build_info",
            "Always 1; its label is the version that runs.",
            ["version"],
            multiprocess_mode="mostrecent",
            registry=registry,
        )
        version.labels(__version__).set(1)
        for outcome in RequestOutcome:
            self.counters["requests"].labels(outcome.value)  # from 0 on, so that an alert sees the first one, too
        self._first = self.counters["attempts"].labels(AttemptKind.FIRST.value)

    def set_levels(self, **levels: int) -> None:
        """Set gauges of this process, and those of its requests under way: other workers report them, too."""
        planned = [one.planned for one in list(self.under_way.values())]
        streams = sum(one is not None and one.request.stream for one in planned)
        for name, level in {"running_requests": len(planned), "running_streams": streams, **levels}.items():
            self.gauges[name].set(level)

    def result_cut(self, limit: str) -> None:
        """A tool result was cut when it arrived, for a limit such as `tool_output.max_lines=2000`."""
        setting = limit.partition("=")[0]
        is_of_tool = setting.startswith("tool_output.tools.")  # then it contains a tool's name
        self.counters["cut_results"].labels("tool_output.tools" if is_of_tool else setting).inc()

    def saved(self, size: int) -> None:
        """An artifact of this many bytes is new in the store."""
        self.counters["saved_artifacts"].inc()
        self.counters["saved_artifact_bytes"].inc(size)

    def stored(self, artifacts: int, size: int) -> None:
        """A sweep of the store is over."""
        self.set_levels(stored_artifacts=artifacts, stored_artifact_bytes=size)

    def finished(self, record: RequestRecord) -> None:
        """A chat request is finished."""
        is_counted = record.prompt_tokens is not None
        kind = record.outcome, record.status, record.api, record.client, record.model, record.upstream, is_counted
        requests, responses, waits, usage = self._series(kind)
        requests.inc()
        responses.inc()
        counts = record.prompt_tokens, record.cached_tokens, record.reply_tokens
        for counter, tokens in zip(usage, counts, strict=False):  # no counters where none were counted
            counter.inc(tokens or 0)
        if record.too_long and record.went_well:
            self.counters["overflows_cured"].inc()
        if record.hangs_on_a_guess:
            self.counters["warned_requests"].labels("window_guessed", record.upstream).inc()
        if record.warning:
            self.counters["warned_requests"].labels(record.warning, record.upstream).inc()
        if record.prefix_kept is not None:
            self.histograms["prefix_kept_ratio"].observe(record.prefix_kept)
        if record.retrieval_rounds:
            self.counters["retrieval_rounds"].inc(record.retrieval_rounds)
        if record.sent is None:
            return
        self._first.inc()
        self.counters["received_tokens"].inc(record.tokens_before)
        self.counters["sent_tokens"].inc(record.tokens_sent or 0)
        if record.own_ms is not None:
            self.histograms["own_seconds"].observe(record.own_ms / 1000)
        if record.first_byte_ms is not None:
            waits.observe(record.first_byte_ms / 1000)

    def _series_of(self, kind: _Kind) -> _Counted:
        """What requests of one kind count in; once there are too many kinds, what counts the rest."""
        outcome, status, api, client, model, upstream, is_counted = kind
        code = str(status) if status in _OWN_STATUS else f"{status // 100}xx" if status else "none"
        names, rest = (client, model[:MAX_LABEL_CHARACTERS], upstream), (_OTHER, _OTHER, upstream)
        responses, waits = self._known
        counted = _bounded(responses, MAX_RESPONSE_SERIES, (outcome, code, api, *names), (outcome, code, api, *rest))
        usage = self.counters["usage_tokens"]
        return (
            self.counters["requests"].labels(outcome),
            self.counters["responses"].labels(*counted),
            self.histograms["upstream_first_byte_seconds"].labels(*_bounded(waits, MAX_TIMED_SERIES, names, rest)),
            [usage.labels(one, *counted[3:]) for one in LABEL_VALUES["usage"]] if is_counted else (),
        )

    def exposed(self) -> bytes:
        """The content of `/metrics`. In a thread, as prices may have to be read."""
        return generate_latest(self)

    def collect(self) -> Iterable[Metric]:
        """The metrics of all workers if they share a folder that no cleaner has deleted, or of this process."""
        self.set_levels()
        registry, folder = self.registry, os.environ.get(SHARED_FOLDER)
        if folder is not None and os.path.isdir(folder):
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call] # it has no types
        families = list(registry.collect())
        usage = [sample for one in families if one.name == _PREFIX + "usage_tokens" for sample in one.samples]
        return [*families, learned_limits(self.learning), spent(usage, self.price_of)]


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
            each = {"window": limits.window_tokens, "input": limits.input_tokens}
            found |= {(model, scope): tokens for scope, tokens in each.items() if tokens is not None}
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


def _bounded(known: set[tuple[str, ...]], most: int, labels: tuple[str, ...], rest: tuple[str, ...]) -> tuple[str, ...]:
    """These labels, or those of the rest once so many are known."""
    if labels not in known:
        if len(known) >= most:
            labels = rest
        known.add(labels)
    return labels
