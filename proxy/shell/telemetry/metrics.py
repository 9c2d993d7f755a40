"""Counters for Prometheus: the content of `/metrics`.

Rule: names and units follow Prometheus' conventions; the only foreign words in labels are the names of clients and of
models, and their number is limited; a request costs a handful of additions. Several workers count in files that each
of them can add up.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from proxy import __version__
from proxy.core.conversation import Reason
from proxy.core.overflow import AttemptKind, VerdictKind
from proxy.shell.models import Learning, Price
from proxy.shell.resources import Waiting
from proxy.shell.telemetry.collectors import (
    USAGE,
    AllWorkers,
    LearnedCollector,
    Spending,
    Spread,
)
from proxy.shell.telemetry.record import RequestOutcome, RequestRecord

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
_MAX_UNREAD: Final = 1_000
"""Requests whose waits are kept until the next scrape."""
OTHER: Final = "other"
_OWN_STATUS: Final = frozenset((401, 403, 404, 413, 429))
"""Statuses with a value of their own; the others are counted by class."""

_Response = tuple[str, int, str, str, str, str]
"""Outcome, status, API, client, model, upstream."""


class _Responses(Struct):
    """The responses of one kind, and what their upstreams have counted."""

    count: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds until the head of each response."""


class _Tally(Struct):
    """Counts since Prometheus's numbers were last read, as adding to one takes a lock and four calls."""

    responses: defaultdict[_Response, _Responses] = field(default_factory=lambda: defaultdict(_Responses))

    running: int = 0
    first_sends: int = 0
    received_tokens: int = 0
    sent_tokens: int = 0


class Metrics:
    """The counters of one process; one set for each app, so that tests do not share them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._learned = LearnedCollector()
        self._tally = _Tally()
        self._series: set[tuple[str, str, str, str, str, str]] = set()
        self._timed: set[tuple[str, ...]] = set()
        self._is_shared = SHARED_FOLDER in os.environ
        spread = Histogram if self._is_shared else Spread
        ProcessCollector(registry=registry)
        registry.register(self._learned)
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
        self.spending = Spending(self.usage)
        registry.register(self.spending)
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
        self.prefix_kept = spread(
            "context_proxy_prefix_kept_ratio",
            "Share of a conversation's previous request with which the next one begins, as sent.",
            buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999999, 1),
            registry=registry,
        )
        self.own_seconds = spread(
            "context_proxy_own_seconds",
            "Time from the last byte of a chat request until it is sent upstream, without waits for images.",
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
            registry=registry,
        )
        self.upstream_seconds = spread(
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
        self.queued.set(queued)
        self.waiting.set(waiting.requests)
        self.waiting_compressed.set(waiting.compressed)
        self.waiting_bytes.set(waiting.memory_bytes)

    def follow(self, learning: Sequence[Learning], price_of: Mapping[str, Callable[[str], Price | None]]) -> None:
        """Report lessons and prices of these upstreams from now on."""
        self._learned.learning = learning
        self.spending.follow(price_of)

    def begun(self) -> None:
        """A chat request has arrived."""
        if self._is_shared:
            self.running.inc()
        else:
            self._tally.running += 1

    def _add_up(self) -> None:
        """Update Prometheus's numbers on each scrape, and at once if any worker may be scraped."""
        tally, self._tally = self._tally, _Tally()
        self.running.inc(tally.running)
        self._first.inc(tally.first_sends)
        self.received_tokens.inc(tally.received_tokens)
        self.sent_tokens.inc(tally.sent_tokens)
        for response, found in tally.responses.items():
            self.requests.labels(response[0]).inc(found.count)
            labels = self._labels_of(response)
            self.responses.labels(*labels).inc(found.count)
            if found.prompt_tokens or found.reply_tokens:
                for kind in LABEL_VALUES["usage"]:
                    self.usage.labels(kind, *labels[3:]).inc(getattr(found, f"{kind}_tokens"))
            if found.waits:
                waits = self.upstream_seconds.labels(*self._timed_labels_of(*labels[3:]))
                for seconds in found.waits:
                    waits.observe(seconds)

    def _timed_labels_of(self, *labels: str) -> tuple[str, ...]:
        """Labels in the histogram of first bytes, by client, model and upstream."""
        if labels not in self._timed:
            if len(self._timed) >= MAX_TIMED_SERIES:
                labels = (OTHER, OTHER, labels[2])
            self._timed.add(labels)
        return labels

    def _labels_of(self, response: _Response) -> tuple[str, str, str, str, str, str]:
        """Labels of the series that counts a response."""
        outcome, status, api, client, model, upstream = response
        code = str(status) if status in _OWN_STATUS else f"{status // 100}xx" if status else "none"
        labels = (outcome, code, api, client, _printable(model), upstream)
        if labels not in self._series:
            if len(self._series) >= MAX_RESPONSE_SERIES:
                labels = (outcome, code, api, OTHER, OTHER, upstream)
            self._series.add(labels)
        return labels

    def planned(self, record: RequestRecord) -> None:
        """Count a request once its plan is made."""
        planned = record.planned
        if planned is None:
            return
        for reason, count in planned.reasons.items():
            self._edits[reason].inc(count)
        if planned.request.stream:
            record.counted_as_stream = True
            self.streams.inc()

    def result_cut(self, limit: str) -> None:
        """A tool result was cut when it arrived, for a limit such as `tool_output.max_lines=2000`."""
        setting = limit.partition("=")[0]
        is_of_tool = setting.startswith("tool_output.tools.")  # then it contains a tool's name
        self.cut_results.labels("tool_output.tools" if is_of_tool else setting).inc()

    def finished(self, record: RequestRecord) -> None:
        """A chat request is finished."""
        self._count(record)
        tally = self._tally
        if self._is_shared or tally.first_sends > _MAX_UNREAD or len(tally.responses) > MAX_RESPONSE_SERIES:
            self._add_up()

    def _count(self, record: RequestRecord) -> None:
        tally = self._tally
        tally.running -= 1
        found = tally.responses[record.outcome, record.status, record.api, record.client, record.model, record.upstream]
        found.count += 1
        if record.prompt_tokens is not None:
            found.prompt_tokens += record.prompt_tokens
            found.cached_tokens += record.cached_tokens or 0
            found.reply_tokens += record.reply_tokens or 0
        if record.counted_as_stream:
            self.streams.dec()
        if record.too_long and record.went_well:
            self.overflows_cured.inc()
        if record.prefix_kept is not None:
            self.prefix_kept.observe(record.prefix_kept)
        if record.retrieval_rounds:
            self.retrieval_rounds.inc(record.retrieval_rounds)
        if record.sent is None:
            return
        tally.first_sends += 1
        tally.received_tokens += record.tokens_before
        tally.sent_tokens += record.tokens_sent or 0
        if (own_ms := record.own_ms) is not None:
            self.own_seconds.observe(own_ms / 1000)
        if (first_byte_ms := record.first_byte_ms) is not None:
            found.waits.append(first_byte_ms / 1000)

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
        process."""
        folder = os.environ.get(SHARED_FOLDER)
        if folder is None or not os.path.isdir(folder):
            self._add_up()
            return generate_latest(self.registry)
        together = CollectorRegistry()
        together.register(self._learned)
        together.register(AllWorkers(Path(folder), self.spending))
        return generate_latest(together)


def _level(name: str, documentation: str, registry: CollectorRegistry) -> Gauge:
    """A gauge of which the levels of all workers are added up."""
    return Gauge(name, documentation, multiprocess_mode="livesum", registry=registry)


def _printable(model: str) -> str:
    """A model's name as a label: bounded, and without lone surrogates, which have no UTF-8."""
    return model[:MAX_LABEL_CHARACTERS].encode("utf-8", "replace").decode()
