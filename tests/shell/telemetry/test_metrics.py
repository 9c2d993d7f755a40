from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from support.planners import TENANT, body, planner, run

from proxy import __version__
from proxy.core.overflow import Exactness, Scope, Unit, Verdict, VerdictKind
from proxy.core.overflow.report import Counted
from proxy.core.overflow.retry import Attempt, AttemptKind
from proxy.errors import ClientLeft
from proxy.shell.models.learning import Learning
from proxy.shell.telemetry.metrics import SHARED_FOLDER, Metrics, Spread, _forget_the_dead
from proxy.shell.telemetry.record import RequestRecord
from proxy.shell.telemetry.recorder import Recorder
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.delenv(SHARED_FOLDER, raising=False)
    return Metrics()


def values(metrics: Metrics) -> dict[str, float]:
    """What is not 0: `name{label}` without the prefix to its value."""
    found = {}
    for family in text_string_to_metric_families(metrics.exposed().decode()):
        for sample in family.samples:
            is_own = sample.name.startswith("context_proxy_") and sample.name != "context_proxy_build_info"
            if is_own and sample.value and not sample.name.endswith(("_bucket", "_created")):
                labels = ",".join(str(value) for value in sample.labels.values())
                found[sample.name.removeprefix("context_proxy_") + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


async def served(metrics: Metrics, content: bytes, *, retried: bool = False, fails: bool = False) -> Any:
    recorder = Recorder(metrics)
    with capture_logs():
        record = recorder.begin("req")
        record.note_body(len(content))
        planned = await planner().plan(CHAT_COMPLETIONS, TENANT, content)
        record.note_plan(planned)
        recorder.plan_made(record)
        record.note_sent(1)
        record.note_answer(400 if retried else 200)
        if retried:
            recorder.overflowed(record, Verdict(VerdictKind.PROMPT))
            record.note_attempt(Attempt(AttemptKind.EMERGENCY), planned)
            recorder.retried(record, Attempt(AttemptKind.EMERGENCY))
            record.note_sent(1)
            record.note_answer(200)
        if fails:
            record.note_error(ClientLeft("gone"))
        running = values(metrics)
        recorder.finish(record)
    return planned, running


async def test_a_request_is_counted_with_its_sizes_and_reasons(metrics: Metrics) -> None:
    planned, running = await served(metrics, body(run(80), stream=True))
    assert (running["running_requests"], running["running_streams"]) == (1, 1)
    found = values(metrics)
    assert (
        found.items()
        >= {
            "requests_total{answered}": 1,
            "attempts_total{first}": 1,
            "received_tokens_total": planned.plan.before.tokens,
            "sent_tokens_total": planned.plan.after.tokens,
            "own_seconds_count": 1,
            "upstream_first_byte_seconds_count": 1,
        }.items()
    )
    assert {name: count for name, count in found.items() if name.startswith("edits")} == {
        f"edits_total{{{reason}}}": count for reason, count in planned.reasons.items()
    }
    assert "running_requests" not in found
    assert "running_streams" not in found
    assert "prefix_kept_ratio_count" not in found


async def test_an_overflow_and_its_cure_are_counted(metrics: Metrics) -> None:
    await served(metrics, body(run(10)), retried=True)
    assert (
        values(metrics).items()
        >= {
            "overflows_total{prompt}": 1,
            "overflows_cured_total": 1,
            "attempts_total{first}": 1,
            "attempts_total{emergency}": 1,
        }.items()
    )


async def test_responses_are_counted_by_status_api_client_model_and_upstream(metrics: Metrics) -> None:
    for status, client in ((200, "codex"), (401, "codex"), (503, "codex"), (504, "crush")):
        record = RequestRecord("req", 0.0, api="chat", client=client, status=status, upstream="api.test")
        record.planned = await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(1)))
        metrics.finished(record)
    model = record.planned.request.model
    told = {name: count for name, count in values(metrics).items() if name.startswith("responses_total")}
    assert told == {
        f"responses_total{{chat,codex,{model},2xx,api.test}}": 1,
        f"responses_total{{chat,codex,{model},401,api.test}}": 1,
        f"responses_total{{chat,codex,{model},5xx,api.test}}": 1,
        f"responses_total{{chat,crush,{model},5xx,api.test}}": 1,
    }


def test_tokens_are_counted_as_upstreams_report_them_by_client_and_model(metrics: Metrics) -> None:
    for status, counted in ((200, Counted(900, 40, 600)), (200, Counted(1000, 2, 0)), (401, None)):
        metrics.finished(
            RequestRecord("req", 0.0, api="chat", client="codex", status=status, upstream="api.test", counted=counted)
        )
    told = {name: count for name, count in values(metrics).items() if name.startswith("usage_tokens_total")}
    assert told == {
        "usage_tokens_total{codex,,api.test,prompt}": 1900,
        "usage_tokens_total{codex,,api.test,cached}": 600,
        "usage_tokens_total{codex,,api.test,reply}": 42,
    }


def test_cut_results_are_counted_by_limit_without_its_value_and_without_names_of_tools(metrics: Metrics) -> None:
    for limit in (
        "tool_output.max_lines=2000",
        "tool_output.max_lines=9",
        "window=800",
        "tool_output.tools.x.max_bytes=7",
    ):
        metrics.result_cut(limit)
    told = {name: count for name, count in values(metrics).items() if name.startswith("cut_results_total")}
    assert told == {
        "cut_results_total{tool_output.max_lines}": 2,
        "cut_results_total{window}": 1,
        "cut_results_total{tool_output.tools}": 1,
    }


def test_foreign_names_cannot_make_series_without_end(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.shell.telemetry.metrics.MAX_RESPONSE_SERIES", 3)
    for number in range(20):
        metrics.finished(RequestRecord("req", 0.0, api="chat", client=f"client-{number}", status=200))
    told = {name: count for name, count in values(metrics).items() if name.startswith("responses_total")}
    assert len(told) == 4
    assert told["responses_total{chat,other,other,2xx,}"] == 17


def test_the_version_and_the_process_are_told(metrics: Metrics) -> None:
    told = metrics.exposed().decode()
    assert f'context_proxy_build_info{{version="{__version__}"}} 1.0' in told
    assert re.search(r"^process_resident_memory_bytes \d", told, re.MULTILINE)


async def test_an_overflow_that_nobody_waited_for_is_not_cured(metrics: Metrics) -> None:
    await served(metrics, body(run(10)), retried=True, fails=True)
    found = values(metrics)
    assert found["requests_total{client_left}"] == 1
    assert "overflows_cured_total" not in found


def test_what_the_store_says_is_counted(metrics: Metrics) -> None:
    metrics.saved(100)
    metrics.saved(50)
    metrics.stored(7, 7_000)
    assert values(metrics) == {
        "saved_artifacts_total": 2,
        "saved_artifact_bytes_total": 150,
        "stored_artifacts": 7,
        "stored_artifact_bytes": 7_000,
    }


def test_learned_limits_are_told_as_they_stand_when_somebody_asks(tmp_path: Path) -> None:
    learning = Learning(tmp_path, "http://upstream/v1")
    metrics = Metrics([learning])
    assert values(metrics) == {}
    verdict = Verdict(
        VerdictKind.PROMPT, limit=32_000, limit_scope=Scope.WINDOW, unit=Unit.TOKENS, exactness=Exactness.EXACT
    )
    with capture_logs():
        learning.note_refusal('m"\n\ud800', verdict, 40_000)
    assert list(values(metrics).values()) == [32_000]


TWO_WORKERS = """
import os, sys
sys.path.insert(0, os.getcwd())
from proxy.shell.telemetry.metrics import Metrics
metrics = Metrics()
child = os.fork()
metrics = metrics if child else Metrics()
if not child:
    metrics.saved(10); metrics.running.inc(); metrics.streams.inc()
    os._exit(0)
os.waitpid(child, 0)
metrics.saved(5)
metrics.running.inc()
sys.stdout.write(metrics.exposed().decode())
"""


def test_workers_that_share_a_folder_tell_the_sum_and_the_dead_have_nothing_under_way(tmp_path: Path) -> None:
    environment = {**os.environ, SHARED_FOLDER: str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "context_proxy_saved_artifact_bytes_total 15.0" in told
    assert "context_proxy_running_requests 1.0" in told
    assert "context_proxy_learned_limit_tokens" in told


def test_only_files_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine, theirs, first, odd, kept = (
        tmp_path / name
        for name in (
            f"gauge_livesum_{os.getpid()}.db",
            f"gauge_livesum_{gone.pid}.db",
            "gauge_livesum_1.db",
            "gauge_livesum_x.db",
            f"counter_{gone.pid}.db",
        )
    )
    for file in (mine, theirs, first, odd, kept):
        file.touch()
    _forget_the_dead(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, first, odd, kept])


def test_a_histogram_of_one_process_reads_like_prometheus_clients_own() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    described, buckets = ("context_proxy_some_seconds", "Some time."), (0.001, 0.5, 1, 30)
    of_theirs = Histogram(*described, buckets=buckets, registry=theirs)
    of_ours = Spread(*described, buckets=buckets, registry=ours)
    for value in (0.0, 0.001, 0.4, 0.5, 7.25, 30, 31):
        of_theirs.observe(value)
        of_ours.observe(value)
    lines = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(ours).decode().splitlines() == lines
