"""Spans of the whole proxy, as a collector gets them."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import PATIENCE_SECONDS

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra context-proxy[otel] is not installed")

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def test_spans_reach_a_collector_a_moment_after_the_request(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    arrived = threading.Event()
    received: list[tuple[str, ExportTraceServiceRequest]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, ExportTraceServiceRequest.FromString(sent)))
            self.send_response(200)
            self.end_headers()
            arrived.set()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        world = build(tracing={"enabled": True})
        assert world.ask({"model": "m", "messages": [{"role": "user", "content": "canary"}]}).status_code == 200
        world.logged("request_done")
        assert arrived.wait(PATIENCE_SECONDS)
        server.shutdown()
    (path, request) = received[0]
    assert path == "/v1/traces"
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert span.name == "chat m"
    assert b"canary" not in request.SerializeToString()
