"""Spans: by the conventions, one for each request, and nothing at all when tracing is off."""

import subprocess
import sys
from unittest.mock import Mock

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra context-proxy[otel] is not installed")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra context-proxy[otel] is not installed")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs
from support.planners import TENANT, body, planner, run

from proxy.config import SettingsError, load
from proxy.core.overflow import AttemptKind, Counted, Cure, VerdictKind
from proxy.errors import UpstreamTimeout
from proxy.shell.telemetry import Recorder
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry.tracing import Tracer
from proxy.wire.chat_completions import CHAT_COMPLETIONS

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch):
    for name in ("OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    return InMemorySpanExporter()


async def traced(spans, content, *headers, error=None, status=200, retried=False, route=""):
    addresses = {"": "https://api.example:8443/v1", "upstreams[0]": "https://other.example/v1"}
    recorder = Recorder(Metrics(), Tracer(addresses, SimpleSpanProcessor(spans)))
    with capture_logs():
        record = recorder.begin("req-7", list(headers))
        record.route = route
        record.note_body(len(content))
        planned = await planner().plan(CHAT_COMPLETIONS, TENANT, content)
        record.note_plan(planned)
        record.note_sent(1)
        if retried:
            record.note_attempt(Cure(AttemptKind.EMERGENCY), planned)
            record.note_sent(1)
        record.note_answer(status)
        record.note_counts(Counted(321))
        if error is not None:
            record.note_error(error)
        else:
            record.note_end(status, VerdictKind.ACCEPTED, ends_in_error=False)
        recorder.finish(record)
    (span,) = spans.get_finished_spans()
    return span


async def test_a_span_says_which_of_several_upstreams_has_served_it(spans):
    span = await traced(spans, body(run(1)), route="upstreams[0]")
    served = {"context_proxy.route": "upstreams[0]", "server.address": "other.example", "server.port": 443}
    assert dict(span.attributes or {}).items() >= served.items()


async def test_a_request_is_a_span_by_the_conventions_with_our_sizes(spans):
    span = await traced(spans, body(run(80), model="qwen3", max_tokens=100, stream=True))
    attributes = dict(span.attributes or {})
    assert (span.name, span.kind) == ("chat qwen3", SpanKind.CLIENT)
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "qwen3",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.usage.input_tokens": 321,
        "server.address": "api.example",
        "server.port": 8443,
        "http.response.status_code": 200,
        "context_proxy.request_id": "req-7",
        "context_proxy.messages": 162,
    }
    assert attributes.items() >= told.items()
    assert attributes["context_proxy.tokens_sent"] <= attributes["context_proxy.room_tokens"]
    assert attributes["context_proxy.tokens_before"] > attributes["context_proxy.room_tokens"]
    assert attributes["context_proxy.edits.old_exchange"] > 0
    assert attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes
    assert span.resource.attributes["service.name"] == "context-proxy"
    assert 0 < span.end_time - span.start_time < 60_000_000_000
    assert "line 00" not in span.to_json(), "no content"


async def test_the_span_hangs_on_the_clients(spans):
    span = await traced(
        spans, body(run(1)), (b"traceparent", f"00-{TRACE}-{SPAN}-01".encode()), (b"authorization", b"k")
    )
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert f"{span.context.trace_id:032x}" == TRACE


@pytest.mark.parametrize("sent", [b"nonsense", b"\xff\xfe", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"])
async def test_a_parent_that_is_none_is_no_parent(spans, sent):
    assert (await traced(spans, body(run(1)), (b"traceparent", sent))).parent is None


async def test_what_went_wrong_and_a_refusal_are_errors_with_their_code(spans):
    span = await traced(spans, body(run(1)), error=UpstreamTimeout("silent for 3 s"), retried=True)
    attributes = dict(span.attributes or {})
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "silent for 3 s")
    assert attributes["error.type"] == "upstream_timeout"
    assert (attributes["context_proxy.attempts"], attributes["context_proxy.attempt_kind"]) == (2, "emergency")
    spans.clear()
    refused = await traced(spans, body(run(1)), status=429)
    assert (refused.status.status_code, (refused.attributes or {})["error.type"]) == (StatusCode.ERROR, "refused")


async def test_a_name_that_is_no_text_and_none_at_all_do_no_harm(spans):
    span = await traced(spans, body(run(1), model="m\ud800" + "x" * 1_000))
    assert span.name.startswith("chat m?x")
    assert len(span.name) < 300
    spans.clear()
    assert (await traced(spans, body(run(1), model=""))).name == "chat"


async def test_the_name_of_the_service_is_the_operators(spans, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "agents")
    assert (await traced(spans, body(run(1)))).resource.attributes["service.name"] == "agents"


OFF = """
import sys, tempfile, pathlib
from proxy.app import create_app
from proxy.config.settings import Settings
create_app(Settings(data_dir=pathlib.Path(tempfile.mkdtemp())))
ours = ("opentelemetry.sdk", "opentelemetry.exporter", "proxy.shell.telemetry.tracing")
assert not [name for name in sys.modules if name.startswith(ours)]
"""
"""FastAPI loads OpenTelemetry's interface, which does nothing, by itself."""


def test_nothing_of_it_is_loaded_when_it_is_off():
    subprocess.run([sys.executable, "-c", OFF], check=True)


def test_without_the_extra_the_start_says_what_to_install(monkeypatch):
    for find in (Mock(side_effect=ModuleNotFoundError), Mock(return_value=None)):
        monkeypatch.setattr("proxy.config.types.find_spec", find)
        with pytest.raises(SettingsError, match=r"tracing\.enabled: needs the extra `otel`, .* says how$"):
            load(flags={"tracing": {"enabled": True}})
        assert load(flags={"tracing": {"enabled": False}}).tracing.enabled is False
