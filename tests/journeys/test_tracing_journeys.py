"""Spans of the whole proxy, as a collector gets them."""

from __future__ import annotations

from typing import Any

import pytest
from support.upstream import ScriptedModel, as_json, listening
from support.waiting import wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra context-proxy[otel] is not installed")


def test_spans_reach_a_collector_a_moment_after_the_request(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    collector = ScriptedModel(beside=lambda *_: as_json({}))
    with listening(collector) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url.removesuffix("/v1"))
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        world = build(tracing={"enabled": True})
        assert world.ask({"model": "m", "messages": [{"role": "user", "content": "canary"}]}).status_code == 200
        world.logged("request_done")
        wait_until(lambda: bool(collector.posted))
    assert collector.others[0] == "POST /v1/traces"
    request = ExportTraceServiceRequest.FromString(collector.posted[0])
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert span.name == "chat m"
    assert b"canary" not in request.SerializeToString()
