"""OpenTelemetry traces: one span for each chat request. Names and attributes are those of the GenAI conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/) beside the proxy's own sizes.

Rule: imported only if tracing is on; a span is made when its request is finished, so that nothing waits for it; sizes,
names and reasons, never a key and never content. The standard `OTEL_…` variables, which OpenTelemetry itself reads, set
the destination.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__
from proxy.shell.telemetry.record import RequestRecord
from proxy.shell.upstream import Headers

CLOSE_SECONDS: Final = 5
"""Timeout of sending the last spans; an unreachable collector must not delay the end of the process."""
_CONTEXT_HEADERS: Final = frozenset((b"traceparent", b"tracestate"))
_CONVENTIONAL: Final = {
    "model": "gen_ai.request.model",
    "stream": "gen_ai.request.stream",
    "reply_limit": "gen_ai.request.max_tokens",
    "status": "http.response.status_code",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "reply_tokens": "gen_ai.usage.output_tokens",
}
"""Fields that the conventions have a name for, in the same unit."""
_NANOSECONDS: Final = 1_000_000_000


class Tracer:
    """Makes a span from each record."""

    def __init__(self, addresses: Mapping[str, str], processor: SpanProcessor | None = None) -> None:
        """`addresses`: the base URL of each upstream by its place in the settings; under the empty name that of the
        only one, or for requests that ended before one was chosen."""
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):  # OTEL_SERVICE_NAME wins
            resource = resource.merge(Resource({SERVICE_NAME: "context-proxy", SERVICE_VERSION: __version__}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("context-proxy", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._same_for_all = {name: _of_all(url) for name, url in addresses.items()}
        """Attributes by upstream."""

    def parent_of(self, headers: Headers) -> Context | None:
        """The client's span, if it names one."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _CONTEXT_HEADERS}
        return self._propagator.extract(carrier) if carrier else None

    def finished(self, record: RequestRecord) -> None:
        """The request is finished."""
        end = time.time_ns()
        start = end - int(record.total_ms * _NANOSECONDS / 1000)
        span = self._tracer.start_span(
            f"chat {record.model}".rstrip(),
            record.parent,
            SpanKind.CLIENT,
            {**self._same_for_all[record.route], **described(record)},
            start_time=start,
        )
        if not record.went_well:
            span.set_status(Status(StatusCode.ERROR, record.problem or f"HTTP {record.status}"))
        span.end(end)

    def close(self) -> None:
        """Send what is left, for a short time; blocks."""
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(CLOSE_SECONDS)


def _of_all(base_url: str) -> Mapping[str, Any]:
    """Attributes common to all spans of one upstream."""
    parts = urlsplit(base_url)
    return {
        "gen_ai.operation.name": "chat",
        # Many servers use OpenAI's format; the conventions say `openai` if the provider is unknown.
        "gen_ai.provider.name": "openai",
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


def described(record: RequestRecord) -> Mapping[str, Any]:
    """The fields of a record as attributes: under a conventional name, or `context_proxy.` and their own."""
    found: dict[str, Any] = {}
    for name, value in vars(record).items():
        if isinstance(value, Mapping):
            found |= {f"context_proxy.{name}.{key}": count for key, count in value.items()}
        elif value or value is False:
            found[_CONVENTIONAL.get(name, f"context_proxy.{name}")] = value
    if not record.went_well:
        found["error.type"] = record.outcome
    if record.first_byte_ms is not None:
        found["gen_ai.response.time_to_first_chunk"] = record.first_byte_ms / 1000
    return found
